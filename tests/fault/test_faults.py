"""Planted faults: the job ends in time, with the right code, a message, and a state on disk that can be read."""

import os
import pathlib
import resource
import signal
import subprocess
import time

import h5py
import pytest
from conftest import BINARY, LAUNCH, attribute, run_job, table

# A million steps: no machine ends them before the fault, the signal or the second job comes.
LONG = ("--set", "measure.steps=50", "--set", "measure.blocks=20000")


def run_in_session(folder, ranks, *arguments, fault=None):
    return run_job(folder, ranks, BINARY, *arguments, fault=fault)


def wait_for(path):
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_killed_rank_ends_the_job(tmp_path, rank):
    code, _, seconds = run_in_session(tmp_path, 2, "run", "mlp", "-o", "x.h5", *LONG, fault=f"{rank}:backward:230:kill")
    assert code != 0 and seconds < 30
    assert not (tmp_path / "x.h5").exists()
    partial = tmp_path / "x.h5.partial"
    assert attribute(partial, "status") == "interrupted"
    steps = table(partial, "steps")
    assert len(steps) == 2 * 200 and list(steps.step.unique()) == list(range(200)), "warm-up and three blocks were flushed"
    shown = subprocess.run([BINARY, "show", tmp_path / "x.h5"], capture_output=True, text=True)
    assert shown.returncode == 0 and "interrupted" in shown.stdout


def test_stopped_rank_is_named(tmp_path):
    code, errors, seconds = run_in_session(tmp_path, 3, "run", "mlp", "-o", "x.h5", *LONG, "--set", "comm.deadline_s=2",
                                           fault="1:forward:60:stop")
    assert code == 7 and seconds < 30 and "rank 1" in errors


def test_exception_on_one_rank(tmp_path):
    code, errors, seconds = run_in_session(tmp_path, 3, "run", "mlp", "-o", "x.h5", *LONG, fault="2:forward:60:throw")
    assert code == 1 and seconds < 30 and "fault planted" in errors
    assert attribute(tmp_path / "x.h5", "status") == "failed"


def test_nan_fails_the_run_or_skips_the_step(tmp_path):
    code, errors, _ = run_in_session(tmp_path, 3, "run", "mlp", "-o", "x.h5", fault="1:backward:30:nan")
    assert code == 8 and "step 30" in errors
    assert attribute(tmp_path / "x.h5", "status") == "failed"
    code, _, _ = run_in_session(tmp_path, 3, "run", "mlp", "-o", "y.h5", "--set", "numerics.on_nonfinite=skip", fault="1:backward:30:nan")
    summary = table(tmp_path / "y.h5", "summary").iloc[0]
    assert code == 0 and summary.steps_skipped == 1 and summary.steps_applied == 2049


@pytest.mark.parametrize("technique, sets", [("zero1", ()), ("zero2", ("--set", "technique.accumulation=no_sync")),
                                             ("zero3", ("--set", "technique.persistence_threshold=100")), ("fsdp", ())])
def test_a_skipped_step_sends_no_updated_parts(tmp_path, technique, sets):
    code, errors, _ = run_in_session(tmp_path, 2, "run", "mlp", "--technique", technique, "-o", "x.h5", "--set",
                                     "numerics.on_nonfinite=skip", "--set", "measure.steps=5", "--set", "measure.blocks=1", *sets,
                                     fault="1:backward:4:nan")
    assert code == 0, errors
    assert table(tmp_path / "x.h5", "summary").iloc[0].steps_skipped == 1


def test_a_device_is_no_output(tmp_path):
    code, errors, _ = run_in_session(tmp_path, 1, "run", "mlp", "-o", "/dev/null", "--set", "output.overwrite=true")
    assert code == 2 and "/dev/null" in errors and pathlib.Path("/dev/null").is_char_device()


def test_flipped_bit_is_named(tmp_path):
    code, errors, _ = run_in_session(tmp_path, 3, "run", "mlp", "-o", "x.h5", "--set", "numerics.replica_check_every=10",
                                     fault="2:optimizer:35:bitflip")
    assert code == 8 and "rank(s) 2" in errors


def test_full_disk_keeps_the_old_record(tmp_path):
    code, _, _ = run_in_session(tmp_path, 2, "run", "mlp", "-o", "x.h5")
    before = (tmp_path / "x.h5").read_bytes()
    code, errors, seconds = run_in_session(tmp_path, 2, "run", "mlp", "-o", "x.h5", "--set", "output.overwrite=true",
                                           fault="0:record:4:enospc")
    assert code == 10 and seconds < 30 and "No space left" in errors
    assert (tmp_path / "x.h5").read_bytes() == before


