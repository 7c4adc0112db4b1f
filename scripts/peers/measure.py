#!/usr/bin/env python3
"""Measures shardmark beside PyTorch DDP, FSDP2 and DeepSpeed ZeRO on 2 ranks of this machine. Needs two free cores.

  measure.py [--pairs N] [--cells PRESET:TECHNIQUE,...] [--quick] [-o FILE.md or FILE.csv] [--records FOLDER]

Both sides start from the same exported weights and read the same rows of the same file; mlp trains without dropout, for torch
draws other masks; retinanet-mini without flips. In every round each cell runs ours and the peer, in turn first, so that drift of the machine meets both alike.
Ours runs under technique.profile = fsdp2 or deepspeed where the peer is of that kind.

  limit    compute + communication: `single` on one rank, two of them at once, the slower one's step; plus the payload of our
           record over the speed of each of our collectives (or of MPI_Allreduce where faster) at the size of its messages, in
           nominal bytes a second. That step updates all parameters: where each rank updates its share alone (zero1-3, fsdp) the
           limit is lenient by the difference
  ratio    step of the peer / step of ours: above 1, ours is faster. Medians over rounds of the step medians; low to high by
           order statistics, no distribution assumed
  losses   the first 10 steps of both, against one rank: within 20 x the distance of one rank from itself when it adds rows one
           at a time, at least 2e-6 (retinanet-mini, whose rows share statistics: against ddp, and its distance from itself
           when all initial weights move by one unit in their last place). A cell that departs is marked and not compared
  resident largest peak of a rank's process, libraries included

Exit codes: 0 done, 1 a run failed, 2 bad usage, 5 the peers' environment is incomplete, 8 losses depart in some cell.
"""

import argparse
import csv
import datetime
import io
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from measuring import (LAUNCH, RANKS, ROOT, collective_times, communication_s, fail, finish, interval,  # noqa: E402
                       read_record, set_options, start, train, train_twins)
from record import cpu_model  # noqa: E402
from settings import ask_program, parse  # noqa: E402
from weights import read_safetensors  # noqa: E402

DEPS = pathlib.Path(os.environ.get("SHARDMARK_DEPS") or ROOT / ".deps")
PREPARE = ROOT / "scripts" / "prepare_data.py"
PROFILES = {"ddp": "native", "fsdp": "fsdp2", "zero1": "deepspeed", "zero2": "deepspeed", "zero3": "deepspeed"}
DEFAULT_CELLS = ("mlp:ddp", "mlp-digits:ddp", *(f"{preset}:{technique}" for preset in ("mlp-wide", "lm10m", "transformer10m", "two-tower", "retinanet-mini")
                                                for technique in PROFILES))
# Arguments of prepare_data.py; what has no real data gets random rows, so many features wide.
RANDOM = {"mlp-wide": 784, "transformer10m": 512}
# The movies' table is as large as in the recipe, whose data set is another.
MODELS = {"mlp": ("model.dropout=0",), "two-tower": ("model.movies=13012",)}
DATA = {"mlp": ("diabetes",), "mlp-digits": ("digits",), "lm10m": ("text",), "two-tower": ("movielens",),
        "retinanet-mini": ("shapes", "--size", "256x256", "--eval-number", "0"),
        "lm10m-tiny": ("text", "--vocabulary", "bytes", "--length", "32")}
# Fewer steps than the presets' own where a step is long.
STEPS = {"mlp-wide": ("measure.steps=10", "measure.blocks=3"), "lm10m": ("measure.steps=5", "measure.blocks=2"),
         "transformer10m": ("measure.warmup_steps=3", "measure.steps=10", "measure.blocks=2"),
         "retinanet-mini": ("measure.warmup_steps=3", "measure.steps=4", "measure.blocks=1")}
FILES = {"lm10m-tiny": "text-bytes.h5", "retinanet-mini": "shapes-256.h5"}  # where several presets take one kind of data
# Rows of a rank share their batch's statistics: what is right depends on the number of ranks, and rows cannot be added one by one.
COUPLED_ROWS = ("retinanet-mini",)
QUICK_STEPS = ("measure.warmup_steps=3", "measure.steps=3", "measure.blocks=2")
COMPARED_STEPS = 10
BUSY_OVER_LIMIT = 2    # ranks that wait for each other suffer most where they share their cores with others
LOSS_BOUND = 2e-6      # where one rank's distance from itself is smaller: some roundings of fp32
SPREAD_FACTOR = 20
RANDOM_ROWS = 5000     # as many as the synthetic ones


