"""The arithmetic of scripts/speed.py, without running anything."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
SCRIPT = SOURCE / "scripts" / "speed.py"


@pytest.fixture(scope="module")
def speed():
    sys.path.insert(0, str(SCRIPT.parent))  # where it finds measuring.py when it runs
    spec = importlib.util.spec_from_file_location("speed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("n, low, high, coverage", [
    (2, 1, 2, 0.5),               # cannot reach 95 %: says what it reaches
    (5, 1, 5, 1 - 2 / 32),
    (7, 1, 7, 1 - 2 / 128),
    (9, 2, 8, 1 - 2 * 10 / 512),  # the textbook's (2, 8): 96.1 %
    (20, 6, 15, 0.9586),          # (6, 15): 95.9 %
])
def test_interval_is_the_narrowest_pair_of_order_statistics(speed, n, low, high, coverage):
    values = list(range(n, 0, -1))
    found = speed.interval(values)
    assert found[:2] == (low, high) and found[2] == pytest.approx(coverage, abs=5e-5)


def test_payload_over_speed(speed):
    # Two buckets: 1 ms for 4 MB and 0.2 ms for 1 MB; the second is reduced twice a step (2 ranks: S nominal bytes a call).
    payload = {("all_reduce", 4_000_000): 4e6, ("all_reduce", 1_000_000): 2e6}
    times = {("all_reduce", 4_000_000): 1e-3, ("all_reduce", 1_000_000): 2e-4}
    assert speed.communication_s(payload, times) == pytest.approx(1e-3 + 2 * 2e-4)
    # A gather of 4 MB is 2 MB of nominal bytes a call: three of 0.5 ms.
    assert speed.communication_s({("all_gather", 4_000_000): 6e6}, {("all_gather", 4_000_000): 5e-4}) == pytest.approx(1.5e-3)


def one_round(speed, step_ms=0.1, ratio=1.0, measuring=0.001):
    return {"oversubscribed": False, "mlp ddp step": step_ms, "mlp-wide ddp / limit": ratio, "measuring": measuring}


@pytest.mark.parametrize("values, verdict", [
    ({}, "all bounds met"),
    ({"step_ms": 0.161}, "missed: mlp ddp step"),
    ({"ratio": 1.16}, "missed: mlp-wide ddp / limit"),
    ({"measuring": 0.011, "ratio": 1.2}, "missed: mlp-wide ddp / limit, measuring"),
])
def test_medians_are_held_to_their_bounds(speed, values, verdict):
    rounds = [one_round(speed)] * 3 + [one_round(speed, **values)] * 4
    assert speed.summarise(rounds, judged=True)[1] == verdict
    assert speed.summarise(rounds, judged=False)[1] == "not judged"


def test_a_single_outlier_misses_nothing(speed):
    rounds = [one_round(speed)] * 6 + [one_round(speed, step_ms=9, ratio=9, measuring=9)]
    assert speed.summarise(rounds, judged=True)[1] == "all bounds met"


def test_cost_of_an_event_is_what_measuring_adds(speed):
    rows = {name: {"ns_per_event": ns} for name, ns in {
        "collective, counted dry run": 150, "collective, bare dry run": 50, "progress, counted": 40, "progress, bare": 60,
        "allocation, ledger, 256 bytes": 30, "allocation, ledger, 65536 bytes": 50, "allocation, ledger, 1048576 bytes": 20,
        "step row": 80, "clock reading": 25}.items()}
    assert speed.event_costs(rows) == pytest.approx(
        {"collective": 100e-9, "progress": 0, "allocation": 50e-9, "row": 80e-9, "clock": 25e-9})


def test_too_few_pairs_are_refused():
    done = subprocess.run([sys.executable, SCRIPT, "--pairs", "6"], capture_output=True, text=True)
    assert done.returncode == 2 and "at least 7" in done.stderr
