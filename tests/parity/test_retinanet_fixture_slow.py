"""What test_retinanet_fixture.py covers in part: every technique at every number of ranks, and the fixture of true widths."""

import sys

import pytest
from conftest import table
from test_retinanet_fixture import CASES, TECHNIQUES, Case

# 20,902,024 parameters: one block a stage, all else as published.
WIDE = ("model.variant=v2", "model.stem=64", "model.fpn=256", "model.groups=32")
WIDE_CASES = {
    "wide-frozen": ("tiny-retinanet", "frozen", (*WIDE, "model.batch_norm=eval")),
    "wide-train": ("tiny-retinanet", "train", (*WIDE, "model.batch_norm=sync")),
}
WIDE_RUNS = [(1, "single"), (2, "ddp"), (3, "zero3"), (4, "fsdp")]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("technique", TECHNIQUES[1:])
@pytest.mark.parametrize("name", CASES)
def test_trajectory_of_the_whole_grid(program, name, technique, ranks):
    case = Case(program, name)
    case.assert_trajectory(case.train(ranks, 7, technique=technique))


@pytest.mark.parametrize("ranks,technique", WIDE_RUNS)
@pytest.mark.parametrize("name", WIDE_CASES)
def test_trajectory_at_true_widths(program, name, technique, ranks):
    case = Case(program, name, WIDE_CASES)
    path = case.train(ranks, 7, technique=technique)
    assert table(path, "summary").parameters[0] == case.fixture.facts["parameters"]
    case.assert_trajectory(path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
