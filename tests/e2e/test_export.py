"""Weights that leave a run and come back: nothing is replaced unasked, and what is no checkpoint of the model is told before training."""

import itertools

import pytest
from conftest import SOURCE


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_export_replaces_nothing_unasked(program, ranks):
    """All before training: a folder that holds weights, the one that the run starts from, one that cannot be made."""
    numbers = itertools.count()
    out, sets = program.folder / "weights", ("measure.steps=1", "measure.blocks=1", "data.micro_batch=1")

    def train(folder, *more):
        options = [word for one in (*sets, f"checkpoint.export={folder}", *more) for word in ("--set", one)]
        return program.ranks(ranks, "run", "mlp", "--technique", "ddp", "-o", f"{next(numbers)}.h5", *options)
    first = train(out)
    assert first.returncode == 0 and f"weights: {out}/model.safetensors" in first.stderr, first.stderr
    before = (out / "model.safetensors").read_bytes()
    for folder, more, code, said in ((out, (), 2, "model.safetensors exists"), (program.folder / "file" / "in", (), 10, "checkpoint.export = "),
                                     (out, (f"model.checkpoint={out}", "output.overwrite=true"), 2, "is the folder of model.checkpoint")):
        (program.folder / "file").write_text("no folder")
        done = train(folder, *more)
        assert done.returncode == code and said in done.stderr and "loss" not in done.stderr, done.stderr
        assert done.stderr.count(said) == 1
    assert (out / "model.safetensors").read_bytes() == before
    assert train(out, "output.overwrite=true", "optimizer.lr=0.1").returncode == 0
    assert (out / "model.safetensors").read_bytes() != before


def test_checkpoints_that_are_none(program):
    (program.folder / "empty").mkdir()
    for folder, said in (("nowhere", "no such folder"), ("empty", "neither model.safetensors nor")):
        done = program.alone("run", "mlp", "--technique", "single", "--set", f"model.checkpoint={program.folder / folder}")
        assert done.returncode == 2 and said in done.stderr, done.stderr
    planned = program.alone("plan", "mlp", "--gpus", "2", "--set", f"model.checkpoint={program.folder / 'nowhere'}")
    assert planned.returncode == 2 and "no such folder" in planned.stderr, planned.stderr
    other = program.alone("run", "mlp", "--technique", "single", "--set", f"model.checkpoint={SOURCE / 'tests/fixtures/tiny-llama'}")
    assert other.returncode == 2 and "it is a checkpoint of another model" in other.stderr and len(other.stderr.splitlines()) == 1
