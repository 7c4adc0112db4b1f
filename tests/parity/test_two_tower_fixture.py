"""The two-tower recommender against numbers of the public implementation."""

import numpy
import pytest
from conftest import Program, read_safetensors, table, write_ratings
from fixture_runs import RUNS, Fixture, exported


class Case(Fixture):
    def __init__(self, folder):
        super().__init__("tiny-two-tower")
        self.program, self.preset = Program(folder), "two-tower-tiny"
        flat = {name: self.tensors[name].reshape(-1) for name in ("user", "movie_id", "label")}
        write_ratings(folder / "data.h5", flat["user"], flat["movie_id"], flat["label"])
        write_ratings(folder / "eval.h5", *(self.tensors[f"eval.{name}"] for name in ("user", "movie_row", "label")))
        self.sets = (f"data.path={folder / 'data.h5'}", f"model.checkpoint={self.folder}")


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return Case(tmp_path_factory.mktemp("two-tower"))


@pytest.mark.parametrize("ranks,technique", RUNS)
def test_trajectory_and_gradients(case, ranks, technique):
    gradients = case.program.folder / "gradients"
    case.expect_trajectory(case.train(ranks, technique, f"output.gradients={gradients}"))
    found = read_safetensors(gradients / "gradients.safetensors")
    case.expect_gradients(found)
    tables = {"t_userId": case.tensors["user"][0], "t_movieId": case.tensors["movie_row"][0]}
    for name, rows in tables.items():
        touched = found[f"two_tower.ebc.embedding_bags.{name}.weight"].any(axis=1)
        assert not numpy.delete(touched, rows).any(), "dense, but zero where no row was looked up"
    assert (case.tensors["movie_id"] >= case.facts["config"]["movies"]).any(), "or the modulo is not tried"


@pytest.mark.parametrize("technique", ["ddp", "zero3"])
def test_first_and_last_weights(case, technique):
    out = case.program.folder / f"weights-{technique}"
    case.train(3, technique, f"checkpoint.export={out}", "optimizer.lr=1e-30", steps=1)
    case.expect_initial_weights(exported(out))
    case.train(3, technique, f"checkpoint.export={out}", steps=6)
    case.expect_final_weights(exported(out))


@pytest.mark.parametrize("sets", [("model.activation_checkpointing=true",), ("data.accumulation=3",)])
def test_settings_that_change_no_trajectory(case, sets):
    case.expect_trajectory(case.train(2, "fsdp", *sets))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_auroc(case, ranks):
    path = case.train(ranks, "fsdp", "optimizer.lr=1e-30", f"data.eval_path={case.program.folder / 'eval.h5'}", steps=1)
    summary = table(path, "summary").iloc[0]
    assert summary.quality_name == b"auroc"
    # A rank statistic: the same pairs are in order, or the value is another by at least half a pair.
    assert summary.quality_value == pytest.approx(case.tensors["eval.auroc"], rel=1e-12)
