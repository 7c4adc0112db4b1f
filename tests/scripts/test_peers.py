"""The arithmetic and the refusals of scripts/peers, without training anything."""

import csv
import io
import os
import pathlib
import stat
import subprocess
import sys

import numpy
import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
PEERS = SOURCE / "scripts" / "peers"
sys.path[:0] = [str(PEERS), str(PEERS.parent)]
import measure  # noqa: E402
import measuring  # noqa: E402
import record  # noqa: E402
import settings  # noqa: E402
import train  # noqa: E402
from measuring import RANKS  # noqa: E402
from problem import DataProblem  # noqa: E402


@pytest.mark.parametrize("line, expected", [
    ('lr = 0.001                     # default', ("lr", "0.001", "default")),
    ('path = "a # b.h5"              # --set', ("path", '"a # b.h5"', "--set")),
    ('betas = [0.9, 0.999]           # file x # y.toml', ("betas", "[0.9, 0.999]", "file x # y.toml")),
])
def test_a_line_of_the_configuration(line, expected):
    assert settings.split_line(line) == expected


def test_configuration_is_parsed_with_its_origins():
    text = '# preset mlp\ndefinition_version = 3\n\n[data]\npath = "x"      # --set\nmicro_batch = 4   # preset mlp\n'
    config, rows, plain = settings.parse(text)
    assert config == {"definition_version": 3, "data": {"path": "x", "micro_batch": 4}}
    assert rows == [{"key": "data.path", "value": '"x"', "origin": "--set"},
                    {"key": "data.micro_batch", "value": "4", "origin": "preset mlp"}]
    assert "# --set" not in plain and plain.startswith("# preset mlp\n")


def config_of(**data):
    config = {"data": {"global_batch": 0, "micro_batch": 0, "accumulation": 0, **data}}
    for key, value in settings.FIXED.items():
        section, name = key.split(".")
        config.setdefault(section, {})[name] = value
    config["optimizer"]["name"] = "adamw"
    return config


def test_batch_is_shardmarks():
    assert settings.check(config_of(micro_batch=4), 3) == (12, 4)
    assert settings.check(config_of(global_batch=12), 3) == (12, 4)
    assert settings.check(config_of(global_batch=12, micro_batch=4, accumulation=1), 3) == (12, 4)


@pytest.mark.parametrize("data", [{"global_batch": 12, "micro_batch": 2}, {"global_batch": 13}, {"micro_batch": 4, "accumulation": 2}])
def test_more_than_one_micro_step_is_refused(data):
    with pytest.raises(DataProblem, match="one micro-step"):
        settings.check(config_of(**data), 2)


def test_everything_a_peer_lacks_is_named_at_once():
    config = config_of(micro_batch=4)
    config["optimizer"]["clip_norm"] = 1.0
    config["precision"]["compute"] = "bf16"
    with pytest.raises(DataProblem, match="precision.compute = bf16: peers support fp32; optimizer.clip_norm = 1.0"):
        settings.check(config, 2)


def test_an_optimizer_that_peers_lack_is_refused():
    """DeepSpeed's Adam would take its place without a word."""
    config = config_of(micro_batch=4)
    config["optimizer"]["name"] = "adamw8bit"
    with pytest.raises(DataProblem, match="optimizer.name = adamw8bit: peers support sgd, adam, adamw"):
        settings.check(config, 2)


def test_checks_see_unequal_replicas_and_losses_that_are_not_finite():
    def passed(ranks, losses):
        return {check["name"]: check["passed"] for check in train.checks_of([{"replica": one} for one in ranks], losses)}
    assert passed("aa", [1.0, 2.0]) == {"loss_finite": 1, "replicas_equal": 1}
    assert passed("ab", [1.0, float("nan")]) == {"loss_finite": 0, "replicas_equal": 0}
    assert passed([None, None], [1.0]) == {"loss_finite": 1}, "shards have no replica to compare"


