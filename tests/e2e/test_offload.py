"""The optimizer's states in host memory: the same training, and memory as planned."""

import json

import pytest
from conftest import table

QUICK = ("measure.warmup_steps=1", "measure.steps=3", "measure.blocks=1")
OFFLOAD = "technique.offload=optimizer"


def bits(path):
    return table(path, "steps").sort_values(["step", "rank"])[["loss", "grad_norm", "applied"]].to_numpy().tobytes()


@pytest.mark.parametrize("ranks, technique, sets", [
    (1, "single", ()),
    (2, "ddp", ("technique.bucket_mb=0.05", "data.accumulation=2")),
    (3, "ddp", ("optimizer.name=adamw8bit", "precision.compute=bf16", "technique.bucket_mb=0.05")),
    (2, "zero1", ("optimizer.name=sgd", "optimizer.momentum=0.9", "precision.compute=bf16")),
    (3, "zero3", ("data.accumulation=2", "technique.accumulation=no_sync")),
    (2, "fsdp", ("optimizer.name=adamw8bit",)),
])
def test_training_is_the_same(program, ranks, technique, sets):
    """With clipping, and a step left out because its gradients are not finite."""
    sets = (*QUICK, "numerics.reduction=ordered", "numerics.on_nonfinite=skip", "optimizer.clip_norm=0.05", *sets)
    fault = {"SHARDMARK_FAULT": f"{ranks - 1}:backward:2:nan"}
    train = lambda name, *more: program.train(ranks, "lm10m-tiny", name, *sets, *more, technique=technique, env=fault)
    plain, offloaded, again = train("plain"), train("offloaded", OFFLOAD), train("again", OFFLOAD)
    assert bits(plain) == bits(offloaded) == bits(again)
    applied = table(plain, "steps").sort_values("step").groupby("step").applied.first()
    assert list(applied) == [1, 1, 0, 1]
    memory = table(offloaded, "memory").query("phase == b'run'").groupby("category").peak_bytes.min()
    assert memory[b"optimizer_state"] == 0 and memory[b"offloaded"] > 0
    checks = table(offloaded, "checks")
    mine = checks[[name.startswith(b"persistent_bytes_offloaded") for name in checks.name]]
    assert len(mine) == ranks and (mine.expected > 0).all() and (mine.found == mine.expected).all()


@pytest.mark.parametrize("technique", ["zero2", "fsdp"])
def test_plan_predicts_what_a_run_holds(program, technique):
    options = ("lm10m-tiny", "--gpus", "3", "--set", "data.global_batch=12", "--set", "data.micro_batch=0")
    plan = {}
    for offload in ("none", "optimizer"):
        done = program.alone("plan", *options, "--set", f"technique.offload={offload}", "--format", "json")
        assert done.returncode == 0, done.stderr
        plan[offload] = {row["category"]: row for row in json.loads(done.stdout)["rows"]
                         if row["technique"] == technique and row["phase"] == "run"}
    with_states, without = plan["none"], plan["optimizer"]
    states = with_states["optimizer_state"]["persistent_bytes"]
    assert with_states["offloaded"]["persistent_bytes"] == 0 and without["optimizer_state"]["persistent_bytes"] == 0
    assert without["offloaded"]["persistent_bytes"] > states > 0
    assert without["total"]["predicted_bytes"] == with_states["total"]["predicted_bytes"] - states
    path = program.train(3, "lm10m-tiny", technique, *QUICK, OFFLOAD, "data.global_batch=12", "data.micro_batch=0", technique=technique)
    memory = table(path, "memory").query("phase == b'run' and category == b'offloaded'")
    assert (memory.current_bytes == without["offloaded"]["persistent_bytes"]).all()
    # What has to fit is where training runs: between the two totals only the offloaded one does.
    between = (with_states["total"]["predicted_bytes"] - states / 2) / 2**30
    for offload, fits in (("none", "no"), ("optimizer", "before activations")):
        done = program.alone("plan", *options, "--memory", f"{between:.9f}", "--set", f"technique.offload={offload}", "--format", "json")
        assert {row["fits"] for row in json.loads(done.stdout)["rows"] if row["technique"] == technique} == {fits}


def test_plan_names_the_rank_that_holds_most(program):
    """8-bit states of small tensors stay fp32, so ranks hold unlike amounts, and here not the first one most."""
    options = ("optimizer.name=adamw8bit", "data.global_batch=12", "data.micro_batch=0", OFFLOAD)
    done = program.alone("plan", "lm10m-tiny", "--gpus", "3", "--format", "json", *(word for one in options for word in ("--set", one)))
    planned = next(row["persistent_bytes"] for row in json.loads(done.stdout)["rows"]
                   if (row["technique"], row["phase"], row["category"]) == ("zero2", "run", "offloaded"))
    path = program.train(3, "lm10m-tiny", "run", *QUICK, *options, technique="zero2")
    held = table(path, "memory").query("phase == b'run' and category == b'offloaded'").set_index("rank").current_bytes
    assert held.max() == planned > held[0]


def test_offloaded_and_plain_records_are_compared(program):
    """A setting of the technique, as buckets are: it changes speed and memory, not what is computed."""
    steps = ("measure.warmup_steps=3", "measure.steps=5", "measure.blocks=1")
    plain, offloaded = program.train(1, "mlp", "plain", *steps), program.train(1, "mlp", "offloaded", *steps, OFFLOAD)
    done = program.alone("compare", plain, offloaded, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert all(row["ratio"] > 0 for row in json.loads(done.stdout)["rows"])


def test_nothing_to_offload_is_refused(program):
    for command in (("run", "mlp", "-o", "x.h5"), ("plan", "mlp", "--gpus", "2")):
        done = program.alone(*command, "--set", OFFLOAD, "--set", "optimizer.name=sgd")
        assert done.returncode == 2 and "nothing to offload" in done.stderr and "optimizer.momentum" in done.stderr
    assert not (program.folder / "x.h5").exists()
