"""Every kernel is in the program for every architecture that the build names, and as PTX for later ones. Needs no device."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import BINARY, SOURCE

BUILD = pathlib.Path(os.environ.get("SHARDMARK_BUILD", SOURCE / "build"))
ARCHITECTURES = {"sm_80", "sm_90", "sm_100"}  # scripts/cmake/Dependencies.cmake
KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")


def cached(name):
    """A value of the build's CMake cache; None without a build, or where it was not given."""
    cache = BUILD / "CMakeCache.txt"
    found = re.search(rf"^{name}(?::\w+)?=(.*)$", cache.read_text(), re.MULTILINE) if cache.is_file() else None
    return found and found.group(1)


def find_cuobjdump():
    folders = [os.environ["CUDA_HOME"] + "/bin"] if os.environ.get("CUDA_HOME") else []
    torch = cached("Torch_DIR")
    if torch:  # <site-packages>/torch/share/cmake/Torch; wheels put NVIDIA's tools beside torch
        folders.append(str(pathlib.Path(torch).parents[3] / "nvidia" / "cu13" / "bin"))
    for path in (os.environ.get("PATH", ""), *folders):
        if found := shutil.which("cuobjdump", path=path):
            return found
    return None


def kernels_by_file():
    found = {path.name: KERNEL.findall(path.read_text()) for path in sorted((SOURCE / "src").rglob("*.cu"))}
    assert found and all(found.values()), f"a .cu file without a kernel should be .cpp: {found}"
    return found


def missing(text):
    """Kernels that no symbol of a listing names: `3foo` stands in a mangled name, `foo` alone where it is extern "C"."""
    return [f"{kernel} of {file}" for file, kernels in kernels_by_file().items() for kernel in kernels
            if f"{len(kernel)}{kernel}" not in text and not re.search(rf"\b{kernel}\b", text)]


@pytest.fixture(scope="module")
def cuobjdump():
    if cached("CMAKE_CUDA_FLAGS") is None:  # CMake asks for these once it has a CUDA compiler
        pytest.skip("this build has no CUDA")
    if cached("CMAKE_CUDA_ARCHITECTURES"):
        pytest.skip("this build was given its own CMAKE_CUDA_ARCHITECTURES")
    tool = find_cuobjdump()
    if tool is None:
        pytest.skip("no cuobjdump in PATH, CUDA_HOME/bin or beside torch (PyPI: nvidia-cuda-cuobjdump)")

    def call(*options):
        done = subprocess.run([tool, *options, BINARY], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "does not contain device code" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.stdout

    return call


def test_every_kernel_is_there_for_every_architecture(cuobjdump):
    by_architecture = {}
    for part in re.split(r"^arch = ", cuobjdump("--dump-elf-symbols"), flags=re.MULTILINE)[1:]:
        name = part.split("\n", 1)[0].strip()
        by_architecture[name] = by_architecture.get(name, "") + part
    assert set(by_architecture) == ARCHITECTURES
    for name, symbols in by_architecture.items():
        assert not missing(symbols), name


def test_every_kernel_is_there_as_ptx_of_the_newest(cuobjdump):
    ptx = cuobjdump("--dump-ptx")
    newest = max(ARCHITECTURES, key=lambda name: int(name[3:]))
    assert set(re.findall(r"^\.target (\w+)", ptx, re.MULTILINE)) == {newest}
    assert not missing("\n".join(re.findall(r"\.entry (\w+)", ptx)))
