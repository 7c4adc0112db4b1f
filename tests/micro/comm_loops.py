#!/usr/bin/env python3
"""What `shardmark comm` adds to what it measures, and how our collectives stand beside MPI's own.

comm_loops.py [--ranks N] [SAMPLES.csv]     runs build/bench/comm_loops under the launcher, or reads what it printed

One line an operation and size: the median over rounds, in turn, of the loop that `comm` times, of a plain loop over the same
communicator, and of a loop of MPI calls by hand. Exit 1 if `comm` adds more than 0.3 us to a call of 8 bytes, or is off by more than
5 % (below 6 us: by 0.3 us, since a queued operation costs the communicator a fixed time) from calls by hand that send the same messages:
send_receive of one message, and all_reduce left to the library, as from 9 ranks on. Elsewhere our algorithms are not MPI's, and the ratio
says which is faster. Takes two minutes and wants a free core for each rank.
"""

import argparse
import csv
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_ADDED_S = 0.3e-6
MAX_OFF = 0.05
ONE_MESSAGE_BYTES = 512 * 1024  # MpiOptions::chunk_bytes: larger ones are cut


def same_messages(operation, message_bytes):
    return operation == "all_reduce_library" or (operation == "send_receive" and message_bytes <= ONE_MESSAGE_BYTES)


def compare(samples):
    """One dictionary per operation and size, in the order of the samples: medians, and what breaks a bound."""
    groups = {}
    for row in samples:
        groups.setdefault((row["operation"], int(row["message_bytes"])), []).append(row)
    lines = []
    for (operation, message_bytes), rows in groups.items():
        comm, plain, mpi = (statistics.median(float(row[name]) for row in rows) for name in ("comm_s", "plain_s", "mpi_s"))
        line = {"operation": operation, "message_bytes": message_bytes, "comm_us": comm * 1e6, "added_us": (comm - plain) * 1e6,
                "mpi_us": mpi * 1e6, "comm_over_mpi": comm / mpi, "same_messages": same_messages(operation, message_bytes)}
        line["broken"] = []
        if message_bytes <= 8 and comm - plain > MAX_ADDED_S:
            line["broken"].append(f"comm adds more than {MAX_ADDED_S * 1e6:.1f} us")
        if line["same_messages"] and abs(comm - mpi) > max(MAX_OFF * mpi, MAX_ADDED_S):
            line["broken"].append(f"more than {MAX_OFF:.0%} and {MAX_ADDED_S * 1e6:.1f} us from the same messages by hand")
        lines.append(line)
    return lines


def show(lines):
    print(f"{'operation':<20}{'bytes':>9}{'comm_us':>11}{'added_us':>10}{'mpi_us':>11}{'comm/mpi':>10}  note")
    for line in lines:
        note = "; ".join(line["broken"]) or ("same messages" if line["same_messages"] else "")
        print(f"{line['operation']:<20}{line['message_bytes']:>9}{line['comm_us']:>11.3f}{line['added_us']:>10.3f}{line['mpi_us']:>11.3f}"
              f"{line['comm_over_mpi']:>10.3f}  {note}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="?", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.samples:
        text = arguments.samples.read_text()
    else:
        program = pathlib.Path(os.environ.get("SHARDMARK_BUILD", ROOT / "build")) / "bench" / "comm_loops"
        job = subprocess.run([ROOT / "scripts" / "launch.sh", str(arguments.ranks), program], capture_output=True, text=True)
        if job.returncode != 0:
            sys.exit(f"comm_loops.py: exit code {job.returncode} of {program}: build the target comm_loops first\n{job.stderr.strip()[-2000:]}")
        text = job.stdout
    lines = compare(csv.DictReader(text.splitlines()))
    if not lines:
        sys.exit("comm_loops.py: there is no sample: operation,message_bytes,round,comm_s,plain_s,mpi_s is expected")
    show(lines)
    sys.exit(1 if any(line["broken"] for line in lines) else 0)


if __name__ == "__main__":
    main()
