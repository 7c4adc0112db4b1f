"""The program as its users meet it: records, exit codes, messages."""

import json
import os
import subprocess

import h5py
import numpy
import pandas
import pytest
from conftest import BINARY, SOURCE, attribute, losses, table, write_vectors

QUICK = ("measure.warmup_steps=3", "measure.steps=5", "measure.blocks=2")


def test_record_reads_with_pandas(program):
    path = program.train(2, "mlp", "record", *QUICK)
    steps = pandas.DataFrame(h5py.File(path)["steps"][:])
    assert len(steps) == 2 * 13 and set(steps["rank"]) == {0, 1} and steps.timed.sum() == 20
    assert attribute(path, "status") == "complete" and attribute(path, "exit_code") == 0
    with h5py.File(path) as file:
        assert {"config", "ranks", "environment", "memory", "collectives", "checks", "summary", "telemetry"} <= set(file)
        assert file["steps"].attrs["total_s"] in ("s", b"s")
    checks = table(path, "checks")
    assert len(checks) == 20 and (checks.passed == 1).all()
    assert ((steps.comm_exposed_s >= 0) & (steps.comm_exposed_s <= steps.total_s)).all()


def test_waiting_before_training_is_no_communication_of_the_first_step(program):
    path = program.folder / "late.h5"
    done = program.ranks(2, "run", "mlp", "-o", path, *(word for value in QUICK for word in ("--set", value)),
                         env={"SHARDMARK_FAULT": "1:init:0:slow:2000"})
    assert done.returncode == 0, done.stderr
    first = table(path, "steps").query("step == 0")
    assert (first.comm_exposed_s <= first.total_s).all() and table(path, "summary").iloc[0].init_s > 2


def test_payload_is_the_formula(program):
    """2 T (N-1)/N elements of 4 bytes, T with the padding of the layout."""
    for ranks in (2, 3, 4):
        path = program.train(ranks, "mlp-digits", f"n{ranks}", *QUICK, "technique.bucket_mb=0.01")
        summary = table(path, "summary").iloc[0]
        elements = summary.trainable_parameters + summary.trainable_padding_elements
        assert elements % (16 * ranks) == 0
        assert summary.wire_bytes_per_step == pytest.approx(2 * elements * 4 * (ranks - 1) / ranks, rel=1e-14)


def test_throughput_is_work_over_slowest_rank(program):
    path = program.train(2, "mlp", "speed", *QUICK)
    steps = table(path, "steps")
    timed = steps[steps.timed == 1]
    blocks = timed.groupby(["block", "rank"]).total_s.sum().groupby("block").max()
    assert table(path, "summary").iloc[0].samples_per_s == pytest.approx(timed.samples.sum() / blocks.sum(), rel=1e-12)


def test_no_throughput_without_warm_up(program):
    path = program.train(1, "mlp", "cold", "measure.warmup_steps=2", "measure.steps=5", "measure.blocks=1")
    summary = table(path, "summary").iloc[0]
    assert summary.warmed_up == 0 and numpy.isnan(summary.samples_per_s)


def test_explain_knows_every_column(program):
    path = program.train(1, "mlp", "columns", *QUICK)
    with h5py.File(path) as file:
        names = {f"{name}.{column}" for name in file if name != "config" for column in file[name].dtype.names} | set(file.attrs)
    known = {line.split()[0] for line in program.alone("explain").stdout.splitlines()}
    assert names <= known and len(names) > 100
    for name in ("samples_per_s", "wire_bytes", "steps.total_s", "status"):
        shown = program.alone("explain", name)
        assert shown.returncode == 0 and "definition" in shown.stdout and "unit" in shown.stdout
    printed = [program.alone("compare", path), program.alone("compare", "--memory", path), program.alone("plan", "mlp", "--gpus", "2")]
    bare = {name.rsplit(".", 1)[-1] for name in known}
    for done in printed:
        header = next(line for line in done.stdout.splitlines() if "technique" in line)
        assert set(header.split()) <= bare, "a column that no explanation covers"
    for name, column in (("comm", "comm.algbw_gb_s"), ("transport", "transport.path"), ("plan", "plan.fits")):
        shown = program.alone("explain", name)
        listed = [line.split()[0] for line in shown.stdout.splitlines() if not line.startswith("/")]
        assert shown.returncode == 0 and column in listed and all(line.startswith(f"{name}.") for line in listed)
    wrong = program.alone("explain", "sample_per_s")
    assert wrong.returncode == 2 and "samples_per_s" in wrong.stderr


