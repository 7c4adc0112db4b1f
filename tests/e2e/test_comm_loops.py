"""The arithmetic of tests/micro/comm_loops.py on samples that are made up: no time is measured here."""

import importlib.util
import subprocess
import sys

import pytest
from conftest import SOURCE

SCRIPT = SOURCE / "tests" / "micro" / "comm_loops.py"
HEADER = "operation,message_bytes,round,comm_s,plain_s,mpi_s\n"


@pytest.fixture(scope="module")
def loops():
    spec = importlib.util.spec_from_file_location("comm_loops", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def samples(operation, message_bytes, comm, plain, mpi):
    return [{"operation": operation, "message_bytes": str(message_bytes), "comm_s": str(c), "plain_s": str(p), "mpi_s": str(m)}
            for c, p, m in zip(comm, plain, mpi, strict=True)]


def one(loops, *arguments):
    (line,) = loops.compare(samples(*arguments))
    return line


def test_medians_of_each_loop_then_difference_and_ratio(loops):
    # One round in which all of the machine stood still changes nothing.
    line = one(loops, "send_receive", 8, [1.2e-6, 9e-3, 1.0e-6], [1.0e-6, 8e-3, 0.9e-6], [1.2e-6, 7e-3, 1.1e-6])
    assert line["comm_us"] == pytest.approx(1.2) and line["added_us"] == pytest.approx(0.2)
    assert line["mpi_us"] == pytest.approx(1.2) and line["comm_over_mpi"] == pytest.approx(1.0)
    assert line["same_messages"] and line["broken"] == []


def test_more_than_0_3_us_at_8_bytes_breaks_the_bound(loops):
    assert one(loops, "all_to_all", 8, [1.29e-6], [1.0e-6], [1e-6])["broken"] == []
    assert one(loops, "all_to_all", 8, [1.31e-6], [1.0e-6], [1e-6])["broken"] == ["comm adds more than 0.3 us"]
    assert one(loops, "all_to_all", 512, [1.31e-6], [1.0e-6], [1e-6])["broken"] == [], "only of the smallest"


@pytest.mark.parametrize("operation, message_bytes, bound", [
    ("send_receive", 512 * 1024, True), ("send_receive", 1 << 20, False), ("all_reduce_library", 1 << 20, True),
    ("all_reduce", 8, False), ("broadcast", 4096, False)])
def test_the_same_messages_by_hand_are_within_5_percent_either_way(loops, operation, message_bytes, bound):
    for comm, off in ((1.04, False), (1.06, True), (0.96, False), (0.94, True)):
        line = one(loops, operation, message_bytes, [comm], [comm], [1.0])
        assert bool(line["broken"]) == (bound and off), line
    # Below 6 us the fixed 0.3 us count instead.
    for comm, off in ((1.29e-6, False), (1.31e-6, True)):
        assert bool(one(loops, operation, message_bytes, [comm], [comm], [1e-6])["broken"]) == (bound and off)


def test_operations_and_sizes_are_kept_apart(loops):
    lines = loops.compare(samples("all_gather", 8, [1], [1], [2]) + samples("all_gather", 16, [3], [3], [2]))
    assert [(line["message_bytes"], line["comm_over_mpi"]) for line in lines] == [(8, 0.5), (16, 1.5)]


def run(path):
    return subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True)


def test_the_exit_code_is_the_verdict(tmp_path):
    path = tmp_path / "samples.csv"
    path.write_text(HEADER + "barrier,8,0,1.0e-6,0.9e-6,1.0e-6\n")
    good = run(path)
    assert good.returncode == 0 and "barrier" in good.stdout
    path.write_text(HEADER + "barrier,8,0,1.5e-6,0.9e-6,1.0e-6\n")
    assert run(path).returncode == 1
    path.write_text(HEADER)
    assert run(path).returncode == 1 and "there is no sample" in run(path).stderr
