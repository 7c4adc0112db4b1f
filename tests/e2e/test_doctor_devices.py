"""`doctor` on machines that have devices or a wrong NCCL, by libraries that stand in for NVIDIA's: the lines, their remedies, exit 5."""

import ctypes
import os
import pathlib
import re
import subprocess

import pytest
from conftest import BINARY, SOURCE
from doctor_calls import doctor, lines, mapped, shared_library

BUILD = pathlib.Path(os.environ.get("SHARDMARK_BUILD", SOURCE / "build"))
A, B = (f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "ab")


def libraries(*names):
    """The loader's folders with stand-ins: cuda, nvml, nvml_old, nvml_refusing."""
    folders = [BUILD / "stand_ins" / f"stand_in_{name}" for name in names]
    if not all(folder.is_dir() for folder in folders):
        pytest.skip("the stand-ins are not built (target torch_unit_tests)")
    return {"LD_LIBRARY_PATH": ":".join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}


def test_devices_are_described(program):
    found = lines(doctor(program, env=libraries("cuda", "nvml")))
    devices = found["devices"]["found"]
    assert "2 x Stand-in A (80.00 GiB, compute capability 9.0) and Stand-in B (40.00 GiB, compute capability 8.0)" in devices
    assert f"0 = {A} at 00ff:3b:00.0, 1 = {B} at 00ff:5e:00.0" in devices
    assert found["peer access"]["result"] == "pass" and found["nvml"] == {
        "check": "nvml", "result": "pass", "found": "of NVIDIA driver 580.82.07", "remedy": ""}


def test_ranks_outnumber_devices(program):
    line = lines(doctor(program, ranks=3, env=libraries("cuda", "nvml")))["devices"]
    assert line["result"] in ("warn", "fail") and "2 devices for 3 ranks" in line["found"] and "one rank a device" in line["remedy"]


@pytest.mark.parametrize("mode, check, found, remedy", [
    ("apart", "peer access", "no direct access between devices 0 and 1", "nvidia-smi topo"),
    ("broken", "cuda driver", "cuInit returned error 802", "libcuda.so.1"),
    ("silent", "cuda driver", "device 1 does not answer", "nvidia-smi"),
    ("none", "devices", "a driver, but no device", "--gpus-per-task=1"),
    ("old", "cuda driver", "supports CUDA 12.4, the runtime is 13", "580 (CUDA 13) or newer"),
])
def test_drivers_in_trouble(program, mode, check, found, remedy):
    line = lines(doctor(program, env={**libraries("cuda", "nvml"), "SM_STAND_IN_CUDA": mode}))[check]
    if mode == "old" and line["result"] == "pass":
        pytest.skip("this build loads no CUDA runtime of version 13")
    assert line["result"] in ("warn", "fail") and found in line["found"] and remedy in line["remedy"]


def test_an_nvml_that_refuses(program):
    line = lines(doctor(program, env=libraries("cuda", "nvml_refusing")))["nvml"]
    assert line["result"] == "warn" and "returned 9 (Driver Not Loaded)" in line["found"] and line["remedy"]


@pytest.fixture
def nccl():
    """The path of the NCCL that the program loads."""
    try:
        return mapped("libnccl.so")
    except StopIteration:
        pytest.skip("this build has no NCCL")


OTHER_NCCL = 'extern "C" int ncclGetVersion(int* version) { *version = 21803; return 0; }\n'


def test_another_nccl_first_in_the_loaders_path(program, tmp_path, nccl):
    other = shared_library(tmp_path / "module" / "libnccl.so.2", OTHER_NCCL, "-Wl,-soname,libnccl.so.2")
    done = doctor(program, env={"LD_LIBRARY_PATH": str(other.parent)})
    found = lines(done)
    line = found["nccl"]
    assert done.returncode == 5 and line["result"] == "fail"
    assert "loaded is 2.18.3" in line["found"] and f"library {other}" in line["found"] and "/nccl.h" in line["found"]
    assert re.search(r"compiled against \d+\.\d+\.\d+", line["found"]) and "LD_LIBRARY_PATH" in line["remedy"]
    assert found["duplicate libraries"]["result"] == "pass"  # one, but the wrong one


def test_two_nccls(program, tmp_path, nccl):
    other = shared_library(tmp_path / "wheel" / "libnccl.so.2.18", OTHER_NCCL)
    done = doctor(program, env={"LD_PRELOAD": str(other)})
    found = lines(done)
    assert done.returncode == 5 and found["nccl"]["result"] == "fail" and str(other) in found["nccl"]["found"]
    line = found["duplicate libraries"]
    assert line["result"] == "fail" and "libnccl twice" in line["found"] and str(nccl.resolve()) in line["found"]


def test_the_program_loads_one_nccl_of_its_header(program, nccl):
    listing = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r"^\s*libnccl\S* =>", listing, re.MULTILINE)) == 1
    version = ctypes.c_int()
    assert ctypes.CDLL(str(nccl)).ncclGetVersion(ctypes.byref(version)) == 0
    # What was compiled in is what is loaded, and both are what the build says it found.
    folder = re.search(r"^SM_NCCL_INCLUDE:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE).group(1)
    header = pathlib.Path(folder, "nccl.h").read_text()
    assert re.search(rf"^#define NCCL_VERSION_CODE {version.value}$", header, re.MULTILINE)
    line = lines(doctor(program))["nccl"]
    text = ".".join(re.search(rf"^#define NCCL_{part} (\d+)$", header, re.MULTILINE).group(1) for part in ("MAJOR", "MINOR", "PATCH"))
    assert line["result"] == "pass" and line["found"].startswith(f"{text}: header and library agree; not tried")
