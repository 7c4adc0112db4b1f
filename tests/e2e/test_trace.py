"""Traces of real runs: the record's tables hold to /steps and /collectives, and the exported file to the Trace Event Format."""

import collections
import json
import os
import resource
import stat
import subprocess

import h5py
import numpy
import pandas
import pytest
from conftest import BINARY, attribute, losses, run_job, table

QUICK = ("measure.warmup_steps=3", "measure.steps=5", "measure.blocks=2")
TRACED = (*QUICK, "output.trace=true")
COMPUTE = 1
FIRST_COMMUNICATION = 2
# Readings of a clock near the host's uptime round to 4e-9 s up to a year of it; a sum of a step's few phases to ten times that.
ROUNDING_S = 4e-8


def export(program, path, form, *options):
    done = program.alone("export", path, "--to", form, *options)
    assert done.returncode == 0, done.stderr
    return done


def trace_events(program, path):
    out = path.with_suffix(".trace.json")
    export(program, path, "trace")
    document = json.loads(out.read_text())
    assert document["displayTimeUnit"] in ("ms", "ns") and isinstance(document["traceEvents"], list)
    return document["traceEvents"]


def nanoseconds(microseconds):
    ns = round(microseconds * 1000)
    assert abs(ns - microseconds * 1000) < 1e-2
    return ns


def check_format(events, ranks):
    """The rules of the Trace Event Format for the phases that we write, X and M."""
    names = collections.defaultdict(dict)
    lanes = collections.defaultdict(list)
    for event in events:
        assert event["ph"] in ("X", "M") and isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and event["pid"] > 0
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            key = event["pid"] if event["name"].startswith("process") else (event["pid"], event["tid"])
            assert event["name"] not in names[key], "named twice"
            names[key][event["name"]] = next(iter(event["args"].values()))
            continue
        assert isinstance(event["cat"], str) and isinstance(event["args"], dict)
        start, duration = nanoseconds(event["ts"]), nanoseconds(event["dur"])
        assert start >= 0 and duration >= 0
        lanes[event["pid"], event["tid"]].append((start, start + duration))
    for (process, thread), times in lanes.items():
        assert [start for start, _ in times] == sorted(start for start, _ in times), "by start"
        ends = []
        for start, end in times:
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1], "an event reaches out of the one around it"
            assert thread == COMPUTE or not ends, "collectives of one thread overlap"
            ends.append(end)
    for rank in range(ranks):
        assert names[rank + 1]["process_name"].startswith(f"rank {rank}") and names[rank + 1]["process_sort_index"] == rank
        assert names[rank + 1, COMPUTE]["thread_name"] == "compute" and lanes[rank + 1, COMPUTE]
        assert names[rank + 1, FIRST_COMMUNICATION]["thread_name"] == "communication" and lanes[rank + 1, FIRST_COMMUNICATION]
    assert {process for process, _ in lanes} == {rank + 1 for rank in range(ranks)}
    assert all("thread_name" in names[key] and "process_name" in names[key[0]] for key in lanes), "a lane without a name"


