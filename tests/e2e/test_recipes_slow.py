"""The recipes on real data and at true size: MovieLens 100K, and the transformer of 12,878,346 parameters."""

import os
import subprocess

import pytest
from conftest import SOURCE, table
from test_recipes import EPOCHS, expect_loss_to_fall

EPOCH = 69  # steps of 1,020 rows over 70,000
AUROC = 0.73
APART = 1e-3


@pytest.fixture(scope="module")
def movielens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("movielens")
    done = subprocess.run([os.environ["SHARDMARK_PYTHON"], SOURCE / "scripts" / "prepare_data.py", "movielens", "-o", folder / "ml.h5"],
                          cwd=SOURCE, capture_output=True, text=True)
    if done.returncode == 5:
        pytest.skip(f"no MovieLens here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return f"data.path={folder / 'ml.h5'}", f"data.eval_path={folder / 'ml.eval.h5'}"


def test_two_tower_on_movielens(program, movielens):
    """Best of three epochs, each evaluated; ranks add in other orders, so weights and pairs at the margin differ."""
    best = []
    for ranks in (1, 2, 3, 4):
        path = program.train(ranks, "two-tower", f"n{ranks}", *movielens, "data.global_batch=1020", "data.micro_batch=0",
                             f"measure.warmup_steps={EPOCH}", f"measure.steps={EPOCH}", "measure.blocks=2", f"evaluate.every={EPOCH}",
                             f"evaluate.target={AUROC}")
        assert table(path, "evaluations").steps.tolist() == [EPOCH, 2 * EPOCH, 3 * EPOCH]
        summary = table(path, "summary").iloc[0]
        assert summary.parameters == 128 * (943 + 1682) + 49_536 and summary.steps_to_target > 0
        best.append(summary.quality_best)
    print("best AUROC at 1 to 4 ranks:", best)
    assert min(best) >= AUROC and max(best) - min(best) <= APART


def test_loss_of_the_transformer_falls_from_epoch_to_epoch(program):
    expect_loss_to_fall(program.train(2, "transformer10m", "run", *EPOCHS, technique="fsdp"))
