"""prepare_data.py movielens: the recipe's rules on ratings like the real ones, and a message for every bad source. Downloads
nothing."""

import hashlib
import os
import pathlib
import subprocess
import sys
import zipfile

import h5py
import numpy
import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
MEMBER = "recbole/dataset_example/ml-100k/ml-100k.inter"
TITLES = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
PARTS = ("", ".eval", ".test")


def prepare(*arguments, **variables):
    result = subprocess.run([sys.executable, str(SOURCE / "scripts/prepare_data.py"), "movielens", *map(str, arguments)], text=True,
                            capture_output=True, timeout=120, env={**os.environ, "PIP_NO_INDEX": "1", **variables})
    return result.returncode, result.stderr


@pytest.fixture
def ratings():
    """200 different pairs in no order; users have gaps in their numbers."""
    random = numpy.random.default_rng(1)
    pairs = random.permutation(40 * 30)[:200]
    return numpy.column_stack([3 * (pairs // 30) + 7, pairs % 30 + 1, random.integers(1, 6, 200)])


def as_text(ratings):
    return TITLES + "".join(f"{user}\t{movie}\t{rating}\t881250949\n" for user, movie, rating in ratings)


@pytest.fixture
def wheel(tmp_path, ratings):
    path = tmp_path / "recbole-1.2.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, as_text(ratings))
    return path


def read(folder, name="ml"):
    parts = []
    for part in PARTS:
        with h5py.File(folder / f"{name}{part}.h5") as file:
            parts.append(({key: file[key][:] for key in file}, dict(file.attrs)))
    return parts


def test_rows_are_sorted_cut_labelled_and_split(tmp_path, wheel, ratings):
    code, text = prepare("--source", wheel, "--rows", 150, "-o", tmp_path / "ml.h5")
    assert code == 0, text
    kept = ratings[numpy.lexsort((ratings[:, 1], ratings[:, 0]))][:150]
    users = sorted(set(kept[:, 0]))
    expected = {(users.index(user), movie, float(rating >= kept[:, 2].mean())) for user, movie, rating in kept}
    parts = read(tmp_path)
    assert [len(rows["user"]) for rows, _ in parts] == [105, 31, 14], "70 and 21 % rounded down, and the rest"
    found = [row for rows, _ in parts for row in zip(rows["user"], rows["item"], rows["label"])]
    assert len(found) == 150 and set(found) == expected, "each row once"
    for rows, about in parts:
        assert (rows["user"].dtype, rows["item"].dtype, rows["label"].dtype) == (numpy.int64, numpy.int64, numpy.float32)
        assert about["kind"] == "ratings" and about["schema_version"] == 1
        assert about["num_users"] == len(users) and about["num_items"] == len(set(kept[:, 1]))
        assert about["rating_mean"] == kept[:, 2].mean()
        assert "GroupLens" in about["license"] and "MovieLens 100K" in about["source"]
        assert about["sha256"] == hashlib.sha256(as_text(ratings).encode()).hexdigest()
    assert not list(tmp_path.glob("*.partial"))


def test_split_follows_its_seed(tmp_path, wheel):
    for name, seed in (("a", 42), ("b", 42), ("c", 43)):
        assert prepare("--source", wheel, "--seed", seed, "-o", tmp_path / f"{name}.h5")[0] == 0
    a, b, c = (read(tmp_path, name)[0][0]["user"] for name in "abc")
    assert (a == b).all() and (a != c).any()


def test_tables_of_grouplens_are_read_too(tmp_path, wheel, ratings):
    table = tmp_path / "item_ratings.csv"
    table.write_text("userId,movieId,rating,pred_rating\n" + "".join(f"{u},{m},{r},3.5\n" for u, m, r in ratings))
    assert prepare("--source", table, "-o", tmp_path / "csv.h5")[0] == 0
    assert prepare("--source", wheel, "-o", tmp_path / "ml.h5")[0] == 0
    for (mine, about), (other, _) in zip(read(tmp_path, "csv"), read(tmp_path)):
        assert all((mine[key] == other[key]).all() for key in other)
        assert about["license"] == "not stated" and about["source"] == "item_ratings.csv"


@pytest.mark.parametrize("row, message", [
    ("5\t6\tnan\t1", "row 3, column rating:float holds nan; only finite numbers"),
    ("5\t6\tinf\t1", "row 3, column rating:float holds inf"),
    ("5\t6\tgood\t1", "row 3, column rating:float holds good"),
    ("5\t-6\t3\t1", "row 3, column item_id:token holds -6; whole numbers from 0 are ids"),
    ("1e3\t6\t3\t1", "row 3, column user_id:token holds 1e3"),
    ("5\t6", "row 3 holds 2 values, not 4"),
])
def test_bad_rows_are_named(tmp_path, ratings, row, message):
    lines = as_text(ratings).splitlines()
    lines[4] = row
    source = tmp_path / "ml-100k.inter"
    source.write_text("\n".join(lines))
    code, text = prepare("--source", source, "-o", tmp_path / "ml.h5")
    assert code == 2 and message in text and str(source) in text, text
    assert not list(tmp_path.glob("*.h5*"))


def test_bad_sources_are_named(tmp_path, wheel):
    empty = tmp_path / "empty.whl"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("other", "")
    untitled = tmp_path / "untitled.inter"
    untitled.write_text("1\t2\t3\t4\n")
    few = tmp_path / "few.inter"
    few.write_text(TITLES + "1\t2\t3\t4\n")
    for source, message in ((tmp_path / "no", "does not exist"), (tmp_path, "is no file"), (empty, f"holds no {MEMBER}"),
                            (untitled, "needed are user_id:token"), (few, "holds 1 ratings; at least 10")):
        code, text = prepare("--source", source, "-o", tmp_path / "ml.h5")
        assert code == 2 and message in text, text
    code, text = prepare("--source", wheel, "--rows", 3, "-o", tmp_path / "ml.h5")
    assert code == 2 and "--rows 3" in text
    (tmp_path / "ml.test.h5").write_text("a run's record")
    code, text = prepare("--source", wheel, "-o", tmp_path / "ml.h5")
    assert code == 2 and "ml.test.h5 exists and is no data file" in text


def test_without_a_network_the_remedy_is_named(tmp_path):
    code, text = prepare("-o", tmp_path / "ml.h5", SHARDMARK_DEPS=str(tmp_path))
    assert code == 5 and "fetch its wheel elsewhere" in text, text