@pytest.mark.parametrize("case, technique, ranks, sets", [
    ("mlp-digits", "ddp", 2, ("technique.bucket_mb=0.01",)),
    ("lm10m-tiny", "fsdp", 2, ("data.accumulation=2", "model.activation_checkpointing=true")),
    ("mlp-digits", "zero2", 3, ()),
    ("mlp", "single", 1, ()),
])
def test_a_trace_is_valid_and_agrees_with_the_record(program, case, technique, ranks, sets):
    path = program.train(ranks, case, "traced", *TRACED, *sets, technique=technique)
    check_format(trace_events(program, path), ranks)
    trace = table(path, "trace")
    for column in ("lane", "category", "name", "purpose", "group", "dtype"):
        trace[column] = trace[column].str.decode("utf-8")
    assert (trace.start_s >= 0).all() and (trace.duration_s >= 0).all()
    about = table(path, "trace_ranks")
    assert list(about["rank"]) == list(range(ranks)) and (about.num_dropped == 0).all()
    assert list(about.num_events) == list(trace.groupby("rank").size())
    assert (about.clock_offset_s == 0).all() and (about.clock_uncertainty_s == 0).all(), "one host, one clock"

    # Steps and phases are those of /steps.
    steps = table(path, "steps")
    for (rank, step), row in steps.set_index(["rank", "step"]).iterrows():
        mine = trace[(trace["rank"] == rank) & (trace.step == step) & (trace.lane == "compute")]
        whole = mine[mine.category == "step"]
        assert len(whole) == 1 and whole.duration_s.item() == pytest.approx(row.total_s, abs=ROUNDING_S)
        phases = mine[mine.category == "phase"].groupby("name").duration_s.sum()
        for names, found in ((["data"], row.data_s), (["forward"], row.forward_s), (["backward", "gradients"], row.backward_s),
                             (["optimizer"], row.optimizer_s)):
            assert phases[names].sum() == pytest.approx(found, abs=ROUNDING_S)
        assert set(phases.index) == {"data", "forward", "backward", "gradients", "optimizer"}
        units = mine[mine.category == "unit"].name
        assert units.str.startswith("forward ").sum() == units.str.startswith("backward ").sum() > 0

    # Collectives are those of /collectives: of the timed steps, kind by kind; the others lie in warm-up or outside steps.
    timed = steps[steps.timed == 1].step
    keys = ["rank", "operation", "purpose", "group", "dtype", "message_bytes"]
    counted = table(path, "collectives")
    for column in ("operation", "purpose", "group", "dtype"):
        counted[column] = counted[column].str.decode("utf-8")
    sent = trace[trace.lane == "communication"].rename(columns={"name": "operation", "bytes": "message_bytes"})
    assert (sent.category == "collective").all()
    assert sent[sent.step.isin(timed)].groupby(keys).size().to_dict() == counted.set_index(keys)["count"].to_dict()
    assert set(sent[~sent.step.isin(timed)].step) == {-1, 0, 1, 2}, "set-up, block borders and the end; warm-up"
    # A rank numbers its collectives, and each wait names one of them and lies within it.
    for _, mine in sent.groupby("rank"):
        assert sorted(mine.sequence) == list(range(len(mine)))
    # Ranks share a clock: none of these ends on any rank before it has begun on all.
    together = sent[sent.operation.isin(("all_reduce", "reduce_scatter", "all_gather", "barrier"))]
    ends = together.start_s + together.duration_s
    for (_, operation), mine in together.groupby(["sequence", "operation"]):
        assert len(mine) == ranks and mine.start_s.max() <= ends[mine.index].min() + ROUNDING_S, operation
    waits = trace[trace.category == "wait"].merge(sent, on=["rank", "sequence"], suffixes=("", "_sent"))
    assert len(waits) == (trace.category == "wait").sum() > 0
    assert (waits.name == "wait for " + waits.operation).all()
    assert (waits.start_s >= waits.start_s_sent).all()
    assert (waits.start_s + waits.duration_s <= waits.start_s_sent + waits.duration_s_sent + ROUNDING_S).all()
    timed_waits = waits[waits.step.isin(timed)].groupby("rank").duration_s.sum()
    exposed = steps[steps.timed == 1].groupby("rank").comm_exposed_s.sum()
    assert (timed_waits <= exposed + ROUNDING_S * len(waits)).all(), "waiting is part of what is exposed"


@pytest.mark.parametrize("case, technique", [("mlp-digits", "ddp"), ("lm10m-tiny", "fsdp"), ("mlp", "zero1")])
def test_a_trace_changes_no_bit(program, case, technique):
    plain = program.train(2, case, "plain", *QUICK, technique=technique)
    traced = program.train(2, case, "with", *TRACED, technique=technique)
    assert numpy.array_equal(losses(plain), losses(traced))
    assert numpy.array_equal(table(plain, "steps").grad_norm, table(traced, "steps").grad_norm)
    assert len(table(plain, "trace")) == 0 and len(table(plain, "trace_ranks")) == 0
    assert attribute(plain, "config_hash") == attribute(traced, "config_hash")
    done = program.alone("compare", plain, traced)
    assert done.returncode == 2 and "output.trace" in done.stderr, "a trace costs time: not comparable"


def test_evaluation_is_a_phase_outside_steps(program):
    rows = numpy.random.default_rng(1).normal(size=(300, 64)).astype(numpy.float32)
    for name in ("train", "eval"):
        with h5py.File(program.folder / f"{name}.h5", "w") as file:
            file.attrs.update({"kind": "vectors", "schema_version": 1, "source": "a test", "license": "none", "sha256": ""})
            file["features"], file["targets"] = rows, numpy.arange(300) % 10
    path = program.train(2, "mlp-digits", "quality", *TRACED, f"data.path={program.folder / 'train.h5'}",
                         f"data.eval_path={program.folder / 'eval.h5'}", technique="fsdp")
    trace = table(path, "trace")
    found = trace[trace.name == b"evaluation"]
    assert sorted(found["rank"]) == [0, 1] and (found.step == -1).all()
    check_format(trace_events(program, path), 2)


