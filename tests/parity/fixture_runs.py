"""What the tests against fixtures of the vector models share: the right answers of a folder, runs, and comparisons.

A trajectory is six steps over six global batches in order, then the first batch again; it is right for any number of ranks.
"""

import json

import numpy
from conftest import SOURCE, losses, read_safetensors, table

FIXTURES = SOURCE / "tests" / "fixtures"
TECHNIQUES = ("ddp", "zero1", "zero2", "zero3", "fsdp")
# Every technique at every number of ranks; single is a technique of one rank.
RUNS = [(1, "single")] + [(ranks, technique) for ranks in (1, 2, 3, 4) for technique in TECHNIQUES]
MASK64 = (1 << 64) - 1


def numbers_from_name(key, shape, amplitude, center):
    """The fixtures' rule: a hash of the name, mixed with the place of each element; uniform around `center`."""
    start = 0xCBF29CE484222325
    for byte in key.encode():
        start = ((start ^ byte) * 0x100000001B3) & MASK64
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(start) + numpy.arange(1, numpy.prod(shape) + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z ^= z >> numpy.uint64(31)
    share = (z >> numpy.uint64(40)).astype(numpy.float64) / 2**24
    return (center + amplitude * (2 * share - 1)).astype(numpy.float32).reshape(shape)


class Fixture:
    """Of a folder; who derives from it gives program, preset and sets, which name data and weights."""

    def __init__(self, name):
        self.folder = FIXTURES / name
        self.facts = json.loads((self.folder / "reference.json").read_text())
        self.tensors = read_safetensors(self.folder / "reference.safetensors")
        self.tolerances = self.facts["tolerances"]

    def named(self, kind):
        return {name[len(kind) + 1:]: value for name, value in self.tensors.items() if name.startswith(kind + ".")}

    def train(self, ranks, technique, *sets, steps=7):
        """The first steps of the trajectory; seven are all of it."""
        fixed = (f"data.global_batch={self.facts['batch']}", "data.micro_batch=0", "data.shuffle=false", "measure.warmup_steps=0",
                 f"measure.steps={steps}", "measure.blocks=1", "output.overwrite=true")
        return self.program.train(ranks, self.preset, "run", *fixed, *self.sets, *sets, technique=technique)

    def expect_trajectory(self, path):
        found = losses(path)
        numpy.testing.assert_array_less(abs(found / self.facts["trajectory_loss"] - 1), self.tolerances["loss_rel_by_step"])
        norms = table(path, "steps").groupby("step").grad_norm.first().to_numpy()[:6]
        numpy.testing.assert_array_less(abs(norms / self.facts["trajectory_grad_norm"] - 1),
                                        self.tolerances["grad_norm_rel_by_step"])

    def expect_loss(self, path, expected, tolerance):
        """Of a run's first step."""
        assert abs(losses(path)[0] / expected - 1) <= tolerance

    def expect_gradients(self, found):
        """Each tensor, where the fixture has it; else sum and sum of squares, which bound a tensor's error like its norm's."""
        bound = self.tolerances["grad_tensor_rel_l2"]
        whole, checksums = self.named("grad"), self.named("grad_checksum")
        assert set(found) == set(whole or checksums)
        for name, value in found.items():
            value = value.astype(float)
            if name in whole:
                expected = whole[name].astype(float)
                assert numpy.linalg.norm(value - expected) <= bound * numpy.linalg.norm(expected), name
            else:
                total, squares = checksums[name]
                # |sum(a) - sum(b)| <= sqrt(n) |a - b|, and norms differ by |a - b| at most.
                assert abs(value.sum() - total) <= bound * numpy.sqrt(value.size * squares), name
                assert abs(numpy.sqrt((value ** 2).sum()) - numpy.sqrt(squares)) <= bound * numpy.sqrt(squares), name

    def expect_weights(self, found, kind, sum_abs, sumsq_rel):
        expected = self.named(kind)
        assert set(found) == set(expected) and sum(value.size for value in found.values()) == self.facts["parameters"]
        for name, value in found.items():
            total, squares = expected[name]
            value = value.astype(float)
            assert abs(value.sum() - total) <= sum_abs, name
            assert abs((value ** 2).sum() - squares) <= sumsq_rel * squares, name

    def expect_initial_weights(self, found):
        # Sums of the same fp32 numbers in fp64, of up to 1e6 terms in another order.
        self.expect_weights(found, "initial_checksum", 1e-8, 1e-9)

    def expect_final_weights(self, found):
        self.expect_weights(found, "final_checksum", self.tolerances["final_sum_abs"], self.tolerances["final_sumsq_rel"])


def exported(folder):
    return read_safetensors(folder / "model.safetensors")
