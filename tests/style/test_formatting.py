"""All C++ and CUDA sources are laid out as clang-format does. Without the formatter this is skipped, and ctest says so."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import house  # noqa: E402

ROOT = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))


@pytest.fixture
def formatter():
    found = house.find_formatter()
    if found is None:
        pytest.skip(f"{house.NO_FORMATTER}: formatting is not checked")
    return found


@pytest.fixture
def tree(tmp_path):
    (tmp_path / ".clang-format").write_text("BasedOnStyle: Google\n")
    for name in ("src/base/a.cpp", "src/base/b.hpp", "src/kernels/c.cu", "src/kernels/d.cuh", "workloads/e.cpp",
                 "tests/unit/f.cpp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("int x = 1;\n")
    return tmp_path


def test_the_tree_is_formatted(formatter):
    assert house.formatting_violations(ROOT, formatter) == []


def test_bad_formatting_is_found_in_every_kind_of_source_and_put_right(tree, formatter):
    assert house.formatting_violations(tree, formatter) == []
    sources = list(house.files(tree, house.CODE))
    assert len(sources) == 6
    for path in sources:
        path.write_text("int   x=1 ;\n")
        where = path.relative_to(tree)
        assert house.formatting_violations(tree, formatter) == [f"{where}: not as clang-format writes it; make format"]
        assert house.format_tree(tree) == 0
        assert path.read_text() == "int x = 1;\n"
