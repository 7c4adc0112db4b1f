"""setup.sh: what it says is missing, what it installs, that it stops early when nothing is to be done. Downloads nothing and
installs nothing: real tools are given to it as to someone who is not root."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
from bare_machine import bare_path, fake, set_torch_version, small_torch

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))


@pytest.fixture
def tools(tmp_path):
    """A folder of programs that stands for a bare machine: shell tools and Python, no compiler, not root."""
    folder = bare_path(tmp_path / "bin")
    fake(folder, "id", "echo 1000")
    return folder


@pytest.fixture
def whole_path(tmp_path):
    """The path of this machine, which has all tools, but not root."""
    folder = tmp_path / "no_root"
    folder.mkdir()
    fake(folder, "id", "echo 1000")
    fake(folder, "nvcc", "true")  # or PyPI's would be wanted
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def torch_dir(tmp_path):
    return small_torch(tmp_path / "torch", 2, 14)


def setup(tmp_path, path, **variables):
    environment = {"PATH": str(path), "HOME": str(tmp_path), "SHARDMARK_DEPS": str(tmp_path / "deps"), "PIP_NO_INDEX": "1",
                   **variables}
    result = subprocess.run([shutil.which("bash"), str(SOURCE / "scripts/setup.sh")], env=environment, text=True,
                            capture_output=True, timeout=120)
    return result.returncode, result.stderr


def test_everything_missing_is_named_at_once_with_its_remedy(tmp_path, tools):
    code, text = setup(tmp_path, tools, MPI_HOME="/no/mpi", HDF5_ROOT="/no/hdf5", Torch_DIR="/no/torch")
    assert code == 5
    for part in ("g++", "CXX", "cmake 3.24", "ninja-build", "package make", "package git", "procps", "MPI_HOME = /no/mpi",
                 "HDF5_ROOT = /no/hdf5", "Torch_DIR = /no/torch"):
        assert part in text


def test_old_versions_are_named(tmp_path, tools):
    fake(tools, "g++", "case $1 in -dump*) echo 11.4.0 ;; *) cat ;; esac")
    fake(tools, "cmake", "echo cmake version 3.22.1")
    code, text = setup(tmp_path, tools)
    assert code == 5
    assert "g++ is 11.4.0, g++ 12 or newer" in text
    assert "cmake 3.24 or newer (found: 3.22.1)" in text


def test_missing_headers_are_named_with_package_and_variable(tmp_path, tools):
    fake(tools, "g++", "case $1 in -dump*) echo 12.2.0 ;; *) cat >/dev/null ;; esac")  # a preprocessor that finds nothing
    code, text = setup(tmp_path, tools)
    assert code == 5
    for header, package in (("spdlog/spdlog.h", "libspdlog-dev"), ("gtest/gtest.h", "libgtest-dev"),
                            ("toml++/toml.h", "libtomlplusplus-dev")):
        assert f"header <{header}>: Debian package {package}, or an installation named by CMAKE_PREFIX_PATH" in text
    assert "header <hdf5.h>: Debian package libhdf5-dev, or an installation named by HDF5_ROOT" in text
    assert "MPI launcher mpirun: Debian package openmpi-bin, or a module, or MPI_HOME" in text


def test_another_formatter_is_said_and_stops_nothing(tmp_path, whole_path, torch_dir):
    for name in ("clang-format", "clang-format-14"):
        fake(tmp_path / "no_root", name, "echo clang-format version 99.0.0")
    code, text = setup(tmp_path, whole_path, Torch_DIR=str(torch_dir), SHARDMARK_PYTHON=sys.executable)
    assert code == 0, text
    assert "no clang-format 14" in text and "the formatting test is skipped" in text


@pytest.mark.parametrize("version, said", [((2, 9), "is version 2.9; 2.11 to 2.14"), (None, "is version unknown")])
def test_an_old_libtorch_is_refused(tmp_path, tools, torch_dir, version, said):
    if version:
        set_torch_version(tmp_path / "torch", *version)
    else:
        (tmp_path / "torch/include/torch/headeronly/version.h").unlink()
    code, text = setup(tmp_path, tools, Torch_DIR=str(torch_dir))
    assert code == 5 and said in text


def test_root_installs_only_what_is_missing_and_looks_again(tmp_path, tools):
    fake(tools, "id", "echo 0")
    fake(tools, "apt-get", f'echo "$@" >>"{tmp_path}/calls"\ncase "$*" in\n'
                           '*--assume-no*) echo "Need to get 12.3 MB of archives."; exit 1 ;;\n'
                           f'*"install -y"*) printf "#!/bin/bash\\n" >"{tools}/ninja"; chmod +x "{tools}/ninja" ;;\nesac')
    code, text = setup(tmp_path, tools, Torch_DIR="/no/torch")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[:2] for call in calls] == [["update", "-qq"], ["install", "--assume-no"], ["install", "-y"]]
    assert "Need to get 12.3 MB" in text  # asked for and printed before the installation
    for package in ("g++", "ninja-build", "libopenmpi-dev", "clang-format"):
        assert f" {package}" in calls[2]
    assert " python3" not in calls[2]
    assert code == 5
    assert "package g++" in text  # still missing after the installation
    assert "package ninja-build" not in text  # there now


def test_nothing_is_downloaded_where_everything_is_given_and_a_second_call_is_quick(tmp_path, torch_dir, whole_path):
    variables = {"Torch_DIR": str(torch_dir), "SHARDMARK_PYTHON": sys.executable}
    code, text = setup(tmp_path, whole_path, **variables)
    assert code == 0, text
    lines = (tmp_path / "deps/env.sh").read_text()
    assert f"Torch_DIR='{torch_dir}'" in lines and f"SHARDMARK_PYTHON='{sys.executable}'" in lines
    assert not (tmp_path / "deps/venv").exists()

    start_s = time.monotonic()
    code, text = setup(tmp_path, whole_path, **variables)
    assert (code, text) == (0, "")
    assert time.monotonic() - start_s < 10  # "seconds", on a machine that may be busy

    # What the last call promised is gone: it is noticed.
    (torch_dir / "TorchConfig.cmake").unlink()
    code, text = setup(tmp_path, whole_path, **variables)
    assert code == 5
    assert "has no TorchConfig.cmake" in text


def test_a_python_without_the_packages_is_refused(tmp_path, tools, torch_dir, whole_path):
    fake(tools, "lean-python", f'exec "{sys.executable}" -S "$@"')
    code, text = setup(tmp_path, whole_path, Torch_DIR=str(torch_dir), SHARDMARK_PYTHON=str(tools / "lean-python"))
    assert code == 5
    for name in ("h5py", "pandas", "pytest"):
        assert f"Python package {name}: SHARDMARK_PYTHON" in text


def test_without_network_every_package_is_named(tmp_path, whole_path):
    code, text = setup(tmp_path, whole_path)
    assert code == 5
    finds_torch = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([shutil.which("python3"), "-c", finds_torch]).returncode != 0:  # else the active python's is used
        assert "about 3 GB" in text and "6 GB on disk" in text  # said before the download starts
        assert "set Torch_DIR" in text
    for name in ("h5py", "matplotlib", "numpy", "pandas", "pytest"):
        assert f"Python package {name}:" in text
    assert "SHARDMARK_PYTHON" in text
    assert not (tmp_path / "deps/env.sh").exists()


def test_a_full_disk_is_named_before_the_download(tmp_path, whole_path, torch_dir):
    fake(tmp_path / "no_root", "df", "printf 'Filesystem 1M-blocks Used Available\n/dev/full 900 800 100\n'")
    code, text = setup(tmp_path, whole_path, Torch_DIR=str(torch_dir))
    assert code == 5
    assert "about 60 MB, 300 MB on disk" in text
    assert "disk space: 100 MiB are free" in text and "400 are needed" in text and "SHARDMARK_DEPS" in text
    assert not (tmp_path / "deps/venv").exists()


def test_a_half_made_environment_is_made_anew(tmp_path, torch_dir, whole_path):
    leftover = tmp_path / "deps/venv/lib/leftover"
    leftover.mkdir(parents=True)
    code, text = setup(tmp_path, whole_path, Torch_DIR=str(torch_dir))
    assert code == 5  # no network here
    assert "half-made and is made anew" in text
    assert not leftover.exists()
    assert (tmp_path / "deps/venv/bin/python").exists()


def test_check_venv_finds_absent_wrong_and_cut_packages(tmp_path):
    def check(*names):
        script = SOURCE / "scripts/setup/check_venv.py"
        program = (f"import sys; sys.path = [{str(tmp_path)!r}] + [p for p in sys.path if 'site-packages' not in p]; "
                   f"sys.argv = ['check_venv', {str(tmp_path / 'pins')!r}, *{names!r}]; "
                   f"exec(compile(open({str(script)!r}).read(), 'check_venv', 'exec'))")
        result = subprocess.run([sys.executable, "-S", "-c", program], text=True, capture_output=True, timeout=60)
        return result.returncode, result.stdout

    (tmp_path / "pins").write_text("# pins\nThing_A==1.0\n")
    info = tmp_path / "thing_a-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing-a\nVersion: 1.0\n")
    (tmp_path / "thing_a.py").write_text("x = 1\n")
    (info / "RECORD").write_text("thing_a.py,,6\n")
    assert check("thing-a") == (0, "")
    assert check("thing-a", "thing-b") == (1, "thing-b: absent\n")
    (tmp_path / "pins").write_text("thing-a==2.0\n")
    assert check("thing-a") == (1, "thing-a: 1.0, pinned 2.0\n")
    (tmp_path / "thing_a.py").write_text("x")
    assert check("thing-a")[0] == 2
    (info / "RECORD").unlink()
    code, text = check("thing-a")
    assert code == 2 and "half-installed" in text


def cuda(tmp_path, script, **variables):
    """What setup/cuda.sh says in a shell of its own."""
    (tmp_path / "deps").mkdir(exist_ok=True)
    result = subprocess.run([shutil.which("bash"), "-euc", f'deps={tmp_path}/deps; source "{SOURCE}/scripts/setup/cuda.sh"; {script}'],
                            env={"PATH": os.environ["PATH"], **variables}, text=True, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_nvcc_wheels_are_shown_as_a_toolkit_and_left_as_they_are(tmp_path):
    """nvcc links from lib64 and CMake looks for libcudart.so: wheels have neither."""
    wheels = tmp_path / "site/nvidia/cu13"
    for folder in ("bin", "lib", "include", "nvvm"):
        (wheels / folder).mkdir(parents=True)
    fake(wheels / "bin", "nvcc", "true")
    for name in ("libcudart.so.13", "libcudart_static.a"):
        (wheels / "lib" / name).write_text(name)
    before = sorted(wheels.rglob("*"))
    script = f'nvcc_of_system() {{ return 1; }}; choose_cuda /nowhere "{tmp_path}/site"; echo "$cuda_home"'
    for _ in range(2):  # a second call finds its own folder and makes it anew
        toolkit = pathlib.Path(cuda(tmp_path, script))
        assert toolkit == tmp_path / "deps/cuda"
        assert not (toolkit / "bin").is_symlink()  # nvcc finds its parts by the folder above the one it lies in
        assert os.access(toolkit / "bin/nvcc", os.X_OK)
        assert (toolkit / "lib64/libcudart.so").read_text() == (toolkit / "lib/libcudart.so.13").read_text() == "libcudart.so.13"
        assert (toolkit / "lib64/libcudart_static.a").exists() and (toolkit / "include").is_dir() and (toolkit / "nvvm").is_dir()
    assert sorted(wheels.rglob("*")) == before


def test_a_toolkit_given_comes_before_one_of_wheels(tmp_path):
    (tmp_path / "given/bin").mkdir(parents=True)
    fake(tmp_path / "given/bin", "nvcc", "true")
    assert cuda(tmp_path, 'choose_cuda /nowhere; echo "$cuda_home"', CUDA_HOME=str(tmp_path / "given")) == str(tmp_path / "given")
    # The folder that set-up made itself is no wish of the user's.
    assert cuda(tmp_path, 'echo "${CUDA_HOME:-none}"', CUDA_HOME=f"{tmp_path}/deps/cuda") == "none"


def test_without_nvcc_pypi_supplies_it_and_its_size_is_said(tmp_path, whole_path, torch_dir):
    (tmp_path / "no_root/nvcc").unlink()
    bare = os.pathsep.join(folder for folder in whole_path.split(os.pathsep) if not (pathlib.Path(folder) / "nvcc").exists())
    code, text = setup(tmp_path, bare, Torch_DIR=str(torch_dir), SHARDMARK_USUAL_CUDA="/nowhere")
    assert code == 5  # no network here
    assert "no nvcc here: that of CUDA 13.0 comes along" in text
    assert "CUDA's tools (nvidia-cuda-nvcc)" in text and "set CUDA_HOME" in text


def test_what_set_up_installs_is_pinned():
    pins = {line.split("==")[0] for line in (SOURCE / "scripts/setup/constraints.txt").read_text().splitlines() if "==" in line}
    assert {"nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl", "nvidia-cuda-cuobjdump"} <= pins
