"""NCCL misbehaves on one rank: every rank ends in bounded time, with the right code and words that name call, rank and remedy."""

import os
import pathlib

import pytest
from conftest import SOURCE, run_job

PROGRAM = pathlib.Path(os.environ.get("SHARDMARK_BUILD", SOURCE / "build")) / "nccl_fault"
DEADLINE_S = 2
# Launch and MPI_Init on shared cores, two seconds of collecting reports and two of grace before MPI_Abort; ten for a call of CUDA
# to come back.
OVERHEAD_S = 30


@pytest.fixture(autouse=True)
def no_shared_memory_left():
    """A job that dies before all its ranks have come leaves what they share."""
    yield
    for file in pathlib.Path("/dev/shm").glob("nccl-double-*"):
        file.unlink()


pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="built without CUDA: no NCCL communicator")


def misbehave(folder, ranks, fault, deadline_s=DEADLINE_S, init_deadline_s=DEADLINE_S):
    code, errors, seconds = run_job(folder, ranks, PROGRAM, fault, deadline_s, init_deadline_s)
    assert seconds < DEADLINE_S + OVERHEAD_S, "in bounded time"
    return code, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("fault", ["none", "init_late"])
def test_what_is_no_fault_fails_nothing(tmp_path, fault, ranks):
    code, errors = misbehave(tmp_path, ranks, fault)
    assert code == 0, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_initialisation_that_never_ends(tmp_path, ranks):
    # The deadline of steps is longer than the test may take: it is the other one that counts.
    code, errors = misbehave(tmp_path, ranks, "init_hangs", deadline_s=600)
    assert code == 7 and "nccl_init" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_an_asynchronous_error_names_call_rank_and_reason(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "async_error", deadline_s=40)
    assert f"rank {ranks - 1} of world" in errors and "ncclSystemError" in errors and "NCCL_DEBUG=WARN" in errors, errors
    # The others hear of it from NCCL or by a notice of the rank itself, whichever is first.
    assert code == 1 or (code == 7 and "ncclRemoteError" in errors), errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_collective_that_never_ends(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "silent")
    assert code == 7 and "all_reduce" in errors and "gradient" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_collective_that_holds_the_host_in_a_call_of_cuda(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "held")
    assert code == 7 and "all_reduce (gradient, 400000 bytes, number 3)" in errors and "comm.deadline_s = 2" in errors, errors


def test_a_deadline_that_changed_holds_for_what_holds_the_host(tmp_path):
    # The one it was made with is longer than the test may take.
    code, errors = misbehave(tmp_path, 1, "held_sooner", deadline_s=600)
    assert code == 7 and "number 3" in errors and "comm.deadline_s = 2" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_error_while_a_call_of_cuda_holds_the_host(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "held_error", deadline_s=600)
    assert "ncclSystemError" in errors or (code == 7 and "ncclRemoteError" in errors), errors
    assert code in (1, 7) and (ranks > 1 or code == 1), errors


def test_a_host_that_came_back_may_take_its_time_to_end(tmp_path):
    code, errors = misbehave(tmp_path, 1, "held_slow_end")
    assert code == 7 and "number 3" in errors and "does not come back" not in errors, errors


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_call_of_cuda_that_never_returns(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "stuck")
    assert code == 7 and "does not come back" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_call_of_cuda_inside_a_communicator_that_never_returns(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "stuck_inside")
    assert code == 7 and "did not come back for" in errors and "comm.deadline_s = 2" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_host_that_runs_ahead_finds_a_collective_that_never_ends(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "behind")
    assert code == 7 and "all_reduce" in errors and "gradient" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_host_that_runs_ahead_finds_an_error(tmp_path, ranks):
    # Later than the test may take: it is not the deadline that ends it.
    code, errors = misbehave(tmp_path, ranks, "behind_error", deadline_s=600)
    assert "ncclSystemError" in errors or (code == 7 and "ncclRemoteError" in errors), errors
    assert code in (1, 7) and (ranks > 1 or code == 1), errors


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_rank_that_leaves(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "leave")
    # mpirun notices that a process ended without MPI_Finalize and returns its code, or the others reach their deadline first.
    assert code in (3, 7), errors
    assert f"rank {ranks - 1}" in errors or f"Process name: [[" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_another_library_than_the_header_is_refused(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "other_version")
    assert code == 5 and "compiled against NCCL" in errors and "loaded is" in errors, errors


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_two_ranks_on_one_device_are_refused_before_nccl_starts(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "share_device")
    assert code == 5 and "GPU-1" in errors and "NCCL_MULTI_RANK_GPU_ENABLE" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_what_nccl_itself_refuses_names_the_remedy(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "device_in_use")
    assert code == 5 and "ncclInvalidUsage" in errors and "device of its own" in errors, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_rank_0_without_an_id_tells_all(tmp_path, ranks):
    code, errors = misbehave(tmp_path, ranks, "no_id")
    # Which of the ranks gets to say it before the first one ends the job is chance.
    assert code == 1 and "ncclGetUniqueId on rank 0" in errors, errors