def test_all_problems_of_a_configuration_at_once(program):
    done = program.ranks(2, "run", "mlp", "--set", "optimiser.lr=1", "--set", "measure.steps=many", "--set", "technique.name=zero9",
                         "--set", "model.dropout=7", "-o", "x.h5")
    assert done.returncode == 2
    for part in ("optimiser.lr", "optimizer.lr", "measure.steps", "zero9", "ddp, single", "model.dropout"):
        assert part in done.stderr
    assert done.stderr.count("zero9") == 1, "printed once, not by every rank"
    assert not any(program.folder.iterdir())


@pytest.mark.parametrize("arguments, part", [
    (("nonsense",), "mlp-digits"),
    (("missing.toml",), "missing.toml"),
    (("mlp", "--set", "data.global_batch=7"), "6 or 8"),
    (("mlp", "--set", "data.path=missing.h5"), "missing.h5"),
    (("mlp", "--technique", "single"), "ddp"),
])
def test_bad_input_is_refused_and_nothing_written(program, arguments, part):
    done = program.ranks(2, "run", *arguments, "-o", "x.h5")
    assert done.returncode == 2 and part in done.stderr
    assert not any(program.folder.iterdir())


def test_nan_in_data_names_dataset_row_and_value(program):
    features = numpy.zeros((40, 10))
    features[17, 3] = numpy.nan
    write_vectors(program.folder / "bad.h5", features, numpy.zeros((40, 1), dtype=numpy.float32))
    done = program.ranks(2, "run", "mlp", "-o", "x.h5", "--set", "data.path=bad.h5")
    assert done.returncode == 2 and "features" in done.stderr and "17" in done.stderr
    assert {entry.name for entry in program.folder.iterdir()} == {"bad.h5"}


def test_existing_output_is_kept(program):
    path = program.train(1, "mlp", "kept", *QUICK)
    before = path.read_bytes()
    done = program.alone("run", "mlp", "-o", path)
    assert done.returncode == 2 and "output.overwrite" in done.stderr and path.read_bytes() == before