def test_a_failed_check_takes_the_throughput():
    rows = record.make_rows("steps", [
        {"block": step - 3, "step": step, "rank": rank, "timed": int(step >= 3), "total_s": 0.1 + 0.1 * rank, "loss": 1.0, "applied": 1,
         "samples": 4, "tokens": 8} for step in range(5) for rank in range(2)])
    good = record.summarise(rows, 2, warmed_up=True, passed=True)
    assert good["samples_per_s"] == pytest.approx(16 / 0.4) and good["tokens_per_s_per_gpu"] == pytest.approx(32 / 0.4 / 2)
    assert good["step_time_median_s"] == pytest.approx(0.2), "the slower rank's"
    for arguments in ({"warmed_up": True, "passed": False}, {"warmed_up": False, "passed": True}):
        assert "samples_per_s" not in record.summarise(rows, 2, **arguments)


def test_what_a_row_lacks_is_missing():
    (row,) = record.make_rows("memory", [{"rank": 1, "phase": "run", "category": "h\u00e9" * 20}])
    assert row["predicted_bytes"] == -1 and row["category"].decode() == ("h\u00e9" * 20).encode()[:23].decode(errors="ignore")
    assert numpy.isnan(record.make_rows("checks", [{}])["found"][0])


def test_bound_of_losses_is_the_largest_spread_so_far():
    bounds = measure.loss_bounds([1.0, 1.0, 1.0, 1.0], [1.0, 1 + 1e-6, 1.0, 1 + 2e-6])
    assert bounds == pytest.approx([2e-6, 2e-5, 2e-5, 4e-5], rel=1e-6)


@pytest.mark.parametrize("losses, said", [
    ([1.0, 1 + 1e-5], ""), ([1 + 3e-6, 1.0], "DEPART at step 0"), ([1.0, 1 + 3e-5], "DEPART at step 1"), ([1.0, float("nan")], "step 1")])
def test_a_departing_loss_is_found(losses, said):
    found = measure.departure(losses, {"losses": [1.0, 1.0], "bounds": numpy.array([2e-6, 2e-5])})
    assert found.startswith("DEPART") and said in found if said else found == ""


def test_what_is_read_of_a_record(tmp_path):
    ranks = range(2)
    message = {"purpose": "gradient", "operation": "all_reduce", "message_bytes": 4000, "count": 8, "wire_bytes": 8 * 4000.0}
    others = ({"dtype": "bf16"}, {"purpose": "parameter", "operation": "all_gather", "wire_bytes": 4 * 2000.0, "count": 4},
              {"purpose": "control", "message_bytes": 16, "wire_bytes": 64.0, "count": 4})
    record.write_record(tmp_path / "x.h5", {}, "x", {
        "config_keys": [{"key": "model.layers", "value": "3"}, {"key": "peer", "value": '"torch 2 DDP"'}],
        "steps": [{"step": step, "rank": rank, "timed": int(step > 0), "loss": 10.0 * step + rank} for step in range(5) for rank in ranks],
        "collectives": [{**message, **other, "rank": rank} for rank in ranks for other in ({}, *others)],
        "memory": [{"category": category, "peak_bytes": 100 * rank + more} for rank in ranks for category, more in (("host_rss", 7), ("total", 900))],
        "summary": [{"step_time_median_s": 0.25, "oversubscribed": 1}]})
    # Of rank 0 in each of the four timed steps: both types of all-reduce, and the gather.
    assert measuring.read_record(tmp_path / "x.h5") == {
        "step_s": 0.25, "oversubscribed": True, "losses": [0, 10, 20, 30, 40], "resident_bytes": 107, "layers": 3, "peer": "torch 2 DDP",
        "collectives_per_step": 6, "payload": {("all_reduce", 4000): 16000.0, ("all_gather", 4000): 2000.0}}


CONFIG = "# preset mlp-digits\n\n[data]\nglobal_batch = {}   # default\nmicro_batch = {}   # default\n"


