"""`comm` measures every collective: right results at 1 to 4 ranks, the definitions of nccl-tests, all formats, bad input whole, planted
wrong results and slow ranks found."""

import csv
import io
import itertools
import json
import os
import signal
import subprocess
import time

import numpy
import pytest
from conftest import BINARY, LAUNCH, attribute, leftovers, table

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
    assert document["verdict"] == "all results are right"
    rows = document["rows"]
    expected = []
    for operation in OPERATIONS[:-1]:
        for dtype in dtypes:
            for reduction in reductions if operation in REDUCING else [""]:
                places = [0, 1] if operation in BOTH_PLACES else [1] if operation in ("all_reduce", "broadcast") else [0]
                for place in places:
                    for asked in (8, 2560, 819200):
                        unit = SIZES[dtype] * (ranks if operation in PARTED else 1)
                        size = (asked + unit - 1) // unit * unit
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
        assert row["busbw_gb_s"] == pytest.approx(row["algbw_gb_s"] * bus_factor(row["operation"], n), rel=1e-12)


def test_ordered_sums_are_right(program):
    document, _ = measure(program, 3, "--op", "all_reduce,reduce_scatter", "--dtype", "bf16,fp64", "--order", "ordered", "--max", "2K")
    assert {row["sum_order"] for row in document["rows"]} == {"ordered"}
    assert all(row["wrong"] == 0 for row in document["rows"])


def test_sizes_go_from_min_to_max_by_factor(program):
    document, _ = measure(program, 1, "--op", "broadcast", "--min", "1K", "--max", "1M", "--factor", "2")
    assert [row["message_bytes"] for row in document["rows"]] == [1024 << i for i in range(11)]
    document, _ = measure(program, 2, "--op", "all_gather", "--max", "8", "--dtype", "fp64", "--in-place")
    # 8 bytes are one element; two ranks need two.
    assert [(row["message_bytes"], row["count"], row["in_place"]) for row in document["rows"]] == [(16, 2, 1)]
    done = program.alone("comm", "--op", "broadcast", "--format", "json")
    rows = json.loads(done.stdout)["rows"]
    assert rows[0]["message_bytes"] == 8 and rows[-1]["message_bytes"] == 8 * 4**10  # the largest up to 16 MiB
    assert [rows[0]["iterations"], rows[-1]["iterations"]] == [200, 20]
    assert rows[-1]["backend"] == "self"


def test_groups_of_ranks(program):
    document, _ = measure(program, 2, "--op", "all_reduce,barrier", "--max", "8", "--group", "node")
    assert [(row["group"], row["ranks"], row["wrong"]) for row in document["rows"]] == [("node", 2, 0), ("node", 2, -1)]
    document, done = measure(program, 2, "--op", "all_reduce", "--max", "8", "--group", "across")
    assert [(row["group"], row["ranks"], row["busbw_gb_s"], row["wrong"]) for row in document["rows"]] == [("across", 1, 0, 0)]
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
    assert again.returncode == 2 and "exists" in again.stderr and len(table(path, "comm")) == 4
    assert program.ranks(2, "comm", "--op", "barrier", *FEW, "-o", path, "--overwrite").returncode == 0
    assert len(table(path, "comm")) == 1
    compared = program.alone("compare", path, path)
    assert compared.returncode == 2, "no run to compare"


def test_a_planted_wrong_result_is_found_and_named(program):
    path = program.folder / "wrong.h5"
    # Row 3 is the second of reduce_scatter, out of place, at 32 bytes.
    document, done = measure(program, 2, "--op", "all_reduce,reduce_scatter", "--max", "32", "-o", path, code=8,
                             env={"SHARDMARK_FAULT": "1:comm:3:bitflip:2"})
    assert [row["wrong"] for row in document["rows"]] == [0, 0, 0, 1, 0, 0]
    assert document["rows"][3]["operation"] == "reduce_scatter" and document["verdict"] == "1 received elements are wrong"
    assert done.stderr.count("1 received elements are wrong") == 1
    assert list(table(path, "comm").wrong) == [0, 0, 0, 1, 0, 0]
    assert attribute(path, "status") == "failed" and attribute(path, "exit_code") == 8
    assert "SHARDMARK_FAULT" in {name.decode() for name in table(path, "environment").name}


