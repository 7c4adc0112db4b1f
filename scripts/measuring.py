"""What scripts that measure share: jobs, what is read of a record, our collectives by size, and the interval of a median."""

import json
import math
import os
import pathlib
import subprocess
import sys

import h5py

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("SHARDMARK_BUILD", ROOT / "build"))
PROGRAM = pathlib.Path(os.environ.get("SHARDMARK_BINARY", BUILD / "shardmark"))
LAUNCH = ROOT / "scripts" / "launch.sh"
RANKS = 2
CONFIDENCE = 0.95


def fail(message, code=1):
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(code)


def start(ranks, *command, env=None):
    """A job, so that several may run at the same time."""
    return subprocess.Popen([LAUNCH, str(ranks), *map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, **(env or {})})


def finish(job):
    out, errors = job.communicate()
    if job.returncode != 0:
        fail(f"exit code {job.returncode} of: {' '.join(map(str, job.args))}\n{errors.strip()[-2000:]}")
    return out


def set_options(sets):
    return [word for value in sets for word in ("--set", value)]


def start_training(folder, name, preset, technique, ranks, sets):
    path = folder / f"{name}.h5"
    return start(ranks, PROGRAM, "run", preset, "--technique", technique, "-o", path, *set_options(sets)), path


def train(folder, name, preset, technique, ranks, sets):
    job, path = start_training(folder, name, preset, technique, ranks, sets)
    finish(job)
    return read_record(path)


def train_twins(folder, name, preset, ranks, sets):
    """The step of `single` while as many of it run at once as there are ranks, so that they share memory as ranks do: the
    slowest one's median. It does not see the ends, where one of them has started or finished first."""
    twins = [start_training(folder, f"{name}{twin}", preset, "single", 1, sets) for twin in range(ranks)]
    for job, _ in twins:
        finish(job)
    return max(read_record(path)["step_s"] for _, path in twins)


def read_record(path):
    """What is used of a record: the median step, losses, resident memory, and rank 0's collectives by step."""
    with h5py.File(path) as file:
        summary, steps, collectives, memory = file["summary"][0], file["steps"][:], file["collectives"][:], file["memory"][:]
        keys = {row["key"]: row["value"] for row in file["config_keys"][:]}
    num_steps = int(((steps["timed"] == 1) & (steps["rank"] == 0)).sum())
    mine = collectives[collectives["rank"] == 0]
    payload = {}
    for row in mine[(mine["purpose"] == b"gradient") | (mine["purpose"] == b"parameter")]:
        which = (row["operation"].decode(), int(row["message_bytes"]))
        payload[which] = payload.get(which, 0.0) + float(row["wire_bytes"]) / num_steps
    return {
        "step_s": float(summary["step_time_median_s"]),
        "oversubscribed": bool(summary["oversubscribed"]),
        "losses": steps["loss"][steps["rank"] == 0].tolist(),
        "resident_bytes": max((int(row["peak_bytes"]) for row in memory if row["category"] == b"host_rss"), default=-1),
        "layers": json.loads(keys[b"model.layers"]),
        "peer": keys.get(b"peer", b"").decode().strip('"'),
        "collectives_per_step": float(mine["count"].sum()) / num_steps,
        "payload": payload,
    }


def benchmark(name, ranks, *arguments):
    """Google Benchmark's rows of one of our programs, by name."""
    program = BUILD / "bench" / name
    if not program.exists():
        fail(f"{program} does not exist: build with -DSM_BENCHMARKS=ON (make build does)")
    rows = json.loads(finish(start(ranks, program, "--benchmark_format=json", *arguments)))["benchmarks"]
    for row in rows:
        if row.get("error_occurred"):
            fail(f"{name}: {row['name']}: {row['error_message']}")
    return {row["name"].split("/iterations")[0]: row for row in rows}


def nominal_bytes(operation, size):
    """What one rank puts on the wire for a buffer of `size` bytes in all (`wire_bytes` of records)."""
    return (2 if operation == "all_reduce" else 1) * (RANKS - 1) / RANKS * size


def collective_times(payloads):
    """Seconds of one collective over the ranks, by (operation, size), for all that the payloads hold: ours, or MPI_Allreduce
    where that is faster, so that no slowness of ours raises the limit."""
    wanted = sorted({which for payload in payloads for which in payload})
    if not wanted:
        return {}
    operations = "|".join(sorted({"MPI_Allreduce"} | {operation for operation, _ in wanted}))
    sizes = ",".join(map(str, sorted({size for _, size in wanted})))
    rows = benchmark("bench_collectives", RANKS, f"--benchmark_filter=^({operations})/", f"--bytes={sizes}")

    def fastest_us(operation, size):
        names = [operation, *(["MPI_Allreduce"] if operation == "all_reduce" else [])]
        return min(rows[f"{name}/{size}"]["median_us"] for name in names)
    return {(operation, size): fastest_us(operation, size) * 1e-6 for operation, size in wanted}


def communication_s(payload, times):
    """A record's payload over the measured speed of each operation at each size, in nominal bytes a second."""
    return sum(wire_bytes * times[which] / nominal_bytes(*which) for which, wire_bytes in payload.items())


def interval(values, confidence=CONFIDENCE):
    """(low, high, coverage): order statistics that hold the median, so no distribution is assumed: the narrowest pair of k-th
    smallest and k-th largest value that holds the true median with at least `confidence` (7 values: all of them, 98.4 %; fewer
    than 6 cannot reach 95 %, and `coverage` says what they reach)."""
    ordered = sorted(values)
    n = len(ordered)

    def coverage(k):  # of [k-th smallest, k-th largest], k from 1
        return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n
    k = max([1] + [k for k in range(1, (n + 1) // 2 + 1) if coverage(k) >= confidence])
    return ordered[k - 1], ordered[n - k], coverage(k)
