"""Faults inside sharded techniques: bounded time, the right exit code, and unit, rank and operation in the message."""

import pytest
from conftest import BINARY, attribute, run_job

LONG = ("--set", "measure.steps=50", "--set", "measure.blocks=400", "--set", "comm.deadline_s=3")


def train(folder, technique, fault):
    return run_job(folder, 3, BINARY, "run", "mlp", "--technique", technique, "-o", "x.h5", *LONG, fault=fault)


@pytest.mark.parametrize("technique", ["zero3", "fsdp"])
def test_no_memory_for_a_gather(tmp_path, technique):
    code, errors, seconds = train(tmp_path, technique, "1:forward:20:enospc")
    assert code == 6 and seconds < 30
    assert "rank 1" in errors and "all_gather of unit net." in errors and "bytes" in errors
    assert attribute(tmp_path / "x.h5", "status") == "failed"


@pytest.mark.parametrize("technique, what", [("zero2", "bucket that starts with net.6"), ("zero3", "unit net."), ("fsdp", "unit net.")])
def test_a_rank_stuck_inside_a_reduce_scatter(tmp_path, technique, what):
    code, errors, seconds = train(tmp_path, technique, "2:comm:30:stop")
    assert code == 7 and seconds < 30
    # What the others wait in when they notice: the reduction itself, or the gather of the unit that backward meets next.
    operations = ("reduce_scatter",) if technique == "zero2" else ("reduce_scatter of the gradients of ", "all_gather of ")
    assert "rank 2" in errors and any(operation in errors for operation in operations) and what in errors


@pytest.mark.parametrize("technique", ["zero1", "zero3"])
def test_a_rank_dead_inside_a_reduce_scatter(tmp_path, technique):
    code, _, seconds = train(tmp_path, technique, "2:comm:30:kill")
    assert code != 0 and seconds < 30
    assert not (tmp_path / "x.h5").exists() and attribute(tmp_path / "x.h5.partial", "status") == "interrupted"


@pytest.mark.parametrize("technique", ["zero1", "zero2", "zero3", "fsdp"])
def test_nan_in_one_ranks_gradient(tmp_path, technique):
    code, errors, seconds = train(tmp_path, technique, "1:backward:30:nan")
    assert code == 8 and seconds < 30
    assert "step 30" in errors and "on rank 1" in errors and "(unit net." in errors


def test_ranks_that_ask_for_different_collectives(tmp_path):
    code, errors, seconds = train(tmp_path, "fsdp", "1:comm:30:mismatch:count")
    assert code == 9 and seconds < 30 and "reduce_scatter" in errors