@pytest.mark.parametrize("given, micro, whole, share", [(96, 0, 96, ["data.global_batch=48"]), (0, 4, 8, [])])
def test_a_twin_computes_what_one_rank_does(monkeypatch, tmp_path, given, micro, whole, share):
    runs = {}

    def train(folder, name, preset, technique, ranks, sets):
        assert technique == "single" and ranks == 1
        runs[name] = sets
        return {"losses": [1.0, 1.0] if name.endswith("whole") else [1.0, 1 + 1e-6]}
    monkeypatch.setattr(measure, "prepare", lambda preset: "rows.h5")
    monkeypatch.setattr(measure, "ask_program", lambda *_: CONFIG.format(given, micro))
    monkeypatch.setattr(measure, "train", train)
    case = measure.prepare_case(tmp_path, "mlp-digits", quick=False)
    same = ["data.path=rows.h5", f"model.checkpoint={tmp_path / 'mlp-digits-weights'}"]
    assert case["sets"] == same and case["share"] == share
    assert case["losses"] == [1.0, 1.0] and case["bounds"] == pytest.approx([2e-6, 2e-5], rel=1e-6)
    assert runs["mlp-digits-start"][-1] == f"checkpoint.export={tmp_path / 'mlp-digits-weights'}"
    # The same batch as both sides' two ranks, whole and row by row.
    for name, micro_batch in (("whole", 0), ("rows", 1)):
        assert {*same, f"data.global_batch={whole}", f"data.micro_batch={micro_batch}"} <= set(runs[f"mlp-digits-{name}"])


def test_limit_is_compute_beside_another_and_payload_over_speed(monkeypatch, tmp_path):
    asked = []

    def train(folder, name, preset, technique, ranks, sets):
        asked.append(("ours", technique, ranks, sets))
        return {"step_s": 0.5, "payload": {("all_gather", 4000): 6000.0}}

    def train_peer(folder, name, preset, technique, sets, peer):
        asked.append(("peer", technique, RANKS, sets))
        return {"step_s": 0.75}

    def train_twins(folder, name, preset, ranks, sets):
        asked.append(("twins", preset, ranks, sets))
        return 0.25
    for function in (train, train_peer, train_twins):
        monkeypatch.setattr(measure, function.__name__, function)
    monkeypatch.setattr(measure, "collective_times", lambda payloads: {which: 0.01 for payload in payloads for which in payload})
    cases = {"mlp": {"sets": ["a=1"], "share": ["data.global_batch=4"]}}
    found = measure.run_round(tmp_path, 0, [("mlp", "zero3")], cases, None)
    # 2000 nominal bytes a gather of two ranks, so three of them.
    assert found["mlp", "zero3"]["limit_s"] == pytest.approx(0.25 + 3 * 0.01)
    both = ["a=1", "technique.profile=deepspeed"]
    assert asked == [("ours", "zero3", RANKS, both), ("peer", "zero3", RANKS, both),
                     ("twins", "mlp", RANKS, ["a=1", "data.global_batch=4"])]
    asked.clear()
    measure.run_round(tmp_path, 1, [("mlp", "zero3")], cases, None)
    assert [side for side, *_ in asked] == ["peer", "ours", "twins"], "in turn first"


def one_round(ours_s, peer_s, peer_loss=1.0):
    return {("mlp", "ddp"): {
        "ours": {"step_s": ours_s, "losses": [1.0], "resident_bytes": 2**20},
        "peer": {"step_s": peer_s, "losses": [peer_loss], "resident_bytes": 3 * 2**20, "peer": "torch 2 DDP"}, "limit_s": ours_s / 2}}


def test_row_holds_medians_and_the_interval_of_the_ratio():
    case = {"losses": [1.0], "bounds": numpy.array([2e-6])}
    rounds = [one_round(1e-3, ratio * 1e-3) for ratio in (2, 3, 4, 5, 6, 7, 80)]
    row = measure.row_of(("mlp", "ddp"), rounds, case)
    assert row["ratio"] == pytest.approx(5) and row["low"] == pytest.approx(2) and row["high"] == pytest.approx(80)
    assert row["coverage"] == pytest.approx(1 - 2 / 128) and row["peer_ms"] == pytest.approx(5) and row["ours_over_limit"] == pytest.approx(2)
    assert row["peer_resident_mib"] == 3 and row["losses"] == "agree"


def test_speed_of_a_departing_peer_is_not_compared():
    case = {"losses": [1.0], "bounds": numpy.array([2e-6])}
    row = measure.row_of(("mlp", "ddp"), [one_round(1e-3, 5e-3)] * 6 + [one_round(1e-3, 5e-3, peer_loss=1.1)], case)
    assert "peer: DEPART at step 0" in row["losses"]
    assert row["ratio"] is None and row["peer_ms"] is None and row["ours_ms"] == pytest.approx(1)
    assert "| - |" in measure.as_markdown([row], "heading")
    lines = measure.as_csv([row], "on a machine\nand a date").splitlines()
    assert lines[:2] == ["# on a machine", "# and a date"]
    assert next(csv.DictReader(io.StringIO("\n".join(lines[2:]))))["preset"] == "mlp"