def parse_cells(text):
    cells = []
    for word in text.split(","):
        preset, _, technique = word.partition(":")
        if technique not in PROFILES or preset not in (*DATA, *RANDOM):
            fail(f"--cells {word}: expected PRESET:TECHNIQUE of {', '.join((*DATA, *RANDOM))} and {', '.join(PROFILES)}", code=2)
        cells.append((preset, technique))
    return cells


def peer_environment(cells):
    """(Python, variables) of the peers, set up on demand."""
    wanted = [*(["--deepspeed"] if any(technique.startswith("zero") for _, technique in cells) else []),
              *(["--torchvision"] if any(preset.startswith("retinanet") for preset, _ in cells) else [])]
    done = subprocess.run([HERE / "setup.sh", *wanted], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    variables = {}
    if found.get("site"):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (found["site"], os.environ.get("PYTHONPATH"))))
        variables["PATH"] = os.pathsep.join((os.environ["PATH"], f"{found['site']}/bin"))  # ninja
    if found.get("extensions"):
        variables["TORCH_EXTENSIONS_DIR"] = found["extensions"]
    return found["python"], variables


def prepare(preset):
    """The preset's data file, made where it is missing or older than what makes it."""
    folder = DEPS / "data"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (f"random-{RANDOM[preset]}.h5" if preset in RANDOM else FILES.get(preset) or f"{DATA[preset][0]}.h5")
    makers = (PREPARE, *(PREPARE.parent / "prepare").glob("*.py"))
    if path.exists() and path.stat().st_mtime > max(maker.stat().st_mtime for maker in makers):
        return path
    if preset in RANDOM:
        import prepare_data
        random = numpy.random.default_rng(42)
        prepare_data.write_vectors(path, random.standard_normal((RANDOM_ROWS, RANDOM[preset])), random.integers(0, 10, RANDOM_ROWS),
                                   {"source": "random numbers", "license": "none", "sha256": ""})
    elif subprocess.run([sys.executable, PREPARE, *DATA[preset], "-o", path]).returncode != 0:
        fail(f"{path} could not be made: see above", code=5)
    return path


def distance(losses, reference):
    """Of each compared step, relative."""
    count = min(len(losses), len(reference), COMPARED_STEPS)
    return numpy.abs(numpy.array(losses[:count]) / numpy.array(reference[:count]) - 1)


def loss_bounds(whole, otherwise):
    """Of each step. Distances are handed on from step to step, so the largest one so far counts."""
    return numpy.maximum(SPREAD_FACTOR * numpy.maximum.accumulate(distance(otherwise, whole)), LOSS_BOUND)


def departure(losses, case):
    """"" or the first step that lies outside its bound, and by how much."""
    far = distance(losses, case["losses"])
    outside = numpy.flatnonzero(~(far <= case["bounds"][:len(far)]))  # NaN is outside
    return "" if outside.size == 0 else f"DEPART at step {outside[0]}: {far[outside[0]]:.1e} > {case['bounds'][outside[0]]:.1e}"


def move_weights(folder, copy):
    """Every weight of an exported folder, one unit in its last place up or down."""
    shutil.copytree(folder, copy)
    path = copy / "model.safetensors"
    tensors, raw = read_safetensors(path)
    random = numpy.random.default_rng(42)
    for weights in tensors.values():
        if weights.dtype == numpy.float32:
            up = random.integers(0, 2, weights.shape, dtype=bool)
            weights[...] = numpy.nextafter(weights, numpy.where(up, numpy.float32(numpy.inf), numpy.float32(-numpy.inf)))
    path.write_bytes(raw)
    return copy


