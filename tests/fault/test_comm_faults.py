"""One rank misbehaves between collectives: the others end in bounded time and say in which operation and because of whom."""

import os
import pathlib
import re

import pytest
from conftest import SOURCE, run_job

PROGRAM = pathlib.Path(os.environ.get("SHARDMARK_BUILD", SOURCE / "build")) / "comm_fault"
DEADLINE_S = 2
# Launch and MPI_Init on shared cores, two seconds of collecting reports and two of grace before MPI_Abort: far above what
# ends in time, far below the 60 s for which the job of a test may run.
OVERHEAD_S = 20


def misbehave(folder, ranks, scenario):
    return run_job(folder, ranks, PROGRAM, scenario, DEADLINE_S)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("scenario", ["skip", "stop"])
def test_silent_rank_is_named_with_the_operation(tmp_path, scenario, ranks):
    code, errors, seconds = misbehave(tmp_path, ranks, scenario)
    assert code == 7, errors
    assert DEADLINE_S <= seconds < DEADLINE_S + OVERHEAD_S
    assert f"no report from rank {ranks - 1} on " in errors and "all_reduce" in errors, errors
    for innocent in range(ranks - 1):
        assert f"no report from rank {innocent}" not in errors


@pytest.mark.parametrize("ranks", [2, 3])
def test_killed_rank_ends_the_job(tmp_path, ranks):
    code, errors, seconds = misbehave(tmp_path, ranks, "die")
    # mpirun notices the death and kills the others (137), or they reach their deadline first (7).
    assert code in (7, 137), errors
    assert seconds < DEADLINE_S + OVERHEAD_S
    assert f"rank {ranks - 1}" in errors, errors


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_wait_for_different_things_are_told_apart(tmp_path, ranks):
    code, errors, seconds = misbehave(tmp_path, ranks, "ahead")
    assert code == 7, errors
    assert DEADLINE_S <= seconds < DEADLINE_S + OVERHEAD_S
    assert "not for the same" in errors and "all_reduce" in errors and "barrier" in errors, errors
    assert f"rank {ranks - 1}" in errors


@pytest.mark.parametrize("scenario", ["throw", "throw-in-flight"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_exception_reaches_the_others_before_any_deadline(tmp_path, scenario, ranks):
    code, errors, seconds = run_job(tmp_path, ranks, PROGRAM, scenario, 40)
    assert code == 1, errors
    assert seconds < OVERHEAD_S, "the others waited for their deadline"
    # The words of the others: they heard of it, and were not merely killed by the launcher.
    assert re.search(rf"rank {ranks - 1} on \S+ failed: the planted failure", errors), errors


@pytest.mark.parametrize("ranks", [2, 3])
def test_mismatch_names_both_sides(tmp_path, ranks):
    code, errors, seconds = run_job(tmp_path, ranks, PROGRAM, "mismatch", 40)
    assert code == 9, errors
    assert seconds < OVERHEAD_S
    assert "all_reduce" in errors and "tag 2" in errors and "tag 99" in errors and f"rank {ranks - 1}" in errors, errors


@pytest.mark.parametrize("scenario", ["late", "none"])
def test_a_rank_within_its_deadline_fails_nothing(tmp_path, scenario):
    code, errors, _ = misbehave(tmp_path, 3, scenario)
    assert code == 0, errors
    assert "rank" not in errors


def test_one_rank_has_nobody_to_wait_for(tmp_path):
    code, errors, _ = misbehave(tmp_path, 1, "none")
    assert code == 0, errors


def test_unknown_scenario_is_refused(tmp_path):
    code, errors, _ = misbehave(tmp_path, 2, "nonsense")
    assert code == 2, errors
    assert "throw-in-flight" in errors
