"""RetinaNet against numbers of the public implementation at any number of ranks and under every technique.

Trajectory `frozen` uses running statistics (of v2: batch_norm = eval, of v1: frozen), `train` those of the whole batch (sync).
"""

import sys

import numpy
import pytest
from conftest import losses, table
from detection_data import Fixture, read_safetensors

TECHNIQUES = ["single", "ddp", "zero1", "zero2", "zero3", "fsdp"]
STEPS = ("data.global_batch=12", "data.micro_batch=0", "data.shuffle=false", "measure.warmup_steps=1", "measure.blocks=1")
CASES = {
    "v2-frozen": ("micro-retinanet", "frozen", ("model.variant=v2", "model.batch_norm=eval")),
    "v2-train": ("micro-retinanet", "train", ("model.variant=v2", "model.batch_norm=sync")),
    "v1-frozen": ("micro-retinanet-v1", "frozen", ("model.variant=v1", "model.batch_norm=frozen")),
}


class Case:
    def __init__(self, program, name, cases=CASES):
        fixture, self.trajectory, self.sets = cases[name]
        self.program = program
        self.fixture = Fixture(fixture)
        self.fixture.write_data(program.folder / "data.h5")
        self.checkpoint = self.fixture.checkpoint(program.folder / "start")
        self.facts = self.fixture.facts["trajectories"][self.trajectory]
        self.tolerances = self.fixture.facts["tolerances"][self.trajectory]

    def train(self, ranks, steps, *sets, technique):
        return self.program.train(ranks, "retinanet-tiny", f"{technique}{ranks}", *STEPS, *self.sets, *sets, f"measure.steps={steps - 1}",
                                  f"data.path={self.program.folder / 'data.h5'}", f"model.checkpoint={self.checkpoint}",
                                  technique=technique)

    def assert_trajectory(self, path):
        found = losses(path)
        expected = numpy.array(self.facts["loss"])
        assert (abs(found / expected - 1) <= self.tolerances["loss_rel_by_step"]).all(), found / expected - 1
        norms = table(path, "steps").groupby("step").grad_norm.first().to_numpy()[:6]
        off = abs(norms / self.facts["grad_norm"] - 1)
        assert (off <= self.tolerances["grad_norm_rel_by_step"]).all(), off


@pytest.mark.parametrize("technique", TECHNIQUES)
@pytest.mark.parametrize("name", CASES)
def test_trajectory(program, name, technique):
    """Seven steps over the same twelve pictures: the loss before each and after the last; one rank alone, three of a technique."""
    case = Case(program, name)
    case.assert_trajectory(case.train(1 if technique == "single" else 3, 7, technique=technique))


OTHER_RANKS = (1, 2, 4)


@pytest.mark.parametrize("technique", TECHNIQUES[1:])
@pytest.mark.parametrize("name", CASES)
def test_trajectory_at_other_rank_counts(program, name, technique):
    """One count of each pair, shifted from case to case: over the three cases a technique meets every count. All of the grid,
    with fast sums, is in test_retinanet_fixture_slow.py."""
    case = Case(program, name)
    ranks = OTHER_RANKS[(list(CASES).index(name) + TECHNIQUES.index(technique)) % len(OTHER_RANKS)]
    case.assert_trajectory(case.train(ranks, 7, "numerics.reduction=ordered", technique=technique))


@pytest.mark.parametrize("name", ["v2-frozen", "v1-frozen"])
def test_micro_steps_and_checkpointing_change_no_result(program, name):
    case = Case(program, name)
    case.assert_trajectory(case.train(2, 7, "data.accumulation=3", "model.activation_checkpointing=true",
                                      "data.loader_threads=2", technique="fsdp"))


@pytest.mark.parametrize("technique", ["ddp", "zero3"])
def test_checkpointing_sums_statistics_again_and_changes_no_result(program, technique):
    """Without micro-steps, over which synchronised statistics differ."""
    case = Case(program, "v2-train")
    case.assert_trajectory(case.train(3, 7, "model.activation_checkpointing=true", technique=technique))


@pytest.mark.parametrize("technique", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", CASES)
def test_final_weights_and_statistics(program, name, technique):
    """Weights after six steps; the reference's running statistics also saw the pass that gave the last loss."""
    case = Case(program, name)
    exported = {}
    for steps in (6, 7):
        case.train(3, steps, f"checkpoint.export={program.folder / str(steps)}", "output.overwrite=true", technique=technique)
        exported[steps] = read_safetensors(program.folder / str(steps) / "model.safetensors")
    prefix = f"{case.trajectory}.final_checksum."
    expected = {key[len(prefix):]: value for key, value in case.fixture.tensors.items() if key.startswith(prefix)}
    assert expected and {tensor for tensor in exported[6] if not tensor.endswith("num_batches_tracked")} == set(expected)
    for tensor, (total, squares) in expected.items():
        value = exported[7 if "running" in tensor else 6][tensor].astype(float)
        assert abs(value.sum() - total) <= case.tolerances["final_sum_abs"], tensor
        assert abs((value ** 2).sum() / squares - 1) <= case.tolerances["final_sumsq_rel"], tensor
    counters = {int(value) for tensor, value in exported[6].items() if tensor.endswith("num_batches_tracked")}
    assert counters == {"v2-train": {6}, "v2-frozen": {0}, "v1-frozen": set()}[name]


def test_gradients_of_the_first_step(program):
    case = Case(program, "v2-train")
    case.train(3, 2, f"output.gradients={program.folder / 'gradients'}", technique="zero3")
    found = read_safetensors(program.folder / "gradients" / "gradients.safetensors")
    expected = read_safetensors(case.fixture.folder / "gradients.safetensors")
    assert len(found) == len(expected)
    for name, value in found.items():
        whole = expected.get(f"grad.{name}")
        reference = (expected[f"grad_every_16th.{name}"] if whole is None else whole).astype(float).ravel()
        kept = (value.ravel()[::16] if whole is None else value.ravel()).astype(float)
        assert numpy.linalg.norm(kept - reference) / numpy.linalg.norm(reference) <= case.tolerances["grad_tensor_rel_l2"], name


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
