"""The rules of the house that a machine can check: include borders, file sizes, unfinished words, the table of workloads."""

import os
import pathlib
import re

import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))

# What each folder may include of ours, besides itself.
MAY_USE = {
    "base": "", "config": "base", "record": "base", "data": "base record", "weights": "base", "device": "base",
    "kernels": "base device", "world": "base", "comm": "base device kernels world", "optim": "base device kernels",
    "model": "base kernels", "parallel": "base device comm optim model", "metrics": "base device comm record",
    "train": "base config data weights device comm optim parallel model metrics", "analysis": "base record",
    "app": "base config record data weights device kernels world comm optim model parallel metrics train analysis workloads",
    "workloads": "base config data model train",
}
# Who may see which foreign headers: they make builds slow and borders leak.
FOREIGN = {
    r"torch/": "model parallel train workloads app", r"(c10|ATen)/": "model parallel train workloads app device optim",
    r"mpi\.h": "world comm", r"nccl\.h": "comm", r"hdf5\.h": "record data",
}
INCLUDE = re.compile(r'^\s*#include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
LONGEST_FILE = 500


def sources(root):
    for folder in ("src", "workloads"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".cu", ".cuh"):
                yield path


def border_violations(root):
    found = []
    for path in sources(root):
        parts = path.relative_to(root).parts
        folder = parts[1] if parts[0] == "src" else "workloads"
        for ours, foreign in INCLUDE.findall(path.read_text()):
            if ours and "/" in ours:
                target = ours.split("/")[0]
                if target != folder and target not in MAY_USE[folder].split():
                    found.append(f"{path}: {folder} may not include {ours}")
            for pattern, allowed in FOREIGN.items():
                if foreign and re.match(pattern, foreign) and folder not in allowed.split():
                    found.append(f"{path}: {folder} may not include <{foreign}>")
    return found


def test_include_borders():
    assert border_violations(SOURCE) == []
    assert len(list(sources(SOURCE))) > 80, "the test looks at nothing"


@pytest.mark.parametrize("folder, line", [("base", '#include "comm/communicator.hpp"'), ("metrics", "#include <torch/torch.h>"),
                                          ("train", "#include <mpi.h>"), ("model", '#include "parallel/strategy.hpp"')])
def test_planted_violations_are_seen(tmp_path, folder, line):
    (tmp_path / "src" / folder).mkdir(parents=True)
    (tmp_path / "src" / folder / "x.hpp").write_text(line + "\n")
    assert len(border_violations(tmp_path)) == 1


def test_files_are_short_and_finished():
    for folder in ("src", "workloads", "tests", "scripts"):
        for path in (SOURCE / folder).rglob("*"):
            if path.suffix in (".cpp", ".hpp", ".cu", ".py", ".sh", ".cmake"):
                text = path.read_text()
                assert len(text.splitlines()) <= LONGEST_FILE, path
                unfinished = "TO" + "DO", "FIX" + "ME"
                assert not any(word in text for word in unfinished), path


def test_every_workload_has_its_line():
    table = (SOURCE / "workloads" / "table.cpp").read_text()
    for path in (SOURCE / "workloads").glob("*.cpp"):
        assert path.stem == "table" or f'{{"{path.stem}"' in table, path
