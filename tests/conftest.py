"""Helpers of the tests that run the real program from outside."""

import json
import os
import pathlib
import signal
import subprocess
import time

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


def write_ratings(path, users, items, labels, **attributes):
    with h5py.File(path, "w") as file:
        about = {"kind": "ratings", "schema_version": 1, "num_users": int(max(users)) + 1, "num_items": len(set(map(int, items)))}
        for name, value in {**about, **attributes}.items():
            file.attrs[name] = value
        for name, values, kind in (("user", users, numpy.int64), ("item", items, numpy.int64), ("label", labels, numpy.float32)):
            file[name] = numpy.asarray(values, dtype=kind)


def read_safetensors(path):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    types = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = numpy.frombuffer(raw[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write_tokens(path, input_ids, labels, **others):
    with h5py.File(path, "w") as file:
        file.attrs["kind"] = "tokens"
        file.attrs["schema_version"] = 1
        for name, values in {"input_ids": input_ids, "labels": labels, **others}.items():
            file[name] = numpy.asarray(values, dtype=numpy.int32)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(values.astype("<f4", copy=False).tobytes())


def run_job(folder, ranks, *command, fault=None):
    """Starts a job in a session of its own; returns code, error output, seconds; asserts that nothing is left of it."""
    environment = {**os.environ, **({"SHARDMARK_FAULT": fault} if fault else {})}
    start = time.monotonic()
    job = subprocess.Popen([LAUNCH, str(ranks), *map(str, command)], cwd=folder, env=environment, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, errors = job.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        for pid in leftovers(job.pid):
            os.kill(int(pid), signal.SIGKILL)
        pytest.fail("the job did not end")
    seconds = time.monotonic() - start
    deadline = time.monotonic() + 5
    while leftovers(job.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not leftovers(job.pid)
    return job.returncode, errors, seconds


def leftovers(session):
    """Processes of the session that are not zombies."""
    listing = subprocess.run(["ps", "-eo", "sid,stat,pid"], capture_output=True, text=True).stdout.splitlines()[1:]
    rows = [line.split() for line in listing]
    return [pid for sid, state, pid in rows if int(sid) == session and not state.startswith("Z")]
