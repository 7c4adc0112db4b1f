"""The size ladder lm-1m to lm-1b: one rule, and what `plan` says of models that are too large to train here."""

import json
import subprocess
import sys
import tomllib

import pytest
from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "scripts"))
import ladder  # noqa: E402


def read(preset):
    return tomllib.loads((SOURCE / "workloads" / "presets" / f"{preset}.toml").read_text())


def test_presets_are_what_the_rule_gives():
    there = {path.stem for path in (SOURCE / "workloads" / "presets").glob("lm-*.toml")}
    assert there == {f"lm-{name}" for name in ladder.STEPS}, "scripts/ladder.py --write"
    for name in ladder.STEPS:
        path = SOURCE / "workloads" / "presets" / f"lm-{name}.toml"
        assert path.read_text() == ladder.preset(name), "scripts/ladder.py --write"


def test_rule_gives_lm10m():
    assert read("lm-10m") | {"description": ""} == read("lm10m") | {"description": ""}


@pytest.mark.parametrize("name", ladder.STEPS)
def test_plan_counts_the_parameters_of_a_step(program, name):
    width, layers = ladder.shape(ladder.STEPS[name])
    total = ladder.parameters(width, layers)
    # Widths are multiples of 32 or 64: what whole layers leave over is less than half a layer.
    layer = ladder.parameters(width, 1) - ladder.parameters(width, 0)
    assert abs(total - ladder.STEPS[name]) <= layer / 2
    done = program.alone("plan", f"lm-{name}", "--gpus", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(done.stdout)["rows"] if row["technique"] == "single" and row["phase"] == "run"
            and row["category"] == "parameters"]
    # fp32; every tensor's size is a multiple of 16 elements, so there is no padding.
    assert [row["persistent_bytes"] for row in rows] == [4 * total]


def test_steps_grow_and_heads_fill_the_width():
    shapes = [ladder.shape(wanted) for wanted in ladder.STEPS.values()]
    assert shapes == sorted(shapes), "wider, and not flatter, from step to step"
    for name in ladder.STEPS:
        model = read(f"lm-{name}")["model"]
        assert model["num_attention_heads"] * model["head_dim"] == model["hidden_size"]
        assert model["intermediate_size"] % 16 == 0 and model["vocab_size"] == 8192


def test_script_prints_the_steps():
    done = subprocess.run([sys.executable, SOURCE / "scripts" / "ladder.py"], capture_output=True, text=True)
    assert done.returncode == 0 and "lm-10m" in done.stdout and "10,007,808" in done.stdout, done.stderr
