"""The MLP against numbers of the public implementation, and against itself over rank counts and settings."""

import json
import sys

import numpy
import pytest
from conftest import SOURCE, losses, read_safetensors, table, write_vectors

FIXTURE = SOURCE / "tests" / "fixtures" / "mlp"
BATCH = 12
FIXED = ("model.dropout=0", f"data.global_batch={BATCH}", "data.micro_batch=0", "data.shuffle=false",
         "measure.warmup_steps=0", "measure.steps=7", "measure.blocks=1")


@pytest.fixture
def reference():
    return json.loads((FIXTURE / "reference.json").read_text()), read_safetensors(FIXTURE / "reference.safetensors")


@pytest.fixture
def recipe(program, reference):
    """Settings of the fixture: its weights, its batches in order; step 6 sees batch 0 again, as the next epoch does."""
    _, tensors = reference
    inputs = next(tensors[name] for name in tensors if tensors[name].shape == (6, BATCH, 10))
    targets = next(tensors[name] for name in tensors if tensors[name].shape == (6, BATCH, 1))
    write_vectors(program.folder / "data.h5", inputs.reshape(-1, 10), targets.reshape(-1, 1).astype(numpy.float32))
    return (*FIXED, f"data.path={program.folder / 'data.h5'}", f"model.checkpoint={FIXTURE}")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("reduction", ["fast", "ordered"])
def test_trajectory(program, reference, recipe, ranks, reduction):
    facts, tensors = reference
    gradients = program.folder / "gradients"
    path = program.train(ranks, "mlp", "fixture", *recipe, f"numerics.reduction={reduction}", f"output.gradients={gradients}")
    tolerance = facts["tolerances"]
    numpy.testing.assert_allclose(losses(path), facts["trajectory_loss"], rtol=tolerance["loss_rel"])
    norms = table(path, "steps").groupby("step").grad_norm.first().to_numpy()[:6]
    numpy.testing.assert_allclose(norms, facts["trajectory_grad_norm"], rtol=tolerance["grad_norm_rel"])
    found = read_safetensors(gradients / "gradients.safetensors")
    expected = {name[len("grad."):]: value for name, value in tensors.items() if name.startswith("grad.")}
    assert set(found) == set(expected) and len(found) == 6
    for name, value in expected.items():
        difference = numpy.linalg.norm(found[name].astype(float) - value) / numpy.linalg.norm(value.astype(float))
        assert difference <= tolerance["grad_tensor_rel_l2"], name


@pytest.mark.parametrize("technique", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
def test_final_weights(program, reference, recipe, technique):
    facts, tensors = reference
    program.train(3, "mlp", "final", *(s.replace("steps=7", "steps=6") for s in recipe), f"checkpoint.export={program.folder / 'out'}",
                  technique=technique)
    exported = read_safetensors(program.folder / "out" / "model.safetensors")
    assert sum(value.size for value in exported.values()) == facts["parameters"]
    for name, value in exported.items():
        total, squares = tensors[f"final_checksum.{name}"]
        assert abs(value.astype(float).sum() - total) <= facts["tolerances"]["final_sum_abs"], name
        assert abs((value.astype(float) ** 2).sum() / squares - 1) <= facts["tolerances"]["final_sumsq_rel"], name


BITS = ("data.global_batch=36", "data.micro_batch=0", "measure.steps=4", "measure.blocks=2", "optimizer.clip_norm=0.5",
        "numerics.reduction=ordered")


def bits(path):
    return table(path, "steps").sort_values(["step", "rank"])[["loss", "grad_norm"]].to_numpy().tobytes()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_same_bits_twice_and_without_overlap(program, ranks):
    first = bits(program.train(ranks, "mlp-digits", "a", *BITS, "technique.bucket_mb=0.01"))
    assert first == bits(program.train(ranks, "mlp-digits", "b", *BITS, "technique.bucket_mb=0.01"))
    assert first == bits(program.train(ranks, "mlp-digits", "c", *BITS, "technique.bucket_mb=0.01", "technique.overlap=false"))


@pytest.mark.parametrize("accumulation", ["sync", "no_sync"])
def test_losses_agree_over_rank_counts(program, accumulation):
    settings = ("data.global_batch=36", "measure.warmup_steps=0", "measure.steps=10", "measure.blocks=1",
                "model.dropout=0.2", "optimizer.clip_norm=0.5")
    alone = losses(program.train(1, "mlp-digits", "alone", *settings, "data.micro_batch=0", technique="single"))
    spread = abs(losses(program.train(1, "mlp-digits", "rows", *settings, "data.micro_batch=1", technique="single")) / alone - 1)
    # 20 x the spread of equally right runs on one rank, but not below 2e-6.
    bound = numpy.maximum(20 * spread, 2e-6)
    for ranks in (1, 2, 3, 4):
        found = losses(program.train(ranks, "mlp-digits", f"n{ranks}", *settings, "data.micro_batch=0", "data.accumulation=3",
                                     f"technique.accumulation={accumulation}"))
        difference = abs(found / alone - 1)
        print(f"{ranks} ranks, {accumulation}: largest difference {difference.max():.2e}, bound {bound.min():.2e} to {bound.max():.2e}")
        assert (difference <= bound).all()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
