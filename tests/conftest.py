"""Helpers of the tests that run the real program from outside."""

import os
import pathlib
import subprocess

import h5py
import numpy
import pandas
import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[1]))
BINARY = os.environ.get("SHARDMARK_BINARY", str(SOURCE / "build" / "shardmark"))
LAUNCH = str(SOURCE / "scripts" / "launch.sh")


class Program:
    """Runs the program in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder

    def alone(self, *arguments, env=None):
        return self._run([BINARY, *map(str, arguments)], env)

    def ranks(self, number, *arguments, env=None):
        return self._run([LAUNCH, str(number), BINARY, *map(str, arguments)], env)

    def train(self, number, case, name, *sets, technique="ddp", env=None):
        """A run that must succeed; returns its record's path."""
        path = self.folder / f"{name}.h5"
        options = [option for value in sets for option in ("--set", value)]
        done = self.ranks(number, "run", case, "--technique", technique, "-o", path, *options, env=env)
        assert done.returncode == 0, done.stderr
        return path

    def _run(self, command, env):
        return subprocess.run(command, cwd=self.folder, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=240)


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path)


def table(path, name):
    with h5py.File(path) as file:
        return pandas.DataFrame(file[name][:])


def losses(path):
    """Losses of rank 0 by step, and proof that all ranks recorded the same bits."""
    steps = table(path, "steps")
    by_step = steps.groupby("step").loss
    assert (by_step.nunique() == 1).all()
    return by_step.first().to_numpy()


def attribute(path, name):
    with h5py.File(path) as file:
        value = file.attrs[name]
    return value.decode() if isinstance(value, bytes) else value


def write_vectors(path, features, targets):
    with h5py.File(path, "w") as file:
        file.attrs["kind"] = "vectors"
        file.attrs["schema_version"] = 1
        file.attrs["source"] = "made by a test"
        file.attrs["license"] = "none"
        file.attrs["sha256"] = ""
        file["features"] = numpy.asarray(features, dtype=numpy.float32)
        file["targets"] = targets
