"""Holds the tree to the rules of house.py, and house.py to planted violations."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import house  # noqa: E402

ROOT = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))


@pytest.mark.parametrize("check", house.CHECKS, ids=lambda check: check.__name__)
def test_the_tree_keeps_the_rule(check):
    assert list(check(ROOT)) == []


def test_the_checks_read_the_real_tree():
    sources = list(house.files(ROOT, house.CODE, ("src", "workloads")))
    assert len(sources) > 80
    assert {house.folder_of(ROOT, path) for path in sources} >= set(house.BORDERS) | {"app", "workloads"}


@pytest.fixture
def tree(tmp_path):
    """A small tree that keeps every rule; a test plants one violation."""
    good = {
        "src/base/error.hpp": "#pragma once\n// Errors.\n#include <string>\n",
        "src/base/environment.cpp": '#include "base/environment.hpp"\nauto x = std::getenv("A");\n',
        "src/record/file.cpp": '#include <hdf5.h>\n#include "base/error.hpp"\n#include "record/file.hpp"\n',
        "src/comm/mpi.cpp": '#include <mpi.h>\n#include <nccl.h>\n#include "world/world.hpp"\n',
        "src/app/main.cpp": '#include <torch/version.h>\n#include "train/trainer.hpp"\n#include "workloads/table.hpp"\n',
        "src/optim/adam.cpp": "#include <ATen/ATen.h>\n#include <c10/core/Device.h>\n",
        "workloads/mlp.cpp": '#include <torch/torch.h>\n#include "train/workload.hpp"\n#include "table.hpp"\n',
        "workloads/table.cpp": '{"mlp", make_mlp}\n',
    }
    for name, text in good.items():
        plant(tmp_path, name, text)
    for check in house.CHECKS:
        assert list(check(tmp_path)) == []
    return tmp_path


def plant(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("name, text, said", [
    ("src/base/a.cpp", '#include "record/rows.hpp"\n', "record/rows.hpp"),
    ("src/analysis/a.cpp", '#include "config/run_config.hpp"\n', "analysis may use"),
    ("src/metrics/a.hpp", '#pragma once\n// A.\n#include "train/trainer.hpp"\n', "train/trainer.hpp"),
    ("src/model/a.cpp", '#  include "parallel/strategy.hpp"\n', "parallel/strategy.hpp"),
    ("src/record/a.cpp", '#include "app/main.hpp"\n', "app/main.hpp"),
    ("src/train/a.cpp", '#include "workloads/table.hpp"\n', "workloads/table.hpp"),
    ("src/train/a.cpp", '#include "record/rows.hpp"\n', "record/rows.hpp"),
    ("src/train/a.cpp", "#include <mpi.h>\n", "only comm, world may"),
    ("src/app/a.cpp", "#include <torch/torch.h>\n", "<torch/torch.h>"),
    ("src/comm/a.cpp", "#include <c10/core/Device.h>\n", "<c10/core/Device.h>"),
    ("src/optim/a.cpp", "#include <torch/torch.h>\n", "<torch/torch.h>"),
    ("src/world/a.cpp", "#include <nccl.h>\n", "only comm may"),
    ("src/analysis/a.cpp", "#include <hdf5.h>\n", "only data, record may"),
    ("src/analysis/a.cpp", "#include <torch/version.h>\n", "<torch/version.h>"),
    ("src/base/a.cpp", '#include "../record/rows.hpp"\n', "from src on"),
    ("src/other/a.cpp", "", "not in the table"),
    ("workloads/mlp.cpp", '#include "train/trainer.hpp"\n', "train/workload.hpp only"),
    ("workloads/mlp.cpp", '#include "parallel/strategy.hpp"\n', "parallel/strategy.hpp"),
])
def test_a_border_crossed_is_found(tree, name, text, said):
    plant(tree, name, text)
    violations = list(house.border_violations(tree))
    assert len(violations) == 1
    assert name in violations[0] and said in violations[0]


@pytest.mark.parametrize("check, name, text, said", [
    (house.length_violations, "tests/unit/a.cpp", "\n" * 501, "501 lines"),
    (house.length_violations, "scripts/a.py", "\n" * 501, "501 lines"),
    (house.unfinished_violations, "src/base/a.cpp", "int x;\n// TO" + "DO later\n", "a.cpp:2"),
    (house.unfinished_violations, "scripts/a.sh", "# FIX" + "ME\n", "a.sh:1"),
    (house.header_violations, "src/base/a.hpp", "// A.\n#pragma once\n", "#pragma once"),
    (house.header_violations, "src/base/a.hpp", "#pragma once\n#include <string>\n", "what the file is for"),
    (house.environment_violations, "src/app/a.cpp", 'auto x = getenv("A");\n', "base/environment"),
    (house.table_violations, "workloads/lost.cpp", "", "no line"),
])
def test_a_broken_rule_is_found(tree, check, name, text, said):
    plant(tree, name, text)
    violations = list(check(tree))
    assert len(violations) == 1
    assert said in violations[0]


def test_a_formatter_of_another_version_is_not_asked(tree, tmp_path, monkeypatch, capsys):
    other = tmp_path / "clang-format"
    other.write_text("#!/bin/sh\necho clang-format version 99.0.0\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert house.find_formatter() is None
    assert house.format_tree(tree) == 5
    assert "clang-format 14" in capsys.readouterr().err
