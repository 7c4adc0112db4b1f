"""Calls of `doctor` and what its lines say, shared by the tests of it."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import BINARY, LAUNCH


def lines(done):
    """The lines by check; the table alone is on standard output."""
    assert done.returncode in (0, 5), done.stderr
    document = json.loads(done.stdout)
    results = [row["result"] for row in document["rows"]]
    worst = next(word for word in ("fail", "warn", "pass") if word in results)
    assert document["verdict"] == worst
    assert (done.returncode == 5) == (worst == "fail")
    assert all(row["remedy"] for row in document["rows"] if row["result"] in ("warn", "fail"))
    return {row["check"]: row for row in document["rows"]}


def doctor(program, *arguments, env=None, ranks=None, through=(), form="json"):
    """Runs alone without launcher variables, or on `ranks` ranks, each of them started through a command."""
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(("OMPI_", "PMI", "SLURM_", "HDF5_", "OMP_", "LD_PRELOAD"))}
    launcher = [LAUNCH, str(ranks)] if ranks else []
    return subprocess.run([*launcher, *through, BINARY, "doctor", "--format", form, *map(str, arguments)], cwd=program.folder,
                          env={**inherited, "OMP_NUM_THREADS": "1", **(env or {})}, capture_output=True, text=True, timeout=240)


def mapped(name):
    """The file of a shared library that the program loads."""
    listing = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
    return pathlib.Path(next(line.split("=>")[1].split()[0] for line in listing.splitlines() if line.strip().startswith(name)))


def shared_library(path, source, *options):
    """Compiles a library from C++."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.with_suffix(".cpp")
    text.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", path, text], check=True)
    return path


def preload(tmp_path, source):
    """A library that replaces functions of the C library."""
    return {"LD_PRELOAD": str(shared_library(tmp_path / "shim.so", source))}
