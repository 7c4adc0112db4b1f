#!/usr/bin/env python3
"""Measures how far training is from what this machine allows, and what measuring itself costs. Needs two free cores.

  speed.py [--pairs N] [--format table|json] [--quick]

In every round, one after another, so that drift of the machine meets all of them alike:
  mlp ddp on 2 ranks, mlp single alone                                          bound: 0.16 ms a step
  mlp-wide ddp on 2 ranks; mlp-wide single twice at the same time, so that the two share memory as ranks do; once alone;
  an all-reduce of every bucket size that the ddp record shows                  bound: 1.15 of compute + payload / speed
  bench_hook_cost: the cost of one event of measuring                           bound: 1 % of an mlp-wide step
A value is the median over rounds. Its interval is from order statistics, so it assumes no distribution: the narrowest pair of
k-th smallest and k-th largest round that holds the true median with at least 95 % (7 rounds: all of them, 98.4 %; fewer than
6 cannot reach 95 %, and the output says what they reach). Exit 1 if a median misses its bound.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from measuring import RANKS, collective_times, benchmark, communication_s, interval, train, train_twins

MLP_STEP_BOUND_MS = 0.16
WIDE_RATIO_BOUND = 1.15
MEASURING_BOUND = 0.01
# Clock readings of src/train/trainer.cpp in one step: three of a micro-step, a first one, three of the step's phases, its end.
CLOCK_READINGS_PER_STEP = 8
QUICK_STEPS = ("measure.warmup_steps=3", "measure.steps=5", "measure.blocks=2")


def event_costs(rows):
    """Seconds that measuring adds to one event of each kind, never less than nothing. Of an allocation all of its time counts:
    the ledger keeps freed blocks, which saves more than its accounts cost, so that a difference would hide them."""
    def ns(name):
        return rows[name]["ns_per_event"]
    def difference(more, less):
        return max(0.0, ns(more) - ns(less)) * 1e-9
    sizes = (256, 65536, 1048576)
    return {
        "collective": difference("collective, counted dry run", "collective, bare dry run"),
        "progress": difference("progress, counted", "progress, bare"),
        "allocation": max(ns(f"allocation, ledger, {size} bytes") for size in sizes) * 1e-9,
        "row": ns("step row") * 1e-9,
        "clock": ns("clock reading") * 1e-9,
    }


def events_per_step(record, rows):
    """Of mlp-wide. Progress is called once a gradient, and an MLP has two a layer."""
    hidden = record["layers"]
    return {
        "collective": record["collectives_per_step"],
        "progress": 2.0 * (hidden + 1),
        "allocation": rows[f"perceptron step, {hidden} hidden layers"]["allocations"],
        "row": 1.0,
        "clock": float(CLOCK_READINGS_PER_STEP),
    }


def run_round(folder, index, sets):
    """One of everything."""
    name = f"round{index}"
    small = train(folder, f"{name}-mlp-ddp", "mlp", "ddp", RANKS, sets)
    small_single = train(folder, f"{name}-mlp-single", "mlp", "single", 1, sets)
    wide = train(folder, f"{name}-wide-ddp", "mlp-wide", "ddp", RANKS, sets)
    # A step of ddp ends with its slower rank.
    shared_s = train_twins(folder, f"{name}-wide-twin", "mlp-wide", RANKS, sets)
    lone = train(folder, f"{name}-wide-lone", "mlp-wide", "single", 1, sets)
    reduce_s = communication_s(wide["payload"], collective_times([wide["payload"]]))
    hooks = benchmark("bench_hook_cost", 1)
    costs, events = event_costs(hooks), events_per_step(wide, hooks)
    measuring = {f"measuring: {kind}": events[kind] * costs[kind] / wide["step_s"] for kind in costs}
    limit_s = shared_s + reduce_s
    return {
        "oversubscribed": any(one["oversubscribed"] for one in (small, wide)),
        "mlp ddp step": small["step_s"] * 1e3,
        "mlp single step": small_single["step_s"] * 1e3,
        "mlp ddp / single": small["step_s"] / small_single["step_s"],
        "mlp-wide ddp step": wide["step_s"] * 1e3,
        "mlp-wide single step, twice at once": shared_s * 1e3,
        "mlp-wide single step, alone": lone["step_s"] * 1e3,
        "mlp-wide payload / speed": reduce_s * 1e3,
        "mlp-wide limit": limit_s * 1e3,
        "mlp-wide ddp / limit": wide["step_s"] / limit_s,
        **measuring,
        "measuring": sum(measuring.values()),
    }


BOUNDS = {"mlp ddp step": MLP_STEP_BOUND_MS, "mlp-wide ddp / limit": WIDE_RATIO_BOUND, "measuring": MEASURING_BOUND}


def unit_of(name):
    if name.startswith("measuring"):
        return "share of an mlp-wide step"
    return "" if " / " in name and not name.endswith("speed") else "ms"


def summarise(rounds, judged):
    """(rows, verdict) of the rounds' values."""
    rows = []
    for name in rounds[0]:
        if name == "oversubscribed":
            continue
        values = [one[name] for one in rounds]
        low, high, coverage = interval(values)
        bound = BOUNDS.get(name)
        median = statistics.median(values)
        row = {"name": name, "unit": unit_of(name), "median": median, "low": low, "high": high, "coverage": coverage,
               "bound": bound, "met": None if bound is None or not judged else median <= bound, "values": values}
        rows.append(row)
    missed = [row["name"] for row in rows if row["met"] is False]
    verdict = "not judged" if not judged else f"missed: {', '.join(missed)}" if missed else "all bounds met"
    return rows, verdict


