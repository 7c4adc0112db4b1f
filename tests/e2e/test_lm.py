"""The language model on real English text: same answer at every rank count, work counted, bad data refused."""

import math
import os
import subprocess

import h5py
import numpy
import pytest
from conftest import SOURCE, losses, table, write_tokens

LENGTH = 32
STEPS = ("measure.warmup_steps=0", "measure.steps=8", "measure.blocks=1")


@pytest.fixture
def text(program):
    """Settings that train on the licence of this repository, one token a byte."""
    made = subprocess.run([os.environ["SHARDMARK_PYTHON"], SOURCE / "scripts" / "prepare_data.py", "text", SOURCE / "LICENSE",
                           "--vocabulary", "bytes", "--length", str(LENGTH), "-o", "text.h5"],
                          cwd=program.folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return f"data.path={program.folder / 'text.h5'}", f"data.eval_path={program.folder / 'text.eval.h5'}"


def test_losses_agree_over_rank_counts_and_techniques(program, text):
    alone = losses(program.train(1, "lm10m-tiny", "alone", *STEPS, *text, technique="single"))
    rows = losses(program.train(1, "lm10m-tiny", "rows", *STEPS, *text, "data.micro_batch=1", technique="single"))
    # 20 x the spread of equally right runs on one rank, but not below 2e-6.
    bound = numpy.maximum(20 * abs(rows / alone - 1), 2e-6)
    for ranks, accumulation in ((1, 1), (2, 1), (2, 3), (3, 2)):
        path = program.train(ranks, "lm10m-tiny", f"n{ranks}a{accumulation}", *STEPS, *text, f"data.accumulation={accumulation}")
        difference = abs(losses(path) / alone - 1)
        print(f"{ranks} ranks, {accumulation} micro-steps: largest {difference.max():.1e}, bound {bound.min():.1e} to {bound.max():.1e}")
        assert (difference <= bound).all()
        quality = table(path, "summary").iloc[0]
        assert quality.quality_name == b"eval_loss" and 0 < quality.quality_value < math.log(256)


def test_training_learns_the_text(program, text):
    path = program.train(2, "lm10m-tiny", "learnt", *text, "optimizer.lr=3e-3", "measure.steps=40", "measure.blocks=5")
    summary = table(path, "summary").iloc[0]
    data = h5py.File(program.folder / "text.h5")["input_ids"][:]
    share = numpy.bincount(data.ravel(), minlength=256) / data.size
    entropy = -(share[share > 0] * numpy.log(share[share > 0])).sum()
    # Better than knowing only how frequent each byte is.
    assert summary.loss_first > 5 and summary.loss_final < entropy and summary.quality_value < entropy


def test_checkpointing_changes_no_bit(program, text):
    def bits(name, *sets):
        path = program.train(2, "lm10m-tiny", name, *STEPS, *text, "numerics.reduction=ordered", *sets)
        return table(path, "steps").sort_values(["step", "rank"])[["loss", "grad_norm"]].to_numpy().tobytes()

    assert bits("kept") == bits("again", "model.activation_checkpointing=true")


def test_work_and_flops(program):
    """Two rows of 32: segments of 10 and 6 tokens and 16 paddings; 32 tokens. The global batch of 12 has ten fillers."""
    segments = numpy.array([[1] * 10 + [2] * 6 + [0] * 16, [1] * 32])
    ids = numpy.arange(64).reshape(2, 32) * (segments > 0)
    labels = numpy.where(segments > 0, ids, -100)
    labels[[0, 0, 1], [0, 10, 0]] = -100
    write_tokens(program.folder / "packed.h5", ids, labels, segment_ids=segments, lengths=(segments > 0).sum(axis=1))
    for ranks in (1, 2):
        path = program.train(ranks, "lm10m-tiny", f"work{ranks}", *STEPS, f"data.path={program.folder / 'packed.h5'}",
                             "data.shuffle=false")
        step = table(path, "steps").query("step == 3")
        assert step.samples.sum() == 2 and step.tokens.sum() == 48 and step.padded_tokens.sum() == 64
        # Of 12 rows with the mean of 24 tokens. Matrices have 110,912 - 5 x 64 elements; attention 2 layers of width 64.
        visible_keys = 10 * 11 / 2 + 6 * 7 / 2 + 32 * 33 / 2
        forward = 2 * (110912 - 5 * 64) * 12 * 24 + 4 * 2 * 64 * visible_keys * 12 / 2
        assert table(path, "summary").iloc[0].flops_per_step_model == pytest.approx(3 * forward, rel=1e-12)


def test_lm10m_has_its_stated_size(program):
    path = program.train(1, "lm10m", "size", "measure.warmup_steps=0", "measure.steps=1", "measure.blocks=1", "data.micro_batch=1")
    assert table(path, "summary").iloc[0].parameters == 10_007_808


def test_a_bad_tokens_file_is_refused_by_row_and_value(program, text):
    with h5py.File(program.folder / "text.h5", "a") as file:
        file["input_ids"][7, 3] = 256
        file["labels"][9, 0] = 1
    done = program.ranks(2, "run", "lm10m-tiny", "-o", "x.h5", "--set", text[0])
    assert done.returncode == 2
    assert "/input_ids, row 7, column 3 holds 256" in done.stderr and "/labels, row 9, column 0 holds 1" in done.stderr
    assert not (program.folder / "x.h5").exists()


def test_impossible_models_are_refused_together(program):
    done = program.ranks(1, "run", "lm10m-tiny", "-o", "x.h5", "--set", "model.num_key_value_heads=3", "--set", "model.vocab_size=0",
                         "--set", "model.dropout=0.1", "--set", "model.head_dim=15", "--set", "data.sequence_length=1")
    assert done.returncode == 2
    for part in ("model.num_key_value_heads = 3 does not divide", "model.vocab_size = 0", "model.dropout", "model.head_dim = 15",
                 "data.sequence_length = 1"):
        assert part in done.stderr


def test_evaluation_belongs_to_no_step(program, text):
    """Gathers of the evaluation are not counted, and nothing stays gathered after it."""
    path = program.train(2, "lm10m-tiny", "zero3", *STEPS, *text, "data.global_batch=12", "data.micro_batch=0", technique="zero3")
    checks = table(path, "checks")
    checked = checks[checks.name == b"payload_bytes_per_step rank 0"].iloc[0]
    assert table(path, "summary").iloc[0].wire_bytes_per_step == checked.found == checked.expected
    memory = table(path, "memory")
    gathered = memory[(memory.phase == b"run") & (memory.category == b"gathered")]
    assert (gathered.current_bytes == 0).all() and (gathered.peak_bytes > 0).all()
