"""Evaluations during training: they change no bit of it, belong to no step, and are the same at every number of ranks."""

import numpy
import pytest
from conftest import losses, table, write_ratings, write_vectors

ROWS, HELD_OUT = 300, 150  # two pieces of held-out rows, the second one short
STEPS = ("measure.warmup_steps=3", "measure.steps=6", "measure.blocks=2", "data.global_batch=36", "data.micro_batch=0")


@pytest.fixture
def ratings(program):
    random = numpy.random.default_rng(5)
    for name, rows in (("data", ROWS), ("eval", HELD_OUT)):
        users, items = random.integers(0, 50, rows), random.integers(0, 200, rows)
        write_ratings(program.folder / f"{name}.h5", users, items, (users + items) % 2, num_users=50, num_items=70)
    return f"data.path={program.folder / 'data.h5'}", f"data.eval_path={program.folder / 'eval.h5'}"


def bits(path):
    return table(path, "steps").sort_values(["step", "rank"])[["loss", "grad_norm"]].to_numpy().tobytes()


@pytest.mark.parametrize("technique", ["ddp", "zero1", "zero3", "fsdp"])
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_training_goes_on_with_the_same_bits(program, ratings, technique, compute):
    sets = (*STEPS, *ratings, "numerics.reduction=ordered", f"precision.compute={compute}")
    without = program.train(3, "two-tower-tiny", "without", *sets, technique=technique)
    path = program.train(3, "two-tower-tiny", "with", *sets, "evaluate.every=4", technique=technique)
    assert bits(path) == bits(without)
    evaluations = table(path, "evaluations")
    assert evaluations.steps.tolist() == [4, 8, 12, 15], "and once more after training"
    assert table(without, "evaluations").steps.tolist() == [15]
    mine, other = (table(one, "summary").iloc[0] for one in (path, without))
    assert mine.quality_value == other.quality_value == evaluations.quality.iloc[-1]
    assert mine.quality_best == evaluations.quality.max()
    assert mine.wire_bytes_per_step == other.wire_bytes_per_step, "its messages are not counted"


def test_an_evaluation_is_part_of_no_step(program, ratings):
    path = program.train(2, "two-tower-tiny", "run", *STEPS, *ratings, "evaluate.every=1")
    steps, evaluations = table(path, "steps"), table(path, "evaluations")
    assert len(evaluations) == 15 and (evaluations.duration_s > 0).all()
    mine = steps[steps["rank"] == 0].sort_values("step")
    # What lies between the start and the last evaluation's end: the steps, the evaluations, and the borders of three blocks.
    assert mine.total_s.sum() + evaluations.duration_s.sum() <= evaluations.time_s.iloc[-1]
    assert (evaluations.time_s.diff().iloc[1:] >= mine.total_s.to_numpy()[1:] + evaluations.duration_s.to_numpy()[1:]).all()


@pytest.mark.parametrize("preset", ["two-tower-tiny", "mlp"])
@pytest.mark.parametrize("technique", ["ddp", "fsdp"])
def test_quality_of_equal_weights_is_the_same_at_every_number_of_ranks(program, ratings, preset, technique):
    """Bit by bit: of an area under a curve, and of a sum of squares, where one addition in another order would show."""
    sets = ratings
    if preset == "mlp":
        random = numpy.random.default_rng(6)
        for name in ("data", "eval"):
            write_vectors(program.folder / f"v{name}.h5", random.standard_normal((1000, 10)),
                          random.standard_normal((1000, 1)).astype("float32"))
        sets = (f"data.path={program.folder / 'vdata.h5'}", f"data.eval_path={program.folder / 'veval.h5'}")
    once = ("measure.warmup_steps=0", "measure.steps=1", "measure.blocks=1", "data.global_batch=12", "data.micro_batch=0",
            "optimizer.lr=1e-30")
    found = {table(program.train(ranks, preset, f"n{ranks}", *sets, *once, technique=technique), "summary").quality_value[0]
             for ranks in (1, 2, 3, 4)}
    assert len(found) == 1


def test_target(program, ratings):
    path = program.train(2, "two-tower-tiny", "run", *STEPS, *ratings, "evaluate.every=3", "evaluate.target=1e-6")
    summary, evaluations = table(path, "summary").iloc[0], table(path, "evaluations")
    assert summary.steps_to_target == 3 and summary.time_to_target_s == evaluations.time_s[0]
    assert len(losses(path)) == 15, "training goes on"
    assert "target reached in 3 steps" in program.ranks(2, "run", "two-tower-tiny", "-o", "again.h5", *(
        word for one in (*STEPS, *ratings, "evaluate.every=3", "evaluate.target=1e-6") for word in ("--set", one))).stderr
    path = program.train(2, "two-tower-tiny", "never", *STEPS, *ratings, "evaluate.target=2")
    summary = table(path, "summary").iloc[0]
    assert summary.steps_to_target == -1 and numpy.isnan(summary.time_to_target_s)


def test_a_bad_data_file_is_refused_before_training(program, ratings):
    """Row and value of what is wrong; no record is left behind."""
    spoiled = {"user 50": ([3, 50, 2], [1, 2, 3], [0, 1, 0]), "label nan": ([3, 4, 2], [1, 2, 3], [0, float("nan"), 0]),
               "item -7": ([3, 4, 2], [1, -7, 3], [0, 1, 0])}
    for wrong, (users, items, labels) in spoiled.items():
        write_ratings(program.folder / "bad.h5", users, items, labels, num_users=50, num_items=70)
        done = program.ranks(2, "run", "two-tower-tiny", "-o", "bad-run.h5", "--set", "data.path=bad.h5")
        assert done.returncode == 2 and f"row 1 holds {wrong}" in done.stderr and "bad.h5" in done.stderr, done.stderr
    whole = (program.folder / "data.h5").read_bytes()
    (program.folder / "cut.h5").write_bytes(whole[:-1000])
    done = program.ranks(2, "run", "two-tower-tiny", "-o", "bad-run.h5", "--set", "data.path=cut.h5")
    assert done.returncode == 2 and "cut.h5" in done.stderr and "truncated" in done.stderr, done.stderr
    assert not list(program.folder.glob("bad-run*"))
