"""Faults inside sharded techniques: bounded time, the right exit code, and unit, rank and operation in the message."""

import os
import pathlib
import re

import pytest
from conftest import BINARY, SOURCE, attribute, run_job

PROGRAM = pathlib.Path(os.environ.get("SHARDMARK_BUILD", SOURCE / "build")) / "engine_fault"
# Launch and MPI_Init on shared cores, a few steps and two seconds of grace before MPI_Abort: half of the program's deadline of
# 40 s, which the others would wait for if nobody told them.
IN_TIME_S = 20
# A million steps: no machine ends them before the fault, the signal or the second job comes.
LONG = ("--set", "measure.steps=50", "--set", "measure.blocks=20000", "--set", "comm.deadline_s=3")


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


@pytest.mark.parametrize("technique, what", [("zero1", "bucket that starts with net.6"), ("zero3", "unit net.")])
@pytest.mark.parametrize("dead", [0, 2])
def test_a_rank_dead_inside_a_reduce_scatter(tmp_path, technique, what, dead):
    """Open MPI's mpirun notices the death long before any deadline and ends the job: it names the dead rank and its signal, and
    returns 137. It sends the others SIGTERM a second before SIGKILL: they wait for the dead rank, so they look for signals, and
    rank 0 or 1 says in what it waits, which nobody else knows. Which of two it is turns on how far it was."""
    code, errors, seconds = train(tmp_path, technique, f"{dead}:comm:30:kill")
    assert code == 137 and seconds < 30, errors
    assert f"process rank {dead} " in errors and "signal 9" in errors, errors
    operation = "reduce_scatter of the gradients of" if technique == "zero1" else "(reduce_scatter of the gradients|all_gather) of"
    assert re.search(rf"\[rank [01] on \S+\] {operation} (the )?{what}.*: stopped by signal 15 while waiting in \w+ number \d+", errors), errors
    assert not (tmp_path / "x.h5").exists() and attribute(tmp_path / "x.h5.partial", "status") == "interrupted"


@pytest.mark.parametrize("technique", ["zero1", "zero2", "zero3", "fsdp"])
def test_nan_in_one_ranks_gradient(tmp_path, technique):
    code, errors, seconds = train(tmp_path, technique, "1:backward:30:nan")
    assert code == 8 and seconds < 30
    assert "step 30" in errors and "on rank 1" in errors and "(unit net." in errors


def test_a_flipped_bit_in_a_tensor_that_persists_is_named(tmp_path):
    # Below 100 elements are the three biases and the last matrix: they stay whole. On each of 3 ranks rest before them thirds of
    # 640 and 4096 elements, each group padded to a multiple of 16 x 3: 224 + 1376.
    code, errors, _ = run_job(tmp_path, 3, BINARY, "run", "mlp", "--technique", "zero3", "-o", "x.h5", "--set", "technique.persistence_threshold=100",
                              "--set", "numerics.replica_check_every=10", fault="2:optimizer:39:bitflip:1600")
    assert code == 8 and "rank(s) 2 " in errors and "after step 39" in errors
    assert attribute(tmp_path / "x.h5", "status") == "failed"


def test_ranks_that_ask_for_different_collectives(tmp_path):
    code, errors, seconds = train(tmp_path, "fsdp", "1:comm:30:mismatch:count")
    assert code == 9 and seconds < 30 and "reduce_scatter" in errors


def check_unused(errors, ranks, technique):
    operation = "all_reduce" if technique == "ddp" else "reduce_scatter"
    where = "unit block2" if technique in ("zero3", "fsdp") else "the bucket that starts with block2.weight"
    message = (rf"rank {ranks - 1}: {operation} of the gradients of {where} cannot start: no gradient reached 1 trainable "
               r"parameter\(s\)\. .*technique\.unused_parameters = \"allow\": block2\.weight \(unit block2\)")
    assert re.search(rf"error: \[rank {ranks - 1} on \S+\] {message}", errors), errors
    # The words of the others: they heard of it, and were not merely killed by the launcher.
    assert re.search(rf"error: \[rank 0 on \S+\] rank {ranks - 1} on \S+ failed: {message}", errors), errors


@pytest.mark.parametrize("order", ["fast", "ordered"])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("technique", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
def test_a_parameter_unused_on_one_rank(tmp_path, technique, ranks, order):
    code, errors, seconds = run_job(tmp_path, ranks, PROGRAM, "unused", technique, order)
    assert code == 1 and seconds < IN_TIME_S, errors
    check_unused(errors, ranks, technique)


@pytest.mark.parametrize("order", ["fast", "ordered"])
@pytest.mark.parametrize("technique", ["ddp", "zero1", "zero2", "fsdp"])
def test_a_parameter_unused_on_one_rank_while_a_sum_is_in_flight(tmp_path, technique, order):
    """The sum's buffers are freed while the others' parts are on their way: nothing may write there (a crash is no exit code 1)."""
    code, errors, seconds = run_job(tmp_path, 3, PROGRAM, "unused-in-flight", technique, order)
    assert code == 1 and seconds < IN_TIME_S, errors
    check_unused(errors, 3, technique)


@pytest.mark.parametrize("technique", ["ddp", "zero3"])
def test_the_program_trains_where_nothing_is_planted(tmp_path, technique):
    code, errors, _ = run_job(tmp_path, 3, PROGRAM, "none", technique, "fast")
    assert code == 0 and "rank" not in errors, errors
