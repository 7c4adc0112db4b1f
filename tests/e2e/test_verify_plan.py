"""`verify` proves, and fails when something is wrong; `plan` predicts what a run then measures."""

import json

import pytest
from conftest import table

QUICK = ("measure.warmup_steps=1", "measure.steps=3", "measure.blocks=1")


def rows(done):
    return json.loads(done.stdout)["rows"]


def test_verify_proves_all_techniques(program):
    done = program.ranks(2, "verify", "mlp-digits", "--quick", "--set", "data.micro_batch=6", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = rows(done)
    assert {row["technique"] for row in found} == {"ddp", "zero1", "zero2", "zero3", "fsdp"}
    assert all(row["result"] == "passed" for row in found) and json.loads(done.stdout)["verdict"] == "passed"
    for technique in ("zero1", "zero2", "zero3", "fsdp"):
        checks = [row["check"] for row in found if row["technique"] == technique]
        assert {"bits of parameters", "bits of gradients", "loss of step 0", "payload_bytes_per_step",
                "persistent_bytes_optimizer_state"} <= set(checks)


def test_verify_sees_a_wrong_gradient(program):
    # The flipped bit of one rank's parameters spreads over the next step: replicas, bits and bounds tell.
    done = program.ranks(2, "verify", "mlp", "--quick", env={"SHARDMARK_FAULT": "1:optimizer:1:bitflip:3"})
    assert done.returncode == 8


def test_verify_fails_on_what_its_table_shows(program):
    # A step that one technique leaves out: nothing throws, but its losses and parameters are others than one rank's.
    done = program.ranks(2, "verify", "mlp", "--quick", "--format", "json", "--set", "numerics.on_nonfinite=skip",
                         env={"SHARDMARK_FAULT": "1:backward:1:nan"})
    results = {row["result"] for row in rows(done)}
    assert done.returncode == 8 and json.loads(done.stdout)["verdict"] == "failed", done.stderr
    assert any(result.startswith("FAILED") for result in results) and "passed" in results


@pytest.mark.parametrize("ranks, technique", [(1, "single"), (2, "zero1"), (2, "zero2"), (2, "ddp"), (3, "zero1")])
@pytest.mark.parametrize("bucket_mb", [0.01, 0.05, 0.1])
def test_buckets_stay_within_their_prediction_wherever_they_are_cut(program, ranks, technique, bucket_mb):
    # The final norm's gradient comes first though it is declared second; gate and up of one block come in another order than
    # they are declared in: buckets that span units are open longer than the order of declaration says.
    path = program.train(ranks, "lm10m-tiny", "x", *QUICK, "data.global_batch=12", "data.micro_batch=2", f"technique.bucket_mb={bucket_mb}",
                         technique=technique)
    checks = table(path, "checks")
    mine = checks[[name.startswith(b"peak_bytes_buckets") for name in checks.name]]
    assert len(mine) == ranks and (mine.passed == 1).all()
    assert technique == "ddp" or (mine.found > 0).all() or ranks == 1


def test_a_budget_too_small_is_told_by_plan_and_run_alike(program):
    sets = ("--set", "technique.live_parameters_mb=0.01")
    planned = program.alone("plan", "lm10m-tiny", "--gpus", "2", *sets)
    ran = program.ranks(2, "run", "lm10m-tiny", "--technique", "fsdp", *sets, "-o", "x.h5")
    for done in (planned, ran):
        assert done.returncode == 2 and "through a pass stay root" in done.stderr and "invariant" not in done.stderr, done.stderr
    needed = ran.stderr.split("at least ")[1].split(" MiB")[0]
    again = program.ranks(2, "run", "lm10m-tiny", "--technique", "fsdp", "--set", f"technique.live_parameters_mb={needed}",
                          *[x for s in QUICK for x in ("--set", s)], "-o", "x.h5")
    assert again.returncode == 0, "what the message asks for is enough"


def test_verify_refuses_bad_input(program):
    done = program.ranks(2, "verify", "mlp", "--set", "optimizer.lr=fast")
    assert done.returncode == 2 and "optimizer.lr" in done.stderr


@pytest.mark.parametrize("technique", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
def test_plan_predicts_what_a_run_measures(program, technique):
    sets = ("data.global_batch=36", "data.micro_batch=0", "precision.compute=bf16")
    planned = program.alone("plan", "lm10m-tiny", "--gpus", "3", "--format", "json", *[x for s in sets for x in ("--set", s)])
    assert planned.returncode == 0, planned.stderr
    plan = {row["category"]: row for row in rows(planned) if row["technique"] == technique and row["phase"] == "run"}
    path = program.train(3, "lm10m-tiny", technique, *QUICK, *sets, technique=technique)
    memory = table(path, "memory")
    memory = memory[memory.phase == b"run"]
    for category in ("parameters", "gradients", "optimizer_state"):
        found = memory[memory.category == category.encode()].current_bytes
        assert (found == plan[category]["persistent_bytes"]).all(), category
    gathered = memory[memory.category == b"gathered"].peak_bytes
    assert (gathered == plan["gathered"]["predicted_bytes"]).all()
    buckets = memory[memory.category == b"buckets"].peak_bytes
    assert (buckets <= plan["buckets"]["predicted_bytes"]).all()
    if technique == "ddp":  # its buckets are rebuilt after step 0, and padded otherwise than planned
        assert table(path, "summary").wire_bytes_per_step[0] == pytest.approx(plan["total"]["wire_bytes_per_step"], rel=1e-2)
    else:
        assert table(path, "summary").wire_bytes_per_step[0] == pytest.approx(plan["total"]["wire_bytes_per_step"], rel=1e-12)


def test_plan_says_what_fits(program):
    done = program.alone("plan", "lm10m", "--gpus", "8", "--memory", "0.05", "--format", "json")
    fits = {row["technique"]: row["fits"] for row in rows(done)}
    assert done.returncode == 0 and fits["ddp"] == "no" and fits["zero3"] == "before activations"
    done = program.alone("plan", "lm10m", "--gpus", "8", "--memory", "0.0001", "--format", "json")
    assert done.returncode == 0 and "nothing fits" in json.loads(done.stdout)["verdict"]
    assert program.alone("plan", "lm10m", "--gpus", "0").returncode == 2


def test_a_live_budget_holds(program):
    unlimited = program.train(2, "lm10m-tiny", "free", *QUICK, "technique.prefetch=3", technique="fsdp")
    most = lambda path: table(path, "memory").query("phase == b'run' and category == b'gathered'").peak_bytes.max()
    budget_mb = most(unlimited) / 2**20 * 0.9
    path = program.train(2, "lm10m-tiny", "held", *QUICK, "technique.prefetch=3", f"technique.live_parameters_mb={budget_mb}",
                         technique="fsdp")
    assert most(path) <= budget_mb * 2**20 < most(unlimited)
    done = program.ranks(2, "run", "lm10m-tiny", "--technique", "fsdp", "-o", "no.h5", "--set", "technique.live_parameters_mb=0.01")
    assert done.returncode == 2 and "live_parameters_mb" in done.stderr and "root" in done.stderr
    assert not (program.folder / "no.h5").exists()


@pytest.mark.parametrize("key, value, part", [("technique.shard_group", "3", "1, 2, 4"), ("technique.reshard_after_forward", "3", "2"),
                                              ("technique.reshard_after_forward", "4", "2")])
def test_groups_that_do_not_divide_are_refused(program, key, value, part):
    done = program.ranks(4, "run", "mlp", "--technique", "fsdp", "-o", "x.h5", "--set", f"{key}={value}")
    assert done.returncode == 2 and key in done.stderr and part in done.stderr
    assert not any(program.folder.iterdir())
