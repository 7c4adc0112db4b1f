"""What a GPU check must know before it plans: devices, cores, versions; and, once built, which presets fit."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

REHEARSAL_GIB = 1.0  # what a rank may hold in a rehearsal, where memory is that of the host


def said(command, **options):
    """Standard output of a command, or "" if it is absent or fails."""
    try:
        result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, **options)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


def device_memory_gib():
    """Of every visible device, in GiB."""
    lines = said(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]).splitlines()
    memory = [float(line) / 1024 for line in lines if re.fullmatch(r"[\d.]+", line.strip())]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        memory = memory[: len([name for name in visible.split(",") if name.strip()])]
    return memory


def nccl_version():
    """(2, 30, 7) of the NCCL beside LibTorch, or () if there is none to be found."""
    torch = os.environ.get("Torch_DIR", "")
    header = pathlib.Path(torch).resolve().parents[3] / "nvidia/nccl/include/nccl.h" if torch else None
    if header is None or not header.is_file():
        return ()
    text = header.read_text(errors="replace")
    found = [re.search(rf"#define NCCL_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    return tuple(int(match.group(1)) for match in found if match)


def compute_sanitizer():
    places = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    found = shutil.which("compute-sanitizer")
    return found or next((f"{place}/bin/compute-sanitizer" for place in places
                          if place and os.access(f"{place}/bin/compute-sanitizer", os.X_OK)), "")


def gather(rehearse):
    memory = [] if rehearse else device_memory_gib()
    cores = len(os.sched_getaffinity(0))
    return {
        "devices": len(memory),
        "memory_gib": min(memory) if memory else REHEARSAL_GIB,
        "cores": cores,
        "np": len(memory) if memory else min(2, cores),
        "backend": "nccl" if memory else "mpi",
        "nccl_version": nccl_version(),
        "compute_sanitizer": compute_sanitizer(),
        "python": sys.executable,
    }


def presets(shell):
    """Names that `shardmark list` prints; `shell` runs bash in the check's surroundings and returns its output."""
    return [line.split()[0] for line in shell("build/shardmark list").splitlines() if line and not line[0].isspace()]


def technique_that_fits(shell, preset, facts):
    """(technique or None, why): the recipe's own where it fits, else the first that does."""
    text = shell(f"build/shardmark plan {preset} --gpus {facts['np']} --memory {facts['memory_gib']:g} --format json 2>/dev/null")
    try:
        rows = json.loads(text)["rows"]
    except (ValueError, KeyError):
        return None, "plan did not answer"
    fitting = []
    for row in rows:
        if row["fits"] != "no" and row["technique"] not in fitting:
            fitting.append(row["technique"])
    if not fitting:
        return None, f"no technique fits {facts['memory_gib']:.3g} GiB on {facts['np']} rank(s)"
    recipe = re.search(r'^\[technique\]\s*^name = "(\w+)"', shell(f"build/shardmark run {preset} --print-config"), re.MULTILINE)
    if recipe and recipe.group(1) in fitting:
        return recipe.group(1), ""
    return fitting[0], f"{fitting[0]}: the recipe's technique does not fit"
