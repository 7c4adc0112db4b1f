"""What the tests of scripts/peers share: small data, runs of both sides, the bound of their losses."""

import os
import subprocess
import sys

import numpy
import pytest
from conftest import LAUNCH, SOURCE, Program, losses, write_ratings, write_tokens, write_vectors

PEERS = SOURCE / "scripts" / "peers"
sys.path.insert(0, str(PEERS))
STEPS = ("measure.warmup_steps=3", "measure.steps=1", "measure.blocks=2")
SGD = ("optimizer.name=sgd", "optimizer.lr=0.1", "optimizer.weight_decay=0")


def peer_python(*options):
    """(Python, variables), or a skip with setup.sh's reason; nothing is downloaded."""
    done = subprocess.run([PEERS / "setup.sh", *options], capture_output=True, text=True, env={**os.environ, "PIP_NO_INDEX": "1"})
    if done.returncode != 0:
        pytest.skip(f"no peer here: {done.stderr.strip().splitlines()[-1]}")
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    variables = {}
    if found.get("site"):
        variables = {"PYTHONPATH": found["site"], "PATH": f"{os.environ['PATH']}:{found['site']}/bin"}
    if "extensions" in found:
        variables["TORCH_EXTENSIONS_DIR"] = found["extensions"]
    return found["python"], variables


class Case:
    """A preset on few random rows, so that five steps pass an epoch's end and its filler rows. Both sides start from the
    same weights; one rank's losses, and their spread, say how far two right programs may be apart."""

    def __init__(self, folder, preset, sets):
        self.program, self.preset = Program(folder), preset
        random = numpy.random.default_rng(7)
        data = folder / "rows.h5"
        if preset == "lm10m-tiny":
            ids = random.integers(0, 256, (20, 32))
            labels = ids.copy()
            labels[:, 0] = -100
            labels[3, 5:] = -100  # a short row: rows count by their tokens and targets, not alike
            write_tokens(data, ids, labels, lengths=numpy.where(numpy.arange(20) == 3, 5, 32))
        elif preset == "two-tower-tiny":
            write_ratings(data, random.integers(0, 50, 30), random.integers(0, 300, 30), random.integers(0, 2, 30))
        elif preset == "transformer10m-tiny":
            write_vectors(data, random.standard_normal((30, 512)), random.integers(0, 10, 30))
        elif preset == "mlp":
            write_vectors(data, random.standard_normal((9, 10)), random.standard_normal((9, 1)).astype("float32"))
        else:
            write_vectors(data, random.standard_normal((300, 64)), random.integers(0, 10, 300))
        self.sets = [f"data.path={data}", "model.dropout=0"]
        weights = folder / "weights"
        self.program.train(1, preset, "start", *self.sets, "measure.warmup_steps=0", "measure.steps=1", "measure.blocks=1",
                           "optimizer.lr=1e-30", f"checkpoint.export={weights}", technique="single")
        self.sets += [f"model.checkpoint={weights}", *STEPS, *sets]
        batch = {"mlp": 2, "mlp-digits": 128}.get(preset, 12)
        whole, rows = (["data.micro_batch=0"], ["data.micro_batch=1"])
        self.alone = losses(self.program.train(1, preset, "alone", *self.sets, f"data.global_batch={batch}", *whole, technique="single"))
        by_rows = losses(self.program.train(1, preset, "by-rows", *self.sets, f"data.global_batch={batch}", *rows, technique="single"))
        # 20 x the largest distance so far of equally right runs on one rank, at least 2e-6 (as tests/e2e/test_lm.py).
        self.bound = numpy.maximum(20 * numpy.maximum.accumulate(abs(by_rows / self.alone - 1)), 2e-6)

    def start_peer(self, technique, launcher=None, python=None, overwrite=True):
        """(exit code, errors, record)"""
        executable, variables = python or peer_python()
        path = self.program.folder / f"peer-{technique}.h5"
        options = [word for one in (*self.sets, f"output.overwrite={str(overwrite).lower()}") for word in ("--set", one)]
        launcher = launcher or [LAUNCH, "2", executable]
        done = subprocess.run([*launcher, PEERS / "train.py", self.preset, "--technique", technique, "-o", path, *options],
                              env={**os.environ, **variables}, capture_output=True, text=True, timeout=500)
        return done.returncode, done.stderr, path

    def train_peer(self, technique, **how):
        code, errors, path = self.start_peer(technique, **how)
        assert code == 0, errors
        return path

    def expect_same_losses(self, path):
        distance = abs(losses(path) / self.alone - 1)
        print(f"largest distance of losses {distance.max():.1e}, bounds {self.bound.min():.1e} to {self.bound.max():.1e}")
        assert (distance <= self.bound).all(), (distance, self.bound)
