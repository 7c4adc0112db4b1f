"""`comm` measures every collective: right results at 1 to 4 ranks, the definitions of nccl-tests, all formats, bad input whole, planted
wrong results and slow ranks found."""

import csv
import io
import itertools
import json
import os
import signal
import subprocess
import threading
import time

import h5py
import numpy
import pytest
from conftest import BINARY, LAUNCH, attribute, leftovers, table
from doctor_calls import preload

PARTED = {"reduce_scatter", "all_gather", "all_to_all"}
BOTH_PLACES = {"reduce_scatter", "all_gather"}
REDUCING = {"all_reduce", "reduce_scatter"}
OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_receive", "barrier"]
SIZES = {"fp32": 4, "bf16": 2, "fp64": 8, "int64": 8, "uint8": 1}
FEW = ("--iterations", "3", "--warmup", "1")


def bus_factor(operation, n):
    """As NVIDIA/nccl-tests doc/PERFORMANCE.md has it."""
    share = (n - 1) / n
    return {"all_reduce": 2 * share, "broadcast": 1, "send_receive": 1}.get(operation, share)


def measure(program, ranks, *arguments, code=0, env=None):
    done = program.ranks(ranks, "comm", "--format", "json", *FEW, *arguments, env=env)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_operation_type_and_place_is_right(program, ranks):
    dtypes, reductions = list(SIZES), ["sum", "max", "min"]
    # 8 bytes, fewer than parts; 40 KiB in one piece; 640 KiB in several (a message holds 512 KiB at most).
    document, _ = measure(program, ranks, "--dtype", ",".join(dtypes), "--reduction", ",".join(reductions), "--max", "800K",
                          "--factor", "320")
    assert document["verdict"] == "all results are right, but for barriers, which have none"
    rows = document["rows"]
    expected = []
    for operation in OPERATIONS[:-1]:
        for dtype in dtypes:
            for reduction in reductions if operation in REDUCING else [""]:
                places = [0, 1] if operation in BOTH_PLACES else [1] if operation in ("all_reduce", "broadcast") else [0]
                for place in places:
                    for asked in (8, 2560, 819200):
                        unit = SIZES[dtype] * (ranks if operation in PARTED else 1)
                        size = max(unit, asked // unit * unit)
                        if not expected or expected[-1] != (operation, dtype, reduction, place, size):
                            expected.append((operation, dtype, reduction, place, size))
    expected.append(("barrier", "", "", -1, 0))
    assert [(r["operation"], r["dtype"], r["reduction"], r["in_place"], r["message_bytes"]) for r in rows] == expected
    for row in rows:
        n = row["ranks"]
        assert n == ranks and row["group"] == "world" and row["iterations"] == 3
        assert row["backend"] == ("self" if ranks == 1 else "mpi")
        assert row["sum_order"] == ("fast" if row["reduction"] == "sum" else "")
        assert 0 < row["time_min_s"] <= row["time_p50_s"] <= row["time_p99_s"]
        assert row["time_min_s"] <= row["time_mean_s"] <= row["time_p99_s"]
        if row["operation"] == "barrier":
            assert row["algbw_gb_s"] is None and row["busbw_gb_s"] is None and row["wrong"] == -1
            continue
        assert row["wrong"] == 0 and row["count"] * SIZES[row["dtype"]] == row["message_bytes"]
        # Three products and quotients of doubles: a few roundings of 2^-53.
        assert row["algbw_gb_s"] == pytest.approx(row["message_bytes"] / row["time_p50_s"] / 1e9, rel=1e-12)
        if n == 1:  # nothing is sent
            assert row["busbw_gb_s"] is None
        else:
            assert row["busbw_gb_s"] == pytest.approx(row["algbw_gb_s"] * bus_factor(row["operation"], n), rel=1e-12)


def test_ordered_sums_are_right(program):
    document, _ = measure(program, 3, "--op", "all_reduce,reduce_scatter", "--dtype", "bf16,fp64", "--order", "ordered", "--max", "2K")
    assert {row["sum_order"] for row in document["rows"]} == {"ordered"}
    assert all(row["wrong"] == 0 for row in document["rows"])


def test_sizes_go_from_min_to_max_by_factor(program):
    document, _ = measure(program, 1, "--op", "broadcast", "--min", "1K", "--max", "1M", "--factor", "2")
    assert [row["message_bytes"] for row in document["rows"]] == [1024 << i for i in range(11)]
    document, _ = measure(program, 2, "--op", "all_gather", "--max", "40", "--dtype", "fp64", "--in-place")
    # 8 bytes are one element; two ranks need two. 40 bytes are five, of which four can be parted.
    assert [(row["message_bytes"], row["count"], row["in_place"]) for row in document["rows"]] == [(16, 2, 1), (32, 4, 1)]
    done = program.ranks(2, "comm", "--op", "all_gather", "--max", "8", "--dtype", "fp64")
    assert done.returncode == 2 and "--max 8: all_gather of fp64 over 2 ranks has 16 bytes at least" in done.stderr
    done = program.alone("comm", "--op", "broadcast", "--format", "json")
    rows = json.loads(done.stdout)["rows"]
    assert rows[0]["message_bytes"] == 8 and rows[-2]["message_bytes"] == 8 * 4**10
    assert rows[-1]["message_bytes"] == 16 << 20, "the largest is measured whatever the factor"
    assert [rows[0]["iterations"], rows[-1]["iterations"]] == [200, 20]
    assert rows[-1]["backend"] == "self"


def test_groups_of_ranks(program):
    document, _ = measure(program, 2, "--op", "all_reduce,barrier", "--max", "8", "--group", "node")
    assert [(row["group"], row["ranks"], row["wrong"]) for row in document["rows"]] == [("node", 2, 0), ("node", 2, -1)]
    document, done = measure(program, 2, "--op", "all_reduce", "--max", "8", "--group", "across")
    assert [(row["group"], row["ranks"], row["busbw_gb_s"], row["wrong"]) for row in document["rows"]] == [("across", 1, None, 0)]
    assert "every group is one rank" in done.stderr


def test_formats_hold_the_columns_of_the_record(program):
    path = program.folder / "comm.h5"
    few = ("--op", "all_reduce,barrier", "--max", "32", *FEW)
    done = program.ranks(2, "comm", *few, "--format", "csv", "-o", path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    stored = table(path, "comm")
    assert list(rows[0]) == list(stored.columns) and len(stored) == len(rows) == 3
    assert [float(row["time_p50_s"]) for row in rows] == list(stored.time_p50_s)
    assert rows[2]["algbw_gb_s"] == "" and numpy.isnan(stored.algbw_gb_s[2])
    for form, start in (("table", "operation  "), ("md", "| operation |")):
        shown = program.ranks(2, "comm", *few, "--format", form)
        assert shown.returncode == 0 and shown.stdout.startswith(start) and len(shown.stdout.splitlines()) == (4 if form == "table" else 5)
        if form == "table":
            lines = shown.stdout.replace("\r", "").splitlines()
            assert len({len(line) for line in lines}) == 1 and len(lines[0]) <= 120
            assert lines[0].split()[6:8] == ["time_p50_us", "time_p99_us"] and lines[-1].split()[-1] == "-"


@pytest.mark.parametrize("form", ["table", "csv"])
def test_rows_are_printed_as_they_are_measured(program, form):
    # It stops itself before the second row. Standard output is a pipe, so nothing is flushed by itself.
    job = subprocess.Popen([BINARY, "comm", "--op", "all_reduce", "--max", "128", "--format", form], cwd=program.folder, text=True,
                           env={**os.environ, "SHARDMARK_FAULT": "0:comm:1:stop"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    killer = threading.Timer(30, job.kill)
    killer.start()
    try:
        lines = [job.stdout.readline(), job.stdout.readline()]
    finally:
        killer.cancel()
        job.kill()
        rest, _ = job.communicate()
    assert lines[0].startswith("operation") and lines[1].startswith("all_reduce") and rest == ""


@pytest.mark.parametrize("command", [("comm", "--op", "all_reduce", "--max", "128", *FEW), ("plan", "mlp", "--gpus", "2")])
def test_the_verdict_follows_the_rows_where_both_go_one_way(program, command):
    done = subprocess.run([BINARY, *command], cwd=program.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    lines = done.stdout.splitlines()
    ours = [number for number, line in enumerate(lines) if line.startswith("shardmark: " + command[0])]
    assert done.returncode == 0 and ours == [len(lines) - 1], done.stdout


def test_the_file_is_a_record(program):
    path = program.folder / "comm.h5"
    done = program.ranks(2, "comm", "--op", "all_gather", "--max", "32", *FEW, "-o", path)
    assert done.returncode == 0, done.stderr
    stored = table(path, "comm")
    assert list(stored.operation) == [b"all_gather"] * 4 and list(stored.wrong) == [0] * 4
    assert attribute(path, "status") == "complete" and attribute(path, "world_size") == 2 and attribute(path, "workload") == "comm"
    assert len(table(path, "ranks")) == 2 and "mpi" in {name.decode() for name in table(path, "environment").name}
    shown = program.alone("show", path, "--table", "comm", "--format", "json")
    assert len(json.loads(shown.stdout)["rows"]) == 4
    exported = program.alone("export", path, "--to", "json")
    assert exported.returncode == 0 and len(json.loads((program.folder / "comm.json").read_text())["tables"]["comm"]) == 4
    again = program.ranks(2, "comm", "--op", "barrier", *FEW, "-o", path)
    assert again.returncode == 2 and f"-o {path} exists" in again.stderr and len(table(path, "comm")) == 4
    assert "give --overwrite" in again.stderr and "output." not in again.stderr
    done = program.ranks(2, "comm", "--op", "barrier", *FEW, "-o", path, "--overwrite")
    assert done.returncode == 0 and "comm: 1 row: nothing was checked: a barrier has no result" in done.stderr
    assert len(table(path, "comm")) == 1
    shown = program.alone("show", path)
    assert shown.returncode == 0 and "\nbarrier " in shown.stdout and "time_p50_us" in shown.stdout
    compared = program.alone("compare", path, path)
    assert compared.returncode == 2 and f"shardmark show {path} --table comm" in compared.stderr and "export" in compared.stderr


def test_a_planted_wrong_result_is_found_and_named(program):
    path = program.folder / "wrong.h5"
    # Row 3 is the second of reduce_scatter, out of place, at 32 bytes.
    document, done = measure(program, 2, "--op", "all_reduce,reduce_scatter", "--max", "32", "-o", path, code=8,
                             env={"SHARDMARK_FAULT": "1:comm:3:bitflip:2"})
    assert [row["wrong"] for row in document["rows"]] == [0, 0, 0, 1, 0, 0]
    assert document["rows"][3]["operation"] == "reduce_scatter" and document["verdict"] == "1 received element is wrong"
    assert done.stderr.count("1 received element is wrong") == 1
    assert list(table(path, "comm").wrong) == [0, 0, 0, 1, 0, 0]
    assert attribute(path, "status") == "failed" and attribute(path, "exit_code") == 8
    assert "SHARDMARK_FAULT" in {name.decode() for name in table(path, "environment").name}


@pytest.mark.parametrize("operation", OPERATIONS[:-1])
def test_a_flipped_bit_of_any_operation_is_seen(program, operation):
    places = ["--out-of-place"] if operation in BOTH_PLACES else []
    document, _ = measure(program, 3, "--op", operation, "--max", "6", "--min", "6", "--dtype", "bf16", *places, code=8,
                          env={"SHARDMARK_FAULT": "2:comm:0:bitflip"})
    assert [row["wrong"] for row in document["rows"]] == [1]


def test_all_bad_options_are_told_at_once(program):
    bad = {"--op": "reduce", "--dtype": "fp16", "--reduction": "mean", "--order": "slow", "--group": "rack", "--min": "8X",
           "--max": "0", "--factor": "1", "--iterations": "0", "--warmup": "-1", "--backend": "gloo", "--deadline": "soon",
           "--format": "xml"}
    done = program.ranks(2, "comm", *[f"{option}={value}" for option, value in bad.items()])
    assert done.returncode == 2 and done.stdout == ""
    for option, value in bad.items():
        assert done.stderr.count(f"{option} {value}: accepted are") == 1, (option, done.stderr)
    for arguments, text in (
            (("--min", "1M", "--max", "1K"), "--max 1K is below --min 1M"),
            (("--op", "broadcast", "--in-place"), "only reduce_scatter and all_gather have both"),
            (("--pairs", "--group", "node"), "leave --group out"),
            (("--pairs", "--op", "all_reduce", "--min", "8"), "leave --op out"),
            (("--max", "64MB"), "KB, MB and GB are 1000-based elsewhere"),
            (("--max", "9999999999G"), "--max 9999999999G: accepted are bytes")):
        done = program.alone("comm", *arguments)
        assert done.returncode == 2 and text in done.stderr, done.stderr
    done = program.alone("comm", "--pairs")
    assert done.returncode == 2 and "start two at least" in done.stderr
    assert program.alone("comm", "--no-such").returncode == 2


def test_a_backend_that_is_not_there(program):
    done = program.ranks(2, "comm", "--backend", "nccl", "--op", "barrier", *FEW)
    if done.returncode == 0:
        pytest.skip("this machine has NCCL and a device for each rank")
    assert done.returncode == 5 and "--backend nccl" in done.stderr and done.stdout == ""
    assert "comm.backend" not in done.stderr and done.stderr.count("shardmark: error") == 1, done.stderr


def test_faults_that_nobody_plants_are_refused(program):
    done = program.ranks(2, "comm", "--op", "barrier", env={"SHARDMARK_FAULT": "0:backward:0:nan"})
    assert done.returncode == 2 and "plants bitflip, kill" in done.stderr
    done = program.ranks(2, "run", "mlp", "-o", program.folder / "run.h5", env={"SHARDMARK_FAULT": "0:comm:0:bitflip"})
    assert done.returncode == 2 and "by `shardmark comm` alone" in done.stderr
    for fault, words in (("0:comm:0:bitflip:-1", "from 0 up"), ("0:comm:0:bitflip:two", "from 0 up"),
                         ("2:comm:0:bitflip", "the last of the ranks is 1"), ("0:comm:1:kill", "the last of the rows is 0")):
        done = program.ranks(2, "comm", "--op", "barrier", env={"SHARDMARK_FAULT": fault})
        assert done.returncode == 2 and done.stderr.count(words) == 1 and done.stdout == "", (fault, done.stderr)


def test_a_silent_rank_ends_the_job_at_its_deadline(program):
    path = program.folder / "stuck.h5"
    start = time.monotonic()
    job = subprocess.Popen([LAUNCH, "2", BINARY, "comm", "--op", "all_reduce", "--max", "128", "--deadline", "2", "-o", str(path)],
                           cwd=program.folder, env={**os.environ, "SHARDMARK_FAULT": "1:comm:1:stop"}, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, errors = job.communicate(timeout=60)
    finally:
        for pid in leftovers(job.pid):
            os.kill(int(pid), signal.SIGKILL)
    assert "Raise --deadline" in errors and "comm.deadline_s" not in errors
    assert job.returncode == 7 and "rank 1" in errors and time.monotonic() - start < 30
    assert attribute(path, "status") == "failed" and attribute(path, "exit_code") == 7
    assert "comm.deadline_s" not in attribute(path, "error")
    assert list(table(path, "comm").message_bytes) == [8], "what was measured before is kept"


def test_messages_that_no_memory_holds_are_refused_before_anything_is_measured(program):
    path = program.folder / "large.h5"
    for options in ((), ("--pairs",)):
        done = program.ranks(2, "comm", "--max", "900000G", "-o", path, *options)
        assert done.returncode == 2 and done.stdout == "" and not any(program.folder.iterdir()), done.stderr
        assert "4 buffers of 2 ranks" in done.stderr and "give --max" in done.stderr and done.stderr.count("error:") == 1


def test_one_rank_has_no_bus_bandwidth(program):
    done = program.alone("comm", "--op", "broadcast", "--max", "8", *FEW)
    assert done.returncode == 0 and "there is one rank: nothing is sent" in done.stderr
    assert done.stdout.splitlines()[1].split()[-2] == "-"


@pytest.mark.parametrize("command, text", [
    (("comm", "--no-such"), "--no-such"), (("doctor", "--deadline", "0"), 'a number of seconds above 0 is needed, not "0"'),
    (("doctor", "--format", "xml"), "--format xml"), (("verify", "mlp", "--format", "xml"), "--format xml")])
def test_bad_usage_is_told_once(program, command, text):
    done = program.ranks(3, *command)
    assert done.returncode == 2 and done.stderr.count("shardmark: error") == 1 and text in done.stderr, done.stderr
    assert max(map(len, done.stderr.splitlines())) < 200


def pairs_of(rows):
    return [tuple(int(word) for word in row["group"].split() if word.isdigit()) for row in rows if row["operation"] == "send_receive"]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pairs_cover_every_two_ranks(program, ranks):
    path = program.folder / "pairs.h5"
    done = program.ranks(ranks, "comm", "--pairs", "--max", "64K", "--format", "json", "-o", path, *FEW)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert sorted(pairs_of(document["rows"])) == list(itertools.combinations(range(ranks), 2))
    halves = [row["group"] for row in document["rows"] if row["operation"] == "all_reduce"]
    assert halves == {2: ["ranks 0 to 1"], 3: ["ranks 0 to 2", "ranks 1 to 2"],
                      4: ["ranks 0 to 3", "ranks 0 to 1", "ranks 2 to 3"]}[ranks]
    assert all(row["wrong"] == 0 for row in document["rows"]) and len(table(path, "comm")) == len(document["rows"])
    shared = ranks > len(os.sched_getaffinity(0))
    assert ("share cores" if shared else "most of the time is latency") in document["verdict"]
    assert "no verdict" in done.stderr


def test_ranks_that_share_cores_get_no_verdict(program):
    ranks = max(3, len(os.sched_getaffinity(0)) + 1)
    document, _ = measure(program, ranks, "--pairs", "--max", "128K", env={"SHARDMARK_FAULT": "2:comm:0:slow:40"})
    assert "no verdict" in document["verdict"] and "share cores" in document["verdict"]


def test_a_slow_rank_is_named_by_its_pairs(program, tmp_path):
    # Every call of rank 2 takes 40 ms more: at 128 KiB the others need well under a tenth of that, even where ranks share cores,
    # which a verdict would not survive: the ranks see as many cores as they are.
    env = preload(tmp_path, """#include <cstring>
extern "C" int sched_getaffinity(int, unsigned long size, void* mask) noexcept {
  std::memset(mask, 0, size);
  *static_cast<unsigned char*>(mask) = 0x0f;
  return 0;
}
""")
    document, done = measure(program, 4, "--pairs", "--max", "128K", code=5, env={**env, "SHARDMARK_FAULT": "2:comm:0:slow:40"})
    slowest = pairs_of(document["rows"])[:3]
    assert all(2 in pair for pair in slowest)
    assert "bad rank: rank 2 is slow with every other one" in document["verdict"]
    for other in (0, 1, 3):
        first, second = sorted((2, other))
        assert f"bad pair: rank {first} and rank {second} take" in document["verdict"]
    assert "rank 0 and rank 1 take" not in document["verdict"] and "rank 2" in done.stderr


def test_a_wrong_result_of_a_pair_is_worse_than_a_slow_one(program):
    document, _ = measure(program, 2, "--pairs", "--max", "64K", code=8, env={"SHARDMARK_FAULT": "1:comm:1:bitflip:7"})
    assert [row["wrong"] for row in document["rows"]] == [0, 1]


def test_the_examples_of_help_work_as_printed(program):
    shown = program.alone("comm", "--help")
    assert shown.returncode == 0 and "comm.check" in shown.stdout
    examples = [line.removeprefix("Example: ").split() for line in shown.stdout.splitlines() if line.startswith("Example: ")]
    assert any("send_receive" in example for example in examples) and any("--pairs" in example for example in examples)
    for launcher, count, ranks, name, *arguments in examples:
        assert (launcher, count, name) == ("mpirun", "-np", "shardmark")
        done = program.ranks(int(ranks), *arguments)
        # Where the example's four ranks have a core each, other load may make a pair look bad.
        assert done.returncode == 0 or (done.returncode == 5 and "--pairs" in arguments), done.stderr
    assert set(table(program.folder / "comm.h5", "comm").operation) == {b"all_reduce", b"all_gather"}


def test_options_of_nccl_tests_are_told_by_our_names(program):
    done = program.ranks(2, "comm", "-b", "8", "-e", "1M", "-f", "2")
    assert done.returncode == 2 and done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if "nccl-tests" in line]
    ours = [("-b 8", "--min 8"), ("-e 1M", "--max 1M"), ("-f 2", "--factor 2")]
    assert [all(part in line for part in pair) for line, pair in zip(lines, ours, strict=True)] == [True] * 3, done.stderr


def test_what_is_not_accepted_is_told_as_typed(program):
    done = program.alone("comm", "-z", "8", "--no-such", "1M")
    assert done.returncode == 2 and "not accepted: -z 8 --no-such 1M;" in done.stderr


def test_over_mpi_no_path_is_judged(program):
    path = program.folder / "plain.h5"
    _, done = measure(program, 2, "--op", "all_reduce", "--max", "8", "--backend", "mpi", "--allow-slow-path", "-o", path)
    assert len(table(path, "transport")) == 0 and "RDMA" not in done.stderr
    with h5py.File(path) as file:
        assert "allow_slow_path = true" in file["config"][()].decode()


@pytest.mark.parametrize("column", ["algbw_gb_s", "busbw_gb_s", "time_p50_s", "time_p99_us", "count", "wrong"])
def test_columns_are_explained(program, column):
    done = program.alone("explain", column)
    assert done.returncode == 0 and f"comm.{column}" in done.stdout and "definition" in done.stdout
    assert column != "count" or "nccl-tests print the count argument of the call instead" in done.stdout