@pytest.mark.parametrize("operation", OPERATIONS[:-1])
def test_a_flipped_bit_of_any_operation_is_seen(program, operation):
    places = ["--out-of-place"] if operation in BOTH_PLACES else []
    document, _ = measure(program, 3, "--op", operation, "--max", "8", "--dtype", "bf16", *places, code=8,
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
    assert done.returncode == 5 and "nccl" in done.stderr and done.stdout == ""


def test_faults_that_nobody_plants_are_refused(program):
    done = program.ranks(2, "comm", "--op", "barrier", env={"SHARDMARK_FAULT": "0:backward:0:nan"})
    assert done.returncode == 2 and "plants bitflip, kill" in done.stderr
    done = program.ranks(2, "run", "mlp", "-o", program.folder / "run.h5", env={"SHARDMARK_FAULT": "0:comm:0:bitflip"})
    assert done.returncode == 2 and "by `shardmark comm` alone" in done.stderr


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
    assert job.returncode == 7 and "rank 1" in errors and time.monotonic() - start < 30
    assert attribute(path, "status") == "failed" and attribute(path, "exit_code") == 7
    assert list(table(path, "comm").message_bytes) == [8], "what was measured before is kept"


def pairs_of(rows):
    return [tuple(int(word) for word in row["group"].split() if word.isdigit()) for row in rows if row["operation"] == "send_receive"]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pairs_cover_every_two_ranks(program, ranks):
    path = program.folder / "pairs.h5"
    done = program.ranks(ranks, "comm", "--pairs", "--max", "64K", "--format", "json", "-o", path, *FEW)
    assert done.returncode in (0, 5), done.stderr  # other load may make a pair look bad
    document = json.loads(done.stdout)
    assert sorted(pairs_of(document["rows"])) == list(itertools.combinations(range(ranks), 2))
    halves = [row["group"] for row in document["rows"] if row["operation"] == "all_reduce"]
    assert halves == {2: ["ranks 0 to 1"], 3: ["ranks 0 to 2", "ranks 1 to 2"],
                      4: ["ranks 0 to 3", "ranks 0 to 1", "ranks 2 to 3"]}[ranks]
    assert all(row["wrong"] == 0 for row in document["rows"]) and len(table(path, "comm")) == len(document["rows"])
    assert ("there is no other to compare it with" in document["verdict"]) == (ranks == 2)
    if ranks > 2 and done.returncode == 0:
        assert "ranks of one node" in document["verdict"]


def test_a_slow_rank_is_named_by_its_pairs(program):
    # Every call of rank 2 takes 40 ms more: at 64 KiB the others need well under a tenth of that, even where ranks share cores.
    document, done = measure(program, 4, "--pairs", "--max", "64K", code=5, env={"SHARDMARK_FAULT": "2:comm:0:slow:40"})
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


def test_the_example_of_help_works_as_printed(program):
    shown = program.alone("comm", "--help")
    assert shown.returncode == 0 and "comm.check" in shown.stdout
    line = next(line for line in shown.stdout.splitlines() if line.startswith("Example: "))
    launcher, count, ranks, name, *arguments = line.removeprefix("Example: ").split()
    assert (launcher, count, name) == ("mpirun", "-np", "shardmark")
    done = program.ranks(int(ranks), *arguments)
    assert done.returncode == 0, done.stderr
    assert set(table(program.folder / "comm.h5", "comm").operation) == {b"all_reduce", b"all_gather"}


@pytest.mark.parametrize("column", ["algbw_gb_s", "busbw_gb_s", "time_p50_s", "time_p99_s", "wrong"])
def test_columns_are_explained(program, column):
    done = program.alone("explain", column)
    assert done.returncode == 0 and f"comm.{column}" in done.stdout and "definition" in done.stdout