def test_small_file_system(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path], capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        code, errors, seconds = run_in_session("/", 2, "run", "mlp", "-o", tmp_path / "x.h5")
        assert code == 10 and seconds < 30
        reason = "writing the record's beginning failed: No space left on device: 1048576 bytes must be free"
        assert f"{tmp_path}/x.h5.partial: {reason}" in errors
        assert not (tmp_path / "x.h5").exists()
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_file_size_limit_is_an_input_output_error(tmp_path):
    """`ulimit -f` would end the writer by a signal. Set when the record is open, so that MPI's own files do not meet it."""
    limit = 256 * 1024
    job = subprocess.Popen([BINARY, "run", "mlp", "-o", "x.h5", *LONG], cwd=tmp_path, text=True, stderr=subprocess.PIPE)
    try:
        wait_for(tmp_path / "x.h5.partial")
        resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (limit, limit))
        _, errors = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == 10 and "x.h5.partial" in errors and "File too large" in errors, errors
    assert not (tmp_path / "x.h5").exists()


def test_second_run_with_the_same_output_is_refused(tmp_path):
    partial = tmp_path / "x.h5.partial"
    first = subprocess.Popen([LAUNCH, "2", BINARY, "run", "mlp", "-o", "x.h5", *LONG], cwd=tmp_path, text=True, stderr=subprocess.PIPE)
    try:
        wait_for(partial)
        code, errors, seconds = run_in_session(tmp_path, 2, "run", "mlp", "-o", "x.h5", "--set", "output.overwrite=true")
        assert code == 2 and seconds < 30 and "x.h5.partial" in errors and "in use" in errors and "output.path" in errors
        assert errors.count("in use") == 1, "printed once, not by every rank"
        assert {entry.name for entry in tmp_path.iterdir()} == {"x.h5.partial"}
        first.send_signal(signal.SIGUSR1)
        _, errors = first.communicate(timeout=30)
    finally:
        first.kill()
    assert first.returncode == 1 and attribute(tmp_path / "x.h5", "status") == "stopped"
    assert {entry.name for entry in tmp_path.iterdir()} == {"x.h5"}


def test_stop_request_ends_at_a_step_edge(tmp_path):
    job = subprocess.Popen([LAUNCH, "2", BINARY, "run", "mlp", "-o", "x.h5", *LONG], cwd=tmp_path, text=True, stderr=subprocess.PIPE)
    wait_for(tmp_path / "x.h5.partial")
    job.send_signal(signal.SIGUSR1)
    _, errors = job.communicate(timeout=30)
    assert job.returncode == 1 and "stopped on request" in errors
    assert attribute(tmp_path / "x.h5", "status") == "stopped"
    with h5py.File(tmp_path / "x.h5") as file:
        assert len(file["steps"]) > 0 and len(file["steps"]) % 2 == 0


def test_stop_request_to_one_rank_ends_all_at_the_same_step(tmp_path):
    job = subprocess.Popen([LAUNCH, "2", BINARY, "run", "mlp", "-o", "x.h5", *LONG], cwd=tmp_path, text=True, stderr=subprocess.PIPE)
    try:
        wait_for(tmp_path / "x.h5.partial")
        processes = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        mine = [int(process) for process in processes
                if b"OMPI_COMM_WORLD_RANK=1\0" in pathlib.Path(f"/proc/{process}/environ").read_bytes()]
        assert len(mine) == 1
        os.kill(mine[0], signal.SIGUSR1)
        _, errors = job.communicate(timeout=30)
    finally:
        job.kill()
    assert job.returncode == 1 and "stopped on request" in errors
    assert attribute(tmp_path / "x.h5", "status") == "stopped"
    with h5py.File(tmp_path / "x.h5") as file:
        assert set(file["steps"]["step"][file["steps"]["rank"] == 0]) == set(file["steps"]["step"][file["steps"]["rank"] == 1])


@pytest.mark.parametrize("what", ["op", "count", "dtype", "skip"])
def test_mismatched_collective_is_named(tmp_path, what):
    code, errors, seconds = run_in_session(tmp_path, 3, "run", "mlp", "-o", "x.h5", *LONG, "--set", "comm.deadline_s=10",
                                           fault=f"1:comm:60:mismatch:{what}")
    assert code == 9 and seconds < 30 and "all_reduce" in errors