def print_table(rows, verdict, num_rounds):
    coverage = 100 * rows[0]["coverage"]
    print(f"medians of {num_rounds} rounds; low to high holds the true median with {coverage:.1f} % (order statistics)\n")
    print(f"{'':38}{'median':>12}{'low':>12}{'high':>12}{'bound':>8}  unit")
    for row in rows:
        bound = "" if row["bound"] is None else f"{row['bound']:g}"
        mark = {True: "  met", False: "  MISSED", None: ""}[row["met"]]
        print(f"{row['name']:38}{row['median']:12.4g}{row['low']:12.4g}{row['high']:12.4g}{bound:>8}  {row['unit']}{mark}")
    print(f"\n{verdict}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, metavar="N", help="rounds, at least 7 (default 7)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--quick", action="store_true", help="2 rounds of few steps: that it works; no bound is judged")
    arguments = parser.parse_args()
    if arguments.pairs < 7:
        parser.error(f"--pairs {arguments.pairs}: at least 7, or --quick for a trial without verdict")
    num_rounds, sets = (2, QUICK_STEPS) if arguments.quick else (arguments.pairs, ())
    os.environ["SHARDMARK_BIND"] = "none"  # bound by two launchers, the twins would share the first core
    with tempfile.TemporaryDirectory(prefix="shardmark-speed-") as folder:
        rounds = []
        for index in range(num_rounds):
            print(f"round {index + 1} of {num_rounds}", file=sys.stderr)
            rounds.append(run_round(pathlib.Path(folder), index, sets))
    if any(one["oversubscribed"] for one in rounds):
        print(f"speed.py: fewer than {RANKS} cores: nothing is judged", file=sys.stderr)
    judged = not arguments.quick and not any(one["oversubscribed"] for one in rounds)
    rows, verdict = summarise(rounds, judged)
    if arguments.format == "json":
        print(json.dumps({"rows": rows, "verdict": verdict}, indent=1))
    else:
        print_table(rows, verdict, num_rounds)
    return 1 if verdict.startswith("missed") else 0


if __name__ == "__main__":
    sys.exit(main())
