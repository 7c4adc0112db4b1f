"""The vector transformer against numbers of the public implementation: the tiny one tensor by tensor, and the one of
12,878,346 parameters, whose weights and rows are made from names."""

import json

import numpy
import pytest
from conftest import Program, read_safetensors, write_safetensors, write_vectors
from fixture_runs import FIXTURES, RUNS, Fixture, exported, numbers_from_name

PRESETS = {"tiny-transformer": "transformer10m-tiny", "transformer10m": "transformer10m"}


class Case(Fixture):
    """A fixture with its weights and rows written where the program reads them."""

    def __init__(self, name, folder):
        super().__init__(name)
        self.preset, self.program = PRESETS[name], Program(folder)
        if name == "transformer10m":
            def made(tensor, about):
                return numbers_from_name(f"{self.facts['rule_key_prefix']}{tensor}", about["shape"], about["amplitude"], about["center"])
            weights = folder / "weights"
            weights.mkdir()
            self.weights = {tensor: made(tensor, about) for tensor, about in self.facts["tensors"].items()}
            write_safetensors(weights / "model.safetensors", self.weights)
            inputs = made("x", self.facts["x"])
            assert (inputs.ravel()[:16] == self.tensors["x.first16"]).all()
        else:
            weights, inputs = self.folder, self.tensors["x"]
            self.weights = read_safetensors(weights / "model.safetensors")
        write_vectors(folder / "data.h5", inputs.reshape(-1, 512), self.tensors["y"].reshape(-1))
        self.sets = (f"data.path={folder / 'data.h5'}", f"model.checkpoint={weights}")


@pytest.fixture(scope="module", params=PRESETS)
def case(request, tmp_path_factory):
    return Case(request.param, tmp_path_factory.mktemp(request.param))


def test_rule_of_numbers_from_names():
    for rule in json.loads((FIXTURES / "transformer10m" / "numbers_from_names.json").read_text()):
        made = numbers_from_name(rule["key"], (10_000,), rule["amplitude"], rule["center"]).astype(float)
        assert made[:8].tolist() == rule["first8"] and made.sum() == pytest.approx(rule["sum_of_10000"], abs=1e-9)


@pytest.mark.parametrize("ranks,technique", RUNS)
def test_trajectory_and_gradients(case, ranks, technique):
    gradients = case.program.folder / "gradients"
    path = case.train(ranks, technique, f"output.gradients={gradients}")
    case.expect_trajectory(path)
    found = read_safetensors(gradients / "gradients.safetensors")
    case.expect_gradients(found)
    # One key: queries and keys change nothing, so their gradients are not small but zero.
    thirds = [(name, value) for name, value in found.items() if ".in_proj_" in name]
    assert len(thirds) == 2 * case.facts["config"]["blocks"]
    for name, value in thirds:
        queries, keys, values = numpy.split(value, 3)
        assert not queries.any() and not keys.any() and values.any(), name


@pytest.mark.parametrize("technique", ["ddp", "fsdp"])
def test_first_and_last_weights(case, technique):
    out = case.program.folder / f"weights-{technique}"
    case.train(3, technique, f"checkpoint.export={out}", "optimizer.lr=1e-30", steps=1)  # changes no bit of a weight
    case.expect_initial_weights(exported(out))
    case.train(3, technique, f"checkpoint.export={out}", steps=6)
    found = exported(out)
    case.expect_final_weights(found)
    # Without a gradient AdamW only decays: six times by lr x decay, each a product and a difference that round once.
    for name, value in found.items():
        if name.endswith("in_proj_weight"):
            kept = numpy.split(value, 3)[0] / numpy.split(case.weights[name], 3)[0]
            numpy.testing.assert_allclose(kept, (1 - 1e-5) ** 6, rtol=12 * 2**-24, err_msg=name)


@pytest.mark.parametrize("case", ["tiny-transformer"], indirect=True)
@pytest.mark.parametrize("sets", [("model.activation_checkpointing=true",), ("data.accumulation=3",),
                                  ("data.accumulation=3", "technique.accumulation=no_sync")])
def test_settings_that_change_no_trajectory(case, sets):
    case.expect_trajectory(case.train(2, "fsdp", *sets))
