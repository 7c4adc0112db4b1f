"""Runs as the recipes of the vector transformer and the two towers have them, at sizes of seconds."""

import numpy
from conftest import losses, table, write_ratings

# 8 ranks of 32 rows: 40 steps an epoch of 10,000 rows, the last one of them short; the first epoch is the warm-up.
EPOCHS = ("data.global_batch=256", "data.micro_batch=0", "measure.warmup_steps=40", "measure.steps=40", "measure.blocks=4")


def expect_loss_to_fall(path):
    by_epoch = losses(path).reshape(5, 40).mean(axis=1)
    print("mean loss of each epoch:", by_epoch)
    assert (numpy.diff(by_epoch) < 0).all()
    steps = table(path, "steps")
    assert steps.groupby("step").samples.sum().tolist() == ([256] * 39 + [16]) * 5


def test_loss_of_the_tiny_transformer_falls_from_epoch_to_epoch(program):
    expect_loss_to_fall(program.train(2, "transformer10m-tiny", "run", *EPOCHS, technique="fsdp"))


def test_two_towers_learn_planted_factors(program):
    random = numpy.random.default_rng(11)
    of_user, of_movie = random.standard_normal((50, 4)), random.standard_normal((70, 4))
    for name, rows in (("data", 20_000), ("eval", 2_000)):
        users, movies = random.integers(0, 50, rows), random.integers(0, 70, rows)
        write_ratings(program.folder / f"{name}.h5", users, movies, (of_user[users] * of_movie[movies]).sum(axis=1) > 0)
    path = program.train(2, "two-tower-tiny", "run", f"data.path={program.folder / 'data.h5'}", "measure.steps=60",
                         f"data.eval_path={program.folder / 'eval.h5'}", "data.global_batch=500", "data.micro_batch=0",
                         "model.width=64", "model.layers=[64, 64]")
    # Whoever knows nothing of the factors has 0.5; of 2,000 rows its deviation is about sqrt(1 / 12 / 500) = 0.013.
    assert table(path, "summary").quality_value[0] > 0.7


def test_preset_of_the_recipe_takes_its_tables_from_the_file(program):
    write_ratings(program.folder / "r.h5", range(9), range(100, 109), [0, 1] * 4 + [0])
    path = program.train(1, "two-tower", "run", f"data.path={program.folder / 'r.h5'}", "measure.warmup_steps=0", "measure.steps=1",
                         "measure.blocks=1")
    assert table(path, "summary").parameters[0] == 128 * (9 + 9) + 49_536
