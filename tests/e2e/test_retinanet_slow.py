"""Micro-RetinaNet learns sixteen generated pictures by heart, and its score does not depend on who evaluates; `verify` of each
kind of statistics that does not depend on the ranks."""

import re
import subprocess
import sys

import numpy
import pytest
from conftest import BINARY, SOURCE, table
from test_retinanet import expect_proofs

LEARN = ("data.global_batch=16", "optimizer.name=adamw", "optimizer.lr=1e-3", "optimizer.weight_decay=0", "optimizer.clip_norm=1",
         "measure.steps=60", "measure.blocks=5")
# The smallest rate: weights stay as they are.
LOOK = ("optimizer.name=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.lr=1e-30", "model.batch_norm=eval",
        "measure.warmup_steps=0", "measure.steps=1", "measure.blocks=1", "data.global_batch=12")


def photographs(folder):
    """Two soft pictures, so that nothing is downloaded."""
    from PIL import Image
    y, x = numpy.mgrid[0:240, 0:320]
    for name, channels in (("one.png", (x // 2, y, 128 + 0 * x)), ("two.png", (y, 255 - x // 2, x // 3))):
        Image.fromarray(numpy.stack(channels, axis=2).astype(numpy.uint8)).save(folder / name)
    return [folder / "one.png", folder / "two.png"]


def test_sixteen_pictures_are_learnt(program):
    data = program.folder / "shapes.h5"
    subprocess.run([sys.executable, SOURCE / "scripts/prepare_data.py", "shapes", *photographs(program.folder), "--number", "16",
                    "--eval-number", "0", "-o", data], check=True)
    paths = (f"data.path={data}", f"data.eval_path={data}")
    command = ["run", "retinanet-tiny", "--technique", "single", "-o", "learn.h5"]
    for value in (*LEARN, *paths, f"checkpoint.export={program.folder / 'out'}"):
        command += ["--set", value]
    done = subprocess.run([BINARY, *command], cwd=program.folder, capture_output=True, text=True, timeout=2400)
    assert done.returncode == 0, done.stderr
    ap50 = float(re.search(r"AP50 ([0-9.]+)", done.stderr).group(1))
    print(done.stderr.splitlines()[-3:])
    assert ap50 >= 0.8
    learnt = table(program.folder / "learn.h5", "summary").quality_value[0]
    # Forward passes of one picture have the same bits everywhere; five pictures more or less a rank, none left over.
    for ranks, technique in ((1, "single"), (2, "ddp"), (3, "fsdp"), (4, "zero3")):
        record = program.train(ranks, "retinanet-tiny", f"look{ranks}", *LOOK, *paths, f"model.checkpoint={program.folder / 'out'}",
                               technique=technique)
        assert table(record, "summary").quality_value[0] == learnt



@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("variant,batch_norm", [("v2", "sync"), ("v2", "eval"), ("v2", "frozen"), ("v1", "frozen"), ("v1", "sync")])
def test_verify_proves_all_techniques(program, variant, batch_norm, ranks):
    expect_proofs(program, ranks, "--set", f"model.variant={variant}", "--set", f"model.batch_norm={batch_norm}")