def prepare_case(folder, preset, quick):
    """What all cells of a preset share: settings, initial weights, one rank's losses and their bounds."""
    data = [f"data.path={prepare(preset)}", *MODELS.get(preset, ())]
    once = ["measure.warmup_steps=0", "measure.steps=1", "measure.blocks=1"]
    weights = folder / f"{preset}-weights"
    # A learning rate that changes no bit of a weight: the initial ones are exported.
    train(folder, f"{preset}-start", preset, "single", 1, [*data, *once, "optimizer.lr=1e-30", f"checkpoint.export={weights}"])
    sets = [*data, f"model.checkpoint={weights}"]
    config = parse(ask_program(preset, "single", sets))[0]
    given = config["data"]["global_batch"]
    global_batch = given or config["data"]["micro_batch"] * RANKS
    ten = ["measure.warmup_steps=0", f"measure.steps={COMPARED_STEPS}", "measure.blocks=1", f"data.global_batch={global_batch}"]
    if preset in COUPLED_ROWS:
        whole = train(folder, f"{preset}-whole", preset, "ddp", RANKS, [*sets, *ten])["losses"]
        moved = [*data, f"model.checkpoint={move_weights(weights, folder / f'{preset}-moved')}"]
        otherwise = train(folder, f"{preset}-moved-weights", preset, "ddp", RANKS, [*moved, *ten])["losses"]
    else:
        whole = train(folder, f"{preset}-whole", preset, "single", 1, [*sets, *ten, "data.micro_batch=0"])["losses"]
        # Nothing is reduced between the rows of one rank.
        one_by_one = ["data.micro_batch=1", "technique.accumulation=no_sync"]
        otherwise = train(folder, f"{preset}-rows", preset, "single", 1, [*sets, *ten, *one_by_one])["losses"]
    share = [f"data.global_batch={given // RANKS}"] if given else []
    return {"sets": [*sets, *(QUICK_STEPS if quick else STEPS.get(preset, ()))], "share": share, "losses": whole,
            "bounds": loss_bounds(whole, otherwise)}


def train_peer(folder, name, preset, technique, sets, peer):
    python, variables = peer
    path = folder / f"{name}.h5"
    finish(start(RANKS, python, HERE / "train.py", preset, "--technique", technique, "-o", path, *set_options(sets), env=variables))
    return read_record(path)


def run_round(folder, index, cells, cases, peer):
    """One value of everything by cell."""
    found = {}
    for preset, technique in cells:
        sets = [*cases[preset]["sets"], f"technique.profile={PROFILES[technique]}"]
        sides = {
            "ours": lambda: train(folder, f"round{index}-{preset}-{technique}-ours", preset, technique, RANKS, sets),
            "peer": lambda: train_peer(folder, f"round{index}-{preset}-{technique}-peer", preset, technique, sets, peer)}
        found[preset, technique] = {side: sides[side]() for side in (sides if index % 2 == 0 else reversed(sides))}
    shared_s = {preset: train_twins(folder, f"round{index}-{preset}-twin", preset, RANKS, [*case["sets"], *case["share"]])
                for preset, case in cases.items()}
    times = collective_times([cell["ours"]["payload"] for cell in found.values()])
    for (preset, _), cell in found.items():
        cell["limit_s"] = shared_s[preset] + communication_s(cell["ours"]["payload"], times)
    return found


def row_of(cell, rounds, case):
    preset, technique = cell
    mine = [one[cell] for one in rounds]
    departed = next(filter(None, (departure(one["peer"]["losses"], case) for one in mine)), "")
    ours_departed = next(filter(None, (departure(one["ours"]["losses"], case) for one in mine)), "")

    def median(value):
        return statistics.median(map(value, mine))
    ratios = [one["peer"]["step_s"] / one["ours"]["step_s"] for one in mine]
    low, high, coverage = interval(ratios)
    row = {"preset": preset, "technique": technique, "peer": mine[0]["peer"]["peer"],
           "ours_ms": median(lambda one: one["ours"]["step_s"]) * 1e3, "peer_ms": median(lambda one: one["peer"]["step_s"]) * 1e3,
           "ratio": statistics.median(ratios), "low": low, "high": high, "coverage": coverage,
           "limit_ms": median(lambda one: one["limit_s"]) * 1e3,
           "ours_over_limit": median(lambda one: one["ours"]["step_s"] / one["limit_s"]),
           "ours_resident_mib": median(lambda one: one["ours"]["resident_bytes"]) / 2**20,
           "peer_resident_mib": median(lambda one: one["peer"]["resident_bytes"]) / 2**20,
           "losses": "; ".join(filter(None, (departed and f"peer: {departed}", ours_departed and f"ours: {ours_departed}"))) or "agree"}
    if row["losses"] != "agree":
        row.update(dict.fromkeys(("peer_ms", "ratio", "low", "high", "coverage", "peer_resident_mib"), None))
    return row


