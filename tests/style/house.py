"""The rules of the house that a machine can check. Each check takes the root of a source tree and returns its violations,
one text each, so that the tests can run it on the real tree and on planted ones.

house.py --format    lays all C++ and CUDA sources out as .clang-format says (make format)
"""

import pathlib
import re
import shutil
import subprocess
import sys

# What each folder of src may include besides itself; workloads may see of train only workload.hpp.
BORDERS = {
    "base": "",
    "config": "base",
    "record": "base",
    "data": "base record",
    "detection": "base data",
    "weights": "base",
    "device": "base",
    "kernels": "base device",
    "world": "base",
    "comm": "base device kernels world",
    "optim": "base device kernels",
    "parallel": "base device comm optim model",
    "model": "base kernels",
    "metrics": "base device comm record",
    "train": "base config data weights device comm optim parallel model metrics",
    "analysis": "base record",
}
WORKLOADS_MAY_USE = "base config data detection model train".split()
WORKLOADS_MAY_USE_OF_TRAIN = ["train/workload.hpp"]

# Third-party headers that only some folders may see; app sees none of them but through these folders.
SEES_TORCH = {"detection", "model", "parallel", "train", "workloads"}
SEES_ATEN = SEES_TORCH | {"device", "optim"}
THIRD_PARTY = [
    (re.compile(r"torch/"), SEES_TORCH),
    (re.compile(r"(c10|ATen)/"), SEES_ATEN),
    (re.compile(r"mpi\.h$"), {"world", "comm"}),
    (re.compile(r"nccl\.h$"), {"comm"}),
    (re.compile(r"hdf5(_hl)?\.h$|H5\w*\.h$"), {"record", "data"}),
]

# Version macros and nothing else: app names the versions in a record.
VERSION_HEADERS = {"torch/version.h", "H5public.h"}

MAX_LINES = 500
FORMATTER_MAJOR = 14  # Debian 12's; other versions break lines elsewhere
NO_FORMATTER = (f"no clang-format {FORMATTER_MAJOR} here (Debian 12's package clang-format, "
                f"or PyPI's clang-format=={FORMATTER_MAJOR}.*)")
CODE = {".cpp", ".hpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake"}
TREES = ("src", "workloads", "tests", "scripts", "slurm")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
# Spelt in parts, or this file would break its own rule.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")


def files(root, suffixes, trees=TREES):
    for tree in trees:
        for path in sorted((root / tree).rglob("*")):
            if path.suffix in suffixes and path.is_file() and "fixtures" not in path.parts:
                yield path


def folder_of(root, path):
    """base, ..., app, or workloads."""
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] == "src" else parts[0]


def target_of(include, path, folders):
    """The folder of ours that an include means, or None. Plain names mean a file beside the including one."""
    first, _, rest = include.partition("/")
    if not rest:
        return None
    if first == "workloads":
        return "workloads"
    return first if first in folders else None


def allowed_folders(folder, folders):
    if folder == "app":
        return set(folders) | {"workloads"}
    if folder == "workloads":
        return set(WORKLOADS_MAY_USE) | {"workloads"}
    return set(BORDERS[folder].split()) | {folder}


def border_violations(root):
    folders = {path.name for path in (root / "src").iterdir() if path.is_dir()} | set(BORDERS)
    for path in files(root, CODE, ("src", "workloads")):
        where = path.relative_to(root)
        folder = folder_of(root, path)
        if folder not in BORDERS and folder not in ("app", "workloads"):
            yield f"{where}: folder {folder} is not in the table of borders"
            continue
        for include in INCLUDE.findall(path.read_text(encoding="utf-8")):
            for pattern, may in THIRD_PARTY:
                if pattern.match(include) and folder not in may and not (folder == "app" and include in VERSION_HEADERS):
                    yield f"{where}: includes <{include}>, which only {', '.join(sorted(may))} may"
            if include.startswith("..") or include.startswith("src/"):
                yield f"{where}: includes {include}; write it from src on"
            target = target_of(include, path, folders)
            if target is None:
                continue
            if target not in allowed_folders(folder, folders):
                yield f"{where}: includes {include}; {folder} may use {' '.join(sorted(allowed_folders(folder, folders)))}"
            elif folder == "workloads" and target == "train" and include not in WORKLOADS_MAY_USE_OF_TRAIN:
                yield f"{where}: includes {include}; of train workloads may use {' '.join(WORKLOADS_MAY_USE_OF_TRAIN)} only"


def length_violations(root):
    for path in files(root, CODE | SCRIPTS):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            yield f"{path.relative_to(root)}: {lines} lines; the limit is {MAX_LINES}"


def unfinished_violations(root):
    for path in files(root, CODE | SCRIPTS | {".txt", ".toml"}):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = UNFINISHED.search(line)
            if found:
                yield f"{path.relative_to(root)}:{number}: {found.group()} in committed code"


def header_violations(root):
    for path in files(root, {".hpp", ".cuh"}):
        text = path.read_text(encoding="utf-8")
        if not text.startswith("#pragma once"):
            yield f"{path.relative_to(root)}: must start with #pragma once"
        elif not text.splitlines()[1:2] or not text.splitlines()[1].startswith("//"):
            yield f"{path.relative_to(root)}: the second line must say what the file is for"


def environment_violations(root):
    """The environment is read in base/environment only."""
    for path in files(root, CODE, ("src", "workloads")):
        if path.stem == "environment" and folder_of(root, path) == "base":
            continue
        if re.search(r"\b(secure_)?getenv\s*\(", path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(root)}: reads the environment; base/environment.hpp does that"


def table_violations(root):
    """Every workload has a line in the table, or it would never be linked in."""
    table = root / "workloads/table.cpp"
    if not table.is_file():
        yield "workloads/table.cpp: missing"
        return
    text = table.read_text(encoding="utf-8")
    for path in sorted((root / "workloads").glob("*.cpp")):
        name = path.stem
        if path != table and not re.search(rf"\b(make_)?{re.escape(name)}\b", text):
            yield f"workloads/{path.name}: workloads/table.cpp has no line for it"


def find_formatter():
    """clang-format of the version that the tree is formatted with, or None."""
    for name in (f"clang-format-{FORMATTER_MAJOR}", "clang-format"):
        path = shutil.which(name)
        if path and f"version {FORMATTER_MAJOR}." in subprocess.run([path, "--version"], text=True, capture_output=True).stdout:
            return path
    return None


def formatting_violations(root, formatter):
    sources = [str(path) for path in files(root, CODE)]
    result = subprocess.run([formatter, "--dry-run", "--Werror", *sources], text=True, capture_output=True, cwd=root)
    badly_formatted = sorted({line.split(":")[0] for line in result.stderr.splitlines() if "clang-format-violations" in line})
    if result.returncode != 0 and not badly_formatted:
        return [f"clang-format failed: {result.stderr[:500]}"]
    return [f"{pathlib.Path(path).relative_to(root)}: not as clang-format writes it; make format" for path in badly_formatted]


def format_tree(root):
    formatter = find_formatter()
    if formatter is None:
        print(f"format: {NO_FORMATTER}", file=sys.stderr)
        return 5
    return subprocess.run([formatter, "-i", *map(str, files(root, CODE))], cwd=root).returncode


CHECKS = [border_violations, length_violations, unfinished_violations, header_violations, environment_violations,
          table_violations]


if __name__ == "__main__":
    if sys.argv[1:] != ["--format"]:
        sys.exit("usage: house.py --format")
    sys.exit(format_tree(pathlib.Path(__file__).resolve().parents[2]))
