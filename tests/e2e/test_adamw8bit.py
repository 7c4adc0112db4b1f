"""8-bit AdamW against AdamW on a language model and real text: the same held-out loss, within what chance explains."""

import math
import os
import subprocess

import numpy
from conftest import SOURCE, table

SEEDS = range(1, 6)
# Rate and length at which the model learns (from 5.5 to about 2.6) and runs of different data seeds lie close together.
SETTINGS = ("optimizer.lr=1e-3", "measure.warmup_steps=0", "measure.steps=200", "measure.blocks=1")


def test_held_out_loss_is_that_of_fp32_states(program):
    """The bound that src/kernels/adam8bit.hpp states. If codes cost nothing, a run with them is one more draw from the runs of
    fp32 states over data seeds (row orders), and the means of n runs of each differ with a standard deviation of
    sd x sqrt(2 / n). Three of these are allowed."""
    made = subprocess.run([os.environ["SHARDMARK_PYTHON"], SOURCE / "scripts" / "prepare_data.py", "text", "--vocabulary", "bytes",
                           "--length", "32", "-o", "text.h5"], cwd=program.folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr

    def held_out_losses(optimizer):
        paths = [program.train(1, "lm10m-tiny", f"{optimizer}{seed}", *SETTINGS, f"optimizer.name={optimizer}", f"data.seed={seed}",
                               "data.path=text.h5", "data.eval_path=text.eval.h5", technique="single") for seed in SEEDS]
        summaries = [table(path, "summary").iloc[0] for path in paths]
        assert {summary.quality_name for summary in summaries} == {b"eval_loss"}
        return numpy.array([summary.quality_value for summary in summaries])

    whole, coded = held_out_losses("adamw"), held_out_losses("adamw8bit")
    bound = 3 * whole.std(ddof=1) * math.sqrt(2 / len(SEEDS))
    print(f"adamw {whole.mean():.4f} (sd {whole.std(ddof=1):.4f}), adamw8bit {coded.mean():.4f}: {coded.mean() - whole.mean():+.4f}, "
          f"bound {bound:.4f}")
    assert whole.mean() < 0.6 * math.log(256), "a model that learns nothing proves nothing"
    assert not (whole == coded).any(), "the two are the same optimizer"
    assert coded.mean() - whole.mean() <= bound