def run_as_if_launched(program, variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
    return subprocess.run([BINARY, "run", "mlp"], cwd=program.folder, env={**environment, **variables}, capture_output=True,
                          text=True, timeout=60)


def test_slurm_singletons_are_refused(program):
    done = run_as_if_launched(program, {"SLURM_NTASKS": "4"})
    assert done.returncode == 5 and "SLURM_NTASKS" in done.stderr and "mpirun" in done.stderr


def test_singletons_of_another_mpis_launcher_are_refused(program):
    done = run_as_if_launched(program, {"PMI_RANK": "1", "PMI_SIZE": "4"})
    assert done.returncode == 5 and "PMI_SIZE = 4" in done.stderr and "mpirun" in done.stderr


def test_compare_refuses_unlike_records(program):
    one = program.train(1, "mlp", "one", *QUICK)
    other = program.train(1, "mlp", "other", *QUICK, "optimizer.lr=0.5")
    done = program.alone("compare", one, other, "--format", "json")
    assert done.returncode == 2 and "optimizer.lr" in done.stderr
    assert [row["preset"] for row in json.loads(done.stdout)["rows"]] == ["mlp", "mlp"]
    again = program.train(1, "mlp", "again", *QUICK)
    done = program.alone("compare", one, again, "--format", "json")
    assert done.returncode == 0 and all(row["ratio"] > 0 for row in json.loads(done.stdout)["rows"])


def test_show_knows_the_tables_of_the_machine(program):
    """They are empty on the CPU over MPI, and still shown."""
    path = program.train(1, "mlp", "tables", *QUICK)
    for name, head in (("transport", "rank,peer,path"), ("health", "rank,counter,before,after"), ("telemetry", "rank,time_s,power_w")):
        done = program.alone("show", path, "--table", name, "--format", "csv")
        assert done.returncode == 0 and done.stdout.startswith(head), done.stderr
    refused = program.alone("show", path, "--table", "transports")
    assert refused.returncode == 2 and "accepted are overview, ranks, " in refused.stderr and "transport, comm" in refused.stderr


def test_show_in_every_form_with_any_text(program):
    """A bar, a comma, quotes and a line end; and half a character, as other programs' files may hold."""
    path = program.train(1, "mlp", "texts", *QUICK)

    def show(error, form):
        with h5py.File(path, "r+") as file:
            file.attrs["error"] = numpy.bytes_(error)
        done = program.alone("show", path, "--format", form)
        assert done.returncode == 0, done.stderr
        return done.stdout

    text = b'a|b, "c"\nd'
    assert 'a|b, "c"\\nd ' in show(text, "table")
    assert '\nerror,"a|b, ""c""\nd",\n' in show(text, "csv")
    assert '\n| error | a\\|b, "c"<br>d | - |\n' in show(text, "md")
    rows = {row["name"]: row["value"] for row in json.loads(show(text + b" \xe2\x82", "json"))["rows"]}
    assert rows["error"] == 'a|b, "c"\nd \ufffd' and rows["status"] == "complete" and rows["samples_per_s"] > 0


def test_digits_reach_95_percent(program):
    made = subprocess.run([os.environ["SHARDMARK_PYTHON"], SOURCE / "scripts" / "prepare_data.py", "digits", "-o", "digits.h5"],
                          cwd=program.folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    data = (f"data.path={program.folder / 'digits.h5'}", f"data.eval_path={program.folder / 'digits.eval.h5'}")
    for technique, ranks in (("single", 1), ("ddp", 2), ("zero1", 2), ("zero2", 2), ("zero3", 2), ("fsdp", 2)):
        path = program.train(ranks, "mlp-digits", technique, *data, technique=technique)
        summary = table(path, "summary").iloc[0]
        assert summary.quality_name == b"accuracy" and summary.quality_value >= 0.95


@pytest.mark.parametrize("technique", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_evaluation_under_every_technique(program, technique, compute):
    """One held-out row, fewer than ranks; and many more than one pass takes. Nothing that was gathered for it stays."""
    rows = numpy.random.default_rng(1).normal(size=(700, 64))
    write_vectors(program.folder / "train.h5", rows, numpy.arange(700) % 10)
    for number in (1, 700):
        write_vectors(program.folder / f"eval{number}.h5", rows[:number], numpy.arange(number) % 10)
        path = program.train(2, "mlp-digits", f"n{number}", *QUICK, f"precision.compute={compute}", f"data.path={program.folder / 'train.h5'}",
                             f"data.eval_path={program.folder / f'eval{number}.h5'}", technique=technique)
        assert 0 <= table(path, "summary").iloc[0].quality_value <= 1
        gathered = table(path, "memory").query("category == b'gathered' and phase == b'run'")
        assert len(gathered) == 2 and (gathered.current_bytes == 0).all()


def test_list_and_print_config(program):
    assert "mlp-digits" in program.alone("list").stdout
    keys = program.alone("list", "--keys").stdout
    shown = program.alone("run", "mlp", "--set", "optimizer.lr=0.5", "--print-config").stdout
    assert "optimizer.lr" in keys and "lr = 0.5" in shown and "# --set" in shown and "# preset mlp" in shown
    (program.folder / "case.toml").write_text(shown + '\n')
    again = program.alone("run", "case.toml", "--print-config")
    assert again.returncode == 0 and "lr = 0.5" in again.stdout
