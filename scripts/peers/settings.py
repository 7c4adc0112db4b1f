"""The effective settings of a case, as `shardmark run CASE --print-config` shows them: there is no second table of keys."""

import os
import pathlib
import subprocess
import tomllib

from problem import DataProblem

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("SHARDMARK_BINARY") or ROOT / "build" / "shardmark")

# What a peer would have to be taught first; the value it supports.
FIXED = {"model.activation_checkpointing": False, "technique.accumulation": "sync", "technique.shard_group": 0,
         "technique.offload": "none",
         "precision.parameters": "fp32", "precision.compute": "fp32", "precision.reduce": "fp32", "precision.state": "fp32",
         "optimizer.clip_norm": 0.0, "schedule.name": "constant", "schedule.warmup_steps": 0}
OPTIMIZERS = ("sgd", "adam", "adamw")


def ask_program(case, technique, sets):
    """Text of --print-config. Raises DataProblem with the program's own words."""
    command = [PROGRAM, "run", case, "--technique", technique, *(word for one in sets for word in ("--set", one)), "--print-config"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise DataProblem(f"{PROGRAM} cannot be run ({error.strerror}): build it (make build), or set SHARDMARK_BINARY") from error
    if done.returncode != 0:
        raise DataProblem(done.stderr.strip())
    return done.stdout


def split_line(line):
    """(name, value as TOML, origin) of `name = value   # origin`; a value may hold the sign of a comment."""
    name, _, rest = line.partition(" = ")
    at = rest.find(" # ")
    while at >= 0:
        try:
            tomllib.loads(f"value = {rest[:at]}")
            return name, rest[:at].strip(), rest[at + 3:]
        except tomllib.TOMLDecodeError:
            at = rest.find(" # ", at + 1)
    return name, rest.strip(), ""


def parse(text):
    """(config as nested dictionaries, rows of /config_keys, text without origins)."""
    rows, lines, section = [], [], ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        if " = " in line and section:
            name, value, origin = split_line(line)
            rows.append({"key": f"{section}.{name}", "value": value, "origin": origin})
            line = f"{name} = {value}"
        lines.append(line)
    plain = "\n".join(lines) + "\n"
    return tomllib.loads(plain), rows, plain


def check_output(path, config):
    """Raises DataProblem where a record must not be written."""
    if pathlib.Path(path).exists() and not config["output"]["overwrite"]:
        raise DataProblem(f"-o {path} exists: choose another name, or --set output.overwrite=true")


def check(config, world_size):
    """(global batch, micro batch), or DataProblem with everything that a peer does not do."""
    problems = []
    for key, wanted in FIXED.items():
        section, name = key.split(".")
        if config[section][name] != wanted:
            problems.append(f"{key} = {config[section][name]}: peers support {wanted}")
    if config["optimizer"]["name"] not in OPTIMIZERS:
        problems.append(f"optimizer.name = {config['optimizer']['name']}: peers support {', '.join(OPTIMIZERS)}")
    data = config["data"]
    per_rank = data["micro_batch"] or data["global_batch"] // world_size
    if data["accumulation"] not in (0, 1) or (data["global_batch"] and per_rank * world_size != data["global_batch"]):
        problems.append(f"data.global_batch = {data['global_batch']}, data.micro_batch = {data['micro_batch']}, data.accumulation = "
                        f"{data['accumulation']} over {world_size} rank(s): peers take a step in one micro-step of whole rows")
    if problems:
        raise DataProblem("; ".join(problems))
    return per_rank * world_size, per_rank