def test_what_does_not_fit_is_dropped_and_said(program):
    """A micro-step of mlp has 9 events, 75,000 micro-steps 675,000; the memory holds 599,186 of 56 bytes."""
    path = program.folder / "long.h5"
    done = program.alone("run", "mlp", "--technique", "single", "-o", path, "--set", "output.trace=true", "--set", "data.accumulation=500",
                         "--set", "data.micro_batch=1", "--set", "measure.warmup_steps=3", "--set", "measure.steps=147", "--set",
                         "measure.blocks=1")
    assert done.returncode == 0, done.stderr
    about = table(path, "trace_ranks").iloc[0]
    assert about.num_events == len(table(path, "trace")) == (32 << 20) // 56 and about.num_dropped > 75000
    assert f"rank 0 kept its first {about.num_events:.0f} events and dropped the {about.num_dropped:.0f} after them" in done.stderr
    told = export(program, path, "trace")
    assert f"{about.num_events:.0f} events were kept and {about.num_dropped:.0f} dropped" in told.stderr
    check_format(json.loads(path.with_suffix(".trace.json").read_text())["traceEvents"], 1)


def test_a_failed_run_keeps_what_rank_0_knows_and_says_so(program):
    code, errors, _ = run_job(program.folder, 3, BINARY, "run", "mlp", "-o", "x.h5", "--set", "output.trace=true",
                              fault="1:backward:30:nan")
    assert code == 8 and "1 of 3 ranks" in errors
    path = program.folder / "x.h5"
    assert attribute(path, "status") == "failed" and set(table(path, "trace")["rank"]) == {0}
    assert set(table(path, "trace").step) == set(range(-1, 31))
    told = export(program, path, "trace")
    assert "1 of 3 ranks: status failed" in told.stderr
    check_format(json.loads(path.with_suffix(".trace.json").read_text())["traceEvents"], 1)


def test_a_failed_run_keeps_its_latest_events_only(program):
    """Some 9 events a micro-step, of which 50,000 are kept: 6,500 micro-steps before the fault have more."""
    code, errors, _ = run_job(program.folder, 1, BINARY, "run", "mlp", "--technique", "single", "-o", "x.h5", "--set", "output.trace=true",
                              "--set", "data.accumulation=500", "--set", "data.micro_batch=1", fault="0:backward:13:nan")
    path = program.folder / "x.h5"
    about, trace = table(path, "trace_ranks").iloc[0], table(path, "trace")
    assert code == 8 and about.num_events == len(trace) == 50000 and about.num_dropped > 6500 * 9 - 50000
    assert f"of rank 0's events 50000 are kept and {about.num_dropped:.0f} dropped" in errors
    assert trace.step.max() == 13 and 0 not in set(trace.step), "the latest"
    export(program, path, "trace")
    check_format(json.loads(path.with_suffix(".trace.json").read_text())["traceEvents"], 1)


def test_a_failure_within_a_unit_leaves_open_events(program):
    code, _, _ = run_job(program.folder, 2, BINARY, "run", "mlp", "--technique", "fsdp", "-o", "x.h5", "--set", "output.trace=true",
                         "--set", "comm.deadline_s=2", fault="1:forward:30:stop")
    path = program.folder / "x.h5"
    assert code == 7 and attribute(path, "status") == "failed"
    trace = table(path, "trace")
    opened = trace[trace.duration_s.isna()]
    assert b"forward net.0" in set(opened.name) and b"all_gather" in set(opened.name), "what rank 0 was in"
    export(program, path, "trace")
    events = json.loads(path.with_suffix(".trace.json").read_text())["traceEvents"]
    check_format(events, 1)
    assert sum(event["args"].get("unfinished", False) for event in events) == len(opened)


