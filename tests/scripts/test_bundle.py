"""make bundle (pack.py) and make build BUNDLE=FILE (use.sh): what is refused and how it is named. Downloads nothing and builds
nothing: pip, apt-get, cmake and the compiler are fakes, the packed files are small."""

import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from bare_machine import bare_path, fake, small_torch

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
NOISE = os.urandom(150_000)  # does not compress


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def source_tar(name, files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def wheel(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o755 if "/bin/" in path else 0o644) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


@pytest.fixture
def downloads(tmp_path):
    """Two downloads that lie there already, and their pins."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    files = {
        "benchmark_1.orig.tar.gz": source_tar("benchmark-1", {"CMakeLists.txt": b"x", "src/a.cc": NOISE, "test/t.cc": NOISE}),
        "cmake-3.whl": wheel({"cmake/data/bin/cmake": b"program", "cmake/data/bin/cpack": NOISE, "cmake/__init__.py": b""}),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    pins = [("source", "benchmark", "1", "benchmark_1.orig.tar.gz"), ("wheel", "cmake", "3", "cmake-3.whl")]
    (tmp_path / "pins.txt").write_text("# pins\n" + "".join(f"{' '.join(pin)} {sha256(files[pin[3]])}\n" for pin in pins))
    return folder


def pack(tmp_path, *arguments, path=None):
    command = [sys.executable, str(SOURCE / "scripts/bundle/pack.py"), "-o", str(tmp_path / "out/b.tar"), "--downloads",
               str(tmp_path / "downloads"), "--pins", str(tmp_path / "pins.txt"), *arguments]
    result = subprocess.run(command, text=True, capture_output=True, timeout=120, env={**os.environ, "PATH": path or os.environ["PATH"]})
    return result.returncode, result.stdout, result.stderr


def test_parts_are_stripped_summed_up_and_equal_each_time(tmp_path, downloads):
    code, text, errors = pack(tmp_path)
    assert code == 0, errors
    assert "benchmark 1" in text and "in all" in text
    first = (tmp_path / "out/b.tar").read_bytes()
    with tarfile.open(tmp_path / "out/b.tar") as bundle:
        sums = bundle.extractfile("shardmark-bundle/SHA256SUMS").read().decode()
        found = {}
        for name in ("benchmark", "cmake"):
            part = bundle.extractfile(f"shardmark-bundle/{name}.tar.xz").read()
            assert f"{sha256(part)}  {name}.tar.xz" in sums
            with tarfile.open(fileobj=io.BytesIO(part)) as archive:
                found.update({entry.name: entry.mode for entry in archive})
    assert found == {"benchmark/CMakeLists.txt": 0o644, "benchmark/src/a.cc": 0o644, "cmake/bin/cmake": 0o755}
    assert pack(tmp_path)[0] == 0
    assert (tmp_path / "out/b.tar").read_bytes() == first


def test_above_the_limit_the_largest_part_is_named_and_nothing_is_left(tmp_path, downloads):
    code, text, errors = pack(tmp_path, "--limit-mb", "0.1")
    assert code == 10
    assert "MB are more than the limit of 0.1 MB; the largest part is benchmark with 0.15 MB" in errors
    assert "in all" in text
    assert list((tmp_path / "out").iterdir()) == []


def test_the_limit_is_forty_megabytes():
    sys.path.insert(0, str(SOURCE / "scripts/bundle"))
    try:
        import pack as module
        assert module.LIMIT_MB == 40
    finally:
        sys.path.pop(0)


def test_a_download_that_is_not_the_pinned_one_is_refused(tmp_path, downloads):
    for path in downloads.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    code, _, errors = pack(tmp_path)
    assert code == 5
    for name in ("benchmark_1.orig.tar.gz", "cmake-3.whl"):  # both at once
        assert f"{name}: sha256 is " in errors
    assert "pinned" in errors and f"delete {downloads}" in errors
    assert not (tmp_path / "out/b.tar").exists()


def test_what_cannot_be_downloaded_is_named_at_once(tmp_path, downloads):
    tools = tmp_path / "bin"
    tools.mkdir()
    fake(tools, "apt-get", "echo 'E: no such source' >&2; exit 100")
    for path in downloads.iterdir():
        path.unlink()
    pins = (tmp_path / "pins.txt").read_text() + f"deb libx-dev 1 libx-dev_1_all.deb {'0' * 64}\n"
    (tmp_path / "pins.txt").write_text(pins.replace("wheel cmake 3", "wheel shardmark-no-such-package 3"))
    os.environ["PIP_NO_INDEX"] = "1"
    try:
        code, _, errors = pack(tmp_path, path=f"{tools}{os.pathsep}{os.environ['PATH']}")
    finally:
        del os.environ["PIP_NO_INDEX"]
    assert code == 5
    for name in ("benchmark_1.orig.tar.gz", "cmake-3.whl", "libx-dev_1_all.deb"):
        assert f"- {name}: " in errors
    assert "E: no such source" in errors and "Debian 12 with a network" in errors


def test_every_pin_is_whole_and_has_a_recipe(tmp_path):
    names = [line.split() for line in (SOURCE / "scripts/bundle/pins.txt").read_text().splitlines() if not line.startswith("#")]
    recipes = (SOURCE / "scripts/bundle/libraries.sh").read_text()
    for kind, name, version, file, digest in names:
        assert version in file and len(digest) == 64
        assert name in recipes, f"libraries.sh does nothing with {name}"
    (tmp_path / "pins.txt").write_text("wheel cmake 3\n")
    code, _, errors = pack(tmp_path)
    assert code == 2 and "pins.txt:1: not 'kind name version file sha256'" in errors


# use.sh

@pytest.fixture
def tools(tmp_path):
    """A bare machine that is not root, with what a bundle is unpacked by; its Python has no packages."""
    return bare_path(tmp_path / "bin", "basename tar xz sha256sum cp sed getconf cmp ln touch nproc".split(), python_flags="-S")


@pytest.fixture
def torch_dir(tmp_path):
    return small_torch(tmp_path / "torch", 2, 11)


def small_bundle(tmp_path, spoil=False):
    """A tar like that of pack.py, whose cmake is a script that notes how it was called."""
    parts = {name: {} for name in ("zlib", "hdf5", "fmtlib", "spdlog", "cli11", "googletest", "benchmark")}
    parts["hdf5"]["config/cmake/ConfigureChecks.cmake"] = b""
    parts["cmake"] = {"bin/cmake": f'#!{shutil.which("bash")}\necho "$@" >>"{tmp_path}/cmake.calls"\n'.encode()}
    parts["ninja"] = {"ninja": b""}
    parts["openmpi"] = {"bin/mpirun": f'#!{shutil.which("bash")}\necho mpirun 5\n'.encode()}
    parts["libtomlplusplus-dev"] = {"include/toml++/toml.h": b""}
    parts["nlohmann-json3-dev"] = {"include/nlohmann/json.hpp": b""}
    folder = tmp_path / "shardmark-bundle"
    folder.mkdir()
    sums = ""
    for name, files in parts.items():
        with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as archive:
            for path, data in {"LICENSE": b"", **files}.items():
                entry = tarfile.TarInfo(f"{name}/{path}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        sums += f"{sha256((folder / f'{name}.tar.xz').read_bytes())}  {name}.tar.xz\n"
    (folder / "SHA256SUMS").write_text(sums)
    if spoil:
        (folder / "cli11.tar.xz").write_bytes(b"cut")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.add(folder, "shardmark-bundle")
    return tmp_path / "b.tar"


def use(tmp_path, tools, bundle, **variables):
    """In a tree of its own: the script makes build/ forget libraries that it replaces, and that may not be this tree's build/."""
    tree = tmp_path / "tree"
    if not tree.exists():
        shutil.copytree(SOURCE / "scripts", tree / "scripts")
    environment = {"PATH": str(tools), "HOME": str(tmp_path), "SHARDMARK_DEPS": str(tmp_path / "deps"), "JOBS": "1", **variables}
    result = subprocess.run([shutil.which("bash"), str(tree / "scripts/bundle/use.sh"), str(bundle)], env=environment, text=True,
                            capture_output=True, timeout=120)
    return result.returncode, result.stderr


def with_compiler(tools):
    fake(tools, "g++", "echo 12.2.0")
    fake(tools, "cc", "true")


def test_everything_the_bundle_lacks_is_named_at_once(tmp_path, tools):
    (tools / "xz").unlink()
    code, text = use(tmp_path, tools, small_bundle(tmp_path), MPI_HOME="/no/mpi", CC="no-cc")
    assert code == 5
    for part in ("- xz:", "C++ compiler g++: a module, or CXX", "C compiler no-cc", "set Torch_DIR to <torch>/share/cmake/Torch",
                 "MPI_HOME = /no/mpi has no bin/mpirun"):
        assert part in text
    assert not (tmp_path / "deps/prefix").exists()


def test_a_cut_bundle_and_one_that_is_none_are_refused(tmp_path, tools, torch_dir):
    with_compiler(tools)
    code, text = use(tmp_path, tools, small_bundle(tmp_path, spoil=True), Torch_DIR=str(torch_dir))
    assert code == 5 and "cli11.tar.xz: FAILED" in text and "copy it anew" in text
    (tmp_path / "no.tar").write_text("text")
    code, text = use(tmp_path, tools, tmp_path / "no.tar", Torch_DIR=str(torch_dir))
    assert code == 5 and "is cut or no tar of make bundle" in text
    code, text = use(tmp_path, tools, tmp_path / "absent.tar", Torch_DIR=str(torch_dir))
    assert code == 2 and "there is no file" in text


def test_a_refused_bundle_leaves_what_an_earlier_one_built(tmp_path, tools, torch_dir):
    with_compiler(tools)
    bundle = small_bundle(tmp_path)
    assert use(tmp_path, tools, bundle, Torch_DIR=str(torch_dir))[0] == 0
    (tmp_path / "no.tar").write_text("text")
    assert use(tmp_path, tools, tmp_path / "no.tar", Torch_DIR=str(torch_dir))[0] == 5
    assert (tmp_path / "deps/prefix/bin/cmake").exists()
    code, text = use(tmp_path, tools, bundle, Torch_DIR=str(torch_dir))
    assert code == 0 and "building" not in text


def test_libraries_are_built_once_and_env_names_them(tmp_path, tools, torch_dir):
    with_compiler(tools)
    bundle = small_bundle(tmp_path)
    code, text = use(tmp_path, tools, bundle, Torch_DIR=str(torch_dir))
    assert code == 0, text
    prefix = tmp_path / "deps/prefix"
    calls = (tmp_path / "cmake.calls").read_text()
    for name in ("zlib", "hdf5", "fmtlib", "spdlog", "cli11", "googletest", "benchmark"):
        assert f"/bundle/{name} " in calls
    assert "tests in Python are left out" in text
    environment = (tmp_path / "deps/env.sh").read_text()
    for part in (f"HDF5_ROOT='{prefix}'", f"MPI_HOME='{prefix}/openmpi'", f"Torch_DIR='{torch_dir}'", "-DSM_PYTHON_TESTS=OFF"):
        assert part in environment
    said = subprocess.run([shutil.which("bash"), "-c", f'. "{tmp_path}/deps/env.sh"; . "{tmp_path}/deps/env.sh"; echo $PATH $CMAKE_PREFIX_PATH'],
                          env={"PATH": "/usr/bin"}, text=True, capture_output=True).stdout.split()
    assert said == [f"{prefix}/bin:/usr/bin", str(prefix)]
    # A shell that has read env.sh, and a second call: nothing is built again.
    code, text = use(tmp_path, tools, bundle, Torch_DIR=str(torch_dir), MPI_HOME=f"{prefix}/openmpi", HDF5_ROOT=str(prefix))
    assert code == 0 and "building" not in text
    assert (tmp_path / "cmake.calls").read_text() == calls
    # What the first call built is gone: what that shell names was never a wish of the user's.
    shutil.rmtree(prefix)
    code, text = use(tmp_path, tools, bundle, Torch_DIR=str(torch_dir), MPI_HOME=f"{prefix}/openmpi", HDF5_ROOT=str(prefix))
    assert code == 0 and "building" in text


def test_a_build_folder_with_other_libraries_is_configured_anew_and_one_with_these_is_kept(tmp_path, tools, torch_dir):
    with_compiler(tools)
    bundle = small_bundle(tmp_path)
    cache = tmp_path / "tree/build/CMakeCache.txt"
    for fmt, kept in (("/usr/lib/cmake/fmt", False), (tmp_path / "deps/prefix/lib/cmake/fmt", True)):
        cache.parent.mkdir(parents=True, exist_ok=True)
        if not (tmp_path / "tree/scripts").exists():
            shutil.copytree(SOURCE / "scripts", tmp_path / "tree/scripts")
        cache.write_text(f"fmt_DIR:PATH={fmt}\n")
        code, text = use(tmp_path, tools, bundle, Torch_DIR=str(torch_dir))
        assert code == 0, text
        assert cache.exists() == kept and ("configured anew" in text) != kept


def test_a_library_that_does_not_build_is_named_and_tried_again(tmp_path, tools, torch_dir):
    with_compiler(tools)
    fake(tools, "sed", "exit 1")  # the step before HDF5 is configured
    bundle = small_bundle(tmp_path)
    code, text = use(tmp_path, tools, bundle, Torch_DIR=str(torch_dir))
    assert code == 5 and "hdf5 of the bundle" in text
    assert not (tmp_path / "deps/env.sh").exists()
    (tools / "sed").unlink()
    (tools / "sed").symlink_to(shutil.which("sed"))
    assert use(tmp_path, tools, bundle, Torch_DIR=str(torch_dir))[0] == 0


def test_an_mpi_of_the_path_is_used(tmp_path, tools, torch_dir):
    with_compiler(tools)
    for name in ("mpicc", "mpirun"):
        fake(tools, name, "echo mpirun 4")
    code, text = use(tmp_path, tools, small_bundle(tmp_path), Torch_DIR=str(torch_dir))
    assert code == 0, text
    assert "MPI_HOME" not in (tmp_path / "deps/env.sh").read_text()
    assert "MPI of the path" in text