def text_of(value):
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def as_markdown(rows, heading):
    lines = [heading, "", "| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(map(text_of, row.values())) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def as_csv(rows, heading):
    out = io.StringIO()
    print("".join(f"# {line}\n" for line in heading.splitlines()), end="", file=out)
    writer = csv.DictWriter(out, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def machine():
    """The processor and what else ran: a number without its machine says nothing."""
    return (f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}, "
            f"load {os.getloadavg()[0]:.1f} at the start")


def check_new(output, records):
    """Before an hour is spent on what cannot be written."""
    for option, path, taken in (("-o", output, output and output.exists()), ("--records", records, records and any(records.glob("*")))):
        if path and not path.resolve().parent.is_dir():
            fail(f"{option} {path}: the folder {path.resolve().parent} does not exist", code=2)
        if taken:
            fail(f"{option} {path} exists: choose another name", code=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, metavar="N", help="rounds, at least 7 (default 7)")
    parser.add_argument("--cells", default=",".join(DEFAULT_CELLS), metavar="PRESET:TECHNIQUE,...")
    parser.add_argument("--quick", action="store_true", help="1 round of few steps: that it works; the numbers mean nothing")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE", help="also write the table: .md or .csv")
    parser.add_argument("--records", type=pathlib.Path, metavar="FOLDER",
                        help="also keep the records of both sides, for shardmark compare --transfer FOLDER/*.h5")
    arguments = parser.parse_args()
    if arguments.pairs < 7:
        parser.error(f"--pairs {arguments.pairs}: at least 7, or --quick for a trial")
    if arguments.output and arguments.output.suffix not in (".md", ".csv"):
        parser.error(f"-o {arguments.output} must end in .md or .csv")
    check_new(arguments.output, arguments.records)
    cells = parse_cells(arguments.cells)
    peer = peer_environment(cells)
    os.environ["SHARDMARK_BIND"] = "none"  # bound by two launchers, the twins would share the first core
    where, num_rounds = machine(), 1 if arguments.quick else arguments.pairs
    with tempfile.TemporaryDirectory(prefix="shardmark-peers-") as name:
        folder = pathlib.Path(name)
        cases = {preset: prepare_case(folder, preset, arguments.quick) for preset in dict.fromkeys(preset for preset, _ in cells)}
        rounds = []
        for index in range(num_rounds):
            print(f"round {index + 1} of {num_rounds}", file=sys.stderr)
            rounds.append(run_round(folder, index, cells, cases, peer))
            if arguments.records:
                arguments.records.mkdir(exist_ok=True)
                for kept in (*folder.glob(f"round{index}-*-ours.h5"), *folder.glob(f"round{index}-*-peer.h5")):
                    shutil.copy(kept, arguments.records)
    rows = [row_of(cell, rounds, cases[cell[0]]) for cell in cells]
    heading = (f"shardmark beside its peers: {RANKS} ranks, {num_rounds} round(s), {datetime.date.today()}, {where}.\n"
               "ratio = peer_ms / ours_ms, median of the rounds' ratios; low to high holds the true median with probability `coverage`.")
    busy = [f"{row['preset']}:{row['technique']}" for row in rows if row["ours_over_limit"] > BUSY_OVER_LIMIT]
    if busy:
        heading += f"\nMore than {BUSY_OVER_LIMIT:g} x the limit in {', '.join(busy)}: other work on this machine, most likely; measure again."
    oversubscribed = any(one[cell]["ours"]["oversubscribed"] for one in rounds for cell in cells)
    if oversubscribed or arguments.quick:
        heading += f"\n{'Fewer cores than ranks' if oversubscribed else 'A quick trial'}: the times mean nothing."
    print(as_markdown(rows, heading), end="")
    if arguments.output:
        arguments.output.write_text((as_markdown if arguments.output.suffix == ".md" else as_csv)(rows, heading))
    return 0 if all(row["losses"] == "agree" for row in rows) else 8


if __name__ == "__main__":
    sys.exit(main())