def test_a_killed_run_has_no_trace_and_export_says_why(program):
    run_job(program.folder, 2, BINARY, "run", "mlp", "-o", "x.h5", "--set", "output.trace=true", fault="0:backward:200:kill")
    path = program.folder / "x.h5"
    done = program.alone("export", path, "--to", "trace")
    assert done.returncode == 2 and "interrupted" in done.stderr and "no trace" in done.stderr
    assert not (program.folder / "x.trace.json").exists() and not list(program.folder.glob("*.json*"))
    told = export(program, path, "json")
    assert "interrupted run" in told.stderr
    document = json.loads((program.folder / "x.json").read_text())
    assert document["partial"] is True and document["attributes"]["status"] == "interrupted" and document["tables"]["steps"]


def test_no_export_touches_a_record(program):
    path = program.train(1, "mlp", "x", *QUICK)
    left = program.folder / "y.h5.partial"
    left.write_bytes(path.read_bytes())
    export(program, left, "json", "-o", program.folder / "y.h5")
    assert left.read_bytes() == path.read_bytes(), "what a killed run left"
    folder = program.folder / "of.h5s"
    folder.mkdir()
    (folder / "record").write_bytes(path.read_bytes())
    export(program, folder / "record", "json")
    assert (folder / "record.json").exists(), "beside the record, whatever its folder is called"


def test_export_csv_and_json_hold_the_record(program):
    path = program.train(2, "mlp", "all", *TRACED)
    export(program, path, "csv,json,trace")
    document = json.loads((program.folder / "all.json").read_text())
    with h5py.File(path) as file:
        names = {name for name in file if name != "config"}
        assert set(document["tables"]) == names and set(document["attributes"]) == set(file.attrs)
        assert {entry.name for entry in (program.folder / "all-csv").iterdir()} == {
            f"{name}.csv" for name in names} | {"attributes.csv", "config.toml"}
    for name in ("steps", "collectives", "trace", "checks"):
        found = pandas.read_csv(program.folder / "all-csv" / f"{name}.csv")
        expected = table(path, name)
        assert list(found.columns) == list(expected.columns) and len(found) == len(expected)
        rows = pandas.DataFrame(document["tables"][name], columns=expected.columns)
        for column in expected.columns:
            if expected[column].dtype != object:
                assert numpy.array_equal(found[column].to_numpy(float), expected[column].to_numpy(float), equal_nan=True), column
                assert numpy.array_equal(rows[column].to_numpy(float), expected[column].to_numpy(float), equal_nan=True), column
            else:
                assert list(rows[column]) == list(expected[column].str.decode("utf-8")), column
    assert document["tables"]["summary"][0]["energy_j_per_step"] is None, "NaN is null"


def test_export_refuses_what_it_cannot_do(program):
    path = program.train(1, "mlp", "plain", *QUICK)

    def refused(*options):
        done = program.alone("export", path, *options)
        assert done.returncode == 2, done.stderr
        return done.stderr

    assert "output.trace=true" in refused("--to", "csv,trace")
    assert not (program.folder / "plain-csv").exists(), "nothing is written before everything was checked"
    assert "csv, json, trace" in refused("--to", "xml")
    assert "-o names one output" in refused("--to", "csv,json", "-o", "x")
    assert "no folder" in refused("--to", "json", "-o", "none/x.json")
    assert "is a folder" in refused("--to", "json", "-o", program.folder)
    os.mkfifo(program.folder / "pipe")
    assert "the record itself" in refused("--to", "json", "-o", path, "--overwrite")
    assert "no regular file" in refused("--to", "json", "-o", program.folder / "pipe", "--overwrite")
    assert stat.S_ISFIFO((program.folder / "pipe").stat().st_mode), "still there"
    (program.folder / "plain.json").write_text("mine")
    assert "--overwrite" in refused("--to", "json") and (program.folder / "plain.json").read_text() == "mine"
    export(program, path, "json", "--overwrite")
    assert json.loads((program.folder / "plain.json").read_text())["partial"] is False
    export(program, path, "csv")
    assert "--overwrite" in refused("--to", "csv")
    export(program, path, "csv", "--overwrite")
    missing = program.alone("export", program.folder / "none.h5", "--to", "json")
    assert missing.returncode == 2 and "no such file" in missing.stderr
    # Python ignores SIGXFSZ and so does what it starts here: the write fails instead.
    full = subprocess.run([BINARY, "export", path, "--to", "json", "-o", "big.json"], cwd=program.folder, text=True, capture_output=True,
                          restore_signals=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    assert full.returncode == 10 and "big.json" in full.stderr, full.stderr
    assert not list(program.folder.glob("big.json*")), "no part under any name"