def test_our_own_departing_losses_are_marked_too():
    case = {"losses": [1.0], "bounds": numpy.array([2e-6])}
    rounds = [one_round(1e-3, 5e-3) for _ in range(7)]
    rounds[3]["mlp", "ddp"]["ours"]["losses"] = [1.1]
    row = measure.row_of(("mlp", "ddp"), rounds, case)
    assert row["losses"].startswith("ours: DEPART at step 0") and row["ratio"] is None


def test_unknown_cells_and_too_few_pairs_are_refused(capsys):
    assert measure.parse_cells("mlp:ddp,lm10m:zero3") == [("mlp", "ddp"), ("lm10m", "zero3")]
    for bad in ("mlp", "mlp:single", "nothing:ddp"):
        with pytest.raises(SystemExit) as stopped:
            measure.parse_cells(bad)
        assert stopped.value.code == 2 and bad in capsys.readouterr().err
    done = subprocess.run([sys.executable, PEERS / "measure.py", "--pairs", "6"], capture_output=True, text=True)
    assert done.returncode == 2 and "at least 7" in done.stderr


def test_what_cannot_be_written_is_refused_before_measuring(tmp_path):
    (tmp_path / "old.md").write_text("hours of measuring")
    (tmp_path / "empty").mkdir()
    measure.check_new(tmp_path / "new.md", tmp_path / "empty")
    measure.check_new(None, tmp_path / "new")
    for option, path, said in (("-o", "old.md", "exists"), ("-o", "none/new.md", "does not exist"),
                               ("--records", ".", "exists"), ("--records", "none/new", "does not exist")):
        done = subprocess.run([sys.executable, PEERS / "measure.py", "--quick", "--cells", "mlp:ddp", option, tmp_path / path],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and said in done.stderr and option in done.stderr, done.stderr
    assert (tmp_path / "old.md").read_text() == "hours of measuring"


def test_a_record_is_not_overwritten_unasked(tmp_path):
    path = tmp_path / "peer.h5"
    settings.check_output(path, {"output": {"overwrite": False}})
    path.write_text("old")
    settings.check_output(path, {"output": {"overwrite": True}})
    with pytest.raises(DataProblem, match="peer.h5 exists: choose another name, or --set output.overwrite=true"):
        settings.check_output(path, {"output": {"overwrite": False}})


def fake_python(folder, lacks, extra=""):
    """A Python that says what it lacks, DeepSpeed where it is asked for that, and fails at everything else."""
    path = folder / "python"
    asked = f"case $* in *deepspeed*) echo deepspeed ;; *) echo '{lacks}' ;; esac"
    path.write_text(f"#!/bin/bash\nif [[ $1 == - ]]; then {asked}; exit 0; fi\n{extra}\nexit 1\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_setup_names_what_a_python_lacks(tmp_path):
    python = fake_python(tmp_path, "torch h5py")
    done = subprocess.run([PEERS / "setup.sh"], env={**os.environ, "SHARDMARK_PEER_PYTHON": str(python)}, capture_output=True, text=True)
    assert done.returncode == 5 and "lacks torch h5py" in done.stderr and done.stdout == ""


def test_setup_without_network_says_how_to_supply_deepspeed(tmp_path):
    python = fake_python(tmp_path, "", 'if [[ $2 == *version_info* ]]; then echo cp311; exit 0; fi')
    environment = {**os.environ, "SHARDMARK_PEER_PYTHON": str(python), "SHARDMARK_DEPS": str(tmp_path / "deps")}
    done = subprocess.run([PEERS / "setup.sh", "--deepspeed"], env=environment, capture_output=True, text=True)
    assert done.returncode == 5
    for part in ("100 MB on disk", "PIP_FIND_LINKS", "SHARDMARK_PEER_PYTHON", "--cells"):
        assert part in done.stderr
    assert not (tmp_path / "deps" / "peers" / "cp311").exists(), "nothing half-made under the final name"
