"""prepare_data.py: files made of sources like the real ones, and a message for every bad source. Downloads nothing."""

import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import zipfile

import h5py
import numpy
import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
DATA_FOLDER = "sklearn/datasets/data/"


def prepare(*arguments, **variables):
    result = subprocess.run([sys.executable, str(SOURCE / "scripts/prepare_data.py"), *map(str, arguments)], text=True,
                            capture_output=True, timeout=120, env={**os.environ, "PIP_NO_INDEX": "1", **variables})
    return result.returncode, result.stderr


def table_bytes(table, delimiter):
    text = io.StringIO()
    numpy.savetxt(text, table, fmt="%.18g", delimiter=delimiter)
    return gzip.compress(text.getvalue().encode())


@pytest.fixture
def digits_table():
    generator = numpy.random.default_rng(1)
    return numpy.column_stack([generator.integers(0, 17, (1797, 64)), generator.integers(0, 10, 1797)])


@pytest.fixture
def diabetes_tables():
    generator = numpy.random.default_rng(2)
    return generator.normal(40, 15, (442, 10)), generator.normal(150, 80, (442, 1))


@pytest.fixture
def wheel(tmp_path, digits_table, diabetes_tables):
    path = tmp_path / "scikit_learn-1.9.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(DATA_FOLDER + "digits.csv.gz", table_bytes(digits_table, ","))
        archive.writestr(DATA_FOLDER + "diabetes_data_raw.csv.gz", table_bytes(diabetes_tables[0], " "))
        archive.writestr(DATA_FOLDER + "diabetes_target.csv.gz", table_bytes(diabetes_tables[1], " "))
    return path


def test_digits_are_split_and_scaled(tmp_path, wheel, digits_table):
    code, text = prepare("digits", "--source", wheel, "-o", tmp_path / "d.h5")
    assert code == 0, text
    held_out = numpy.arange(1797) % 5 == 4
    digest = hashlib.sha256(zipfile.ZipFile(wheel).read(DATA_FOLDER + "digits.csv.gz")).hexdigest()
    for name, rows in (("d.h5", digits_table[~held_out]), ("d.eval.h5", digits_table[held_out])):
        with h5py.File(tmp_path / name) as file:
            assert file["features"].dtype == numpy.float32 and file["targets"].dtype == numpy.int64
            numpy.testing.assert_array_equal(file["features"][:], (rows[:, :64] / 16).astype(numpy.float32))
            numpy.testing.assert_array_equal(file["targets"][:], rows[:, 64])
            assert file.attrs["kind"] == "vectors" and file.attrs["schema_version"] == 1
            assert "CC BY 4.0" in file.attrs["license"] and "Alpaydin" in file.attrs["source"]
            assert file.attrs["sha256"] == digest
    assert not list(tmp_path.glob("*.partial"))


def test_diabetes_is_standardised_by_its_training_rows(tmp_path, wheel, diabetes_tables):
    code, text = prepare("diabetes", "--source", wheel, "-o", tmp_path / "d.h5")
    assert code == 0, text
    with h5py.File(tmp_path / "d.h5") as file, h5py.File(tmp_path / "d.eval.h5") as held_out:
        assert file["features"].shape == (354, 10) and file["targets"].shape == (354, 1)
        assert held_out["features"].shape == (88, 10) and held_out["targets"].dtype == numpy.float32
        assert file.attrs["license"] == "not stated by the source" and "Efron" in file.attrs["source"]
        for dataset in ("features", "targets"):
            # Rounding to float32 moves x by 2^-24 |x| at the most, so the mean by 2^-24 mean |x| <= 2^-24 (the mean square is 1)
            # and the variance by 2 * 2^-24. Sums in float64 add less than 2^-40.
            numpy.testing.assert_allclose(file[dataset][:].astype(float).mean(axis=0), 0, atol=2**-24 + 2**-40)
            numpy.testing.assert_allclose(file[dataset][:].astype(float).var(axis=0), 1, atol=2**-23 + 2**-40)
        training = diabetes_tables[0][numpy.arange(442) % 5 != 4]
        expected = (diabetes_tables[0][4] - training.mean(axis=0)) / training.std(axis=0)
        # One rounding to float32; the absolute part is for numbers near 0, whose float64 sums cancelled.
        numpy.testing.assert_allclose(held_out["features"][0], expected, rtol=2**-24, atol=2**-40)


def test_held_out_rows_change_nothing_in_the_training_rows(tmp_path, diabetes_tables):
    made = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, table in zip(("diabetes_data_raw", "diabetes_target"), diabetes_tables):
            other = table.copy()
            other[4::5] += 1000 * number
            (folder / f"{name}.csv.gz").write_bytes(table_bytes(other, " "))
        code, text = prepare("diabetes", "--source", folder, "-o", folder / "d.h5")
        assert code == 0, text
        with h5py.File(folder / "d.h5") as file, h5py.File(folder / "d.eval.h5") as held_out:
            made.append((file["features"][:], file["targets"][:], held_out["features"][:]))
    numpy.testing.assert_array_equal(made[0][0], made[1][0])
    numpy.testing.assert_array_equal(made[0][1], made[1][1])
    assert (made[0][2] != made[1][2]).all()


def test_a_constant_column_is_named(tmp_path, diabetes_tables):
    features, targets = diabetes_tables
    features[numpy.arange(442) % 5 != 4, 3] = 7
    for name, table in (("diabetes_data_raw", features), ("diabetes_target", targets)):
        (tmp_path / f"{name}.csv.gz").write_bytes(table_bytes(table, " "))
    code, text = prepare("diabetes", "--source", tmp_path, "-o", tmp_path / "d.h5")
    assert code == 2 and "diabetes_data_raw.csv.gz, column 3 is constant" in text
    assert not list(tmp_path.glob("d*.h5*"))


def test_wheel_folder_and_table_give_the_same_bytes(tmp_path, wheel):
    zipfile.ZipFile(wheel).extractall(tmp_path / "unpacked")
    table = tmp_path / "unpacked" / DATA_FOLDER / "digits.csv.gz"
    contents = set()
    for number, source in enumerate((wheel, tmp_path / "unpacked", table)):
        assert prepare("digits", "--source", source, "-o", tmp_path / f"{number}.h5")[0] == 0
        contents.add((tmp_path / f"{number}.h5").read_bytes())
    assert len(contents) == 1


def test_a_downloaded_wheel_is_used_again(tmp_path, wheel):
    downloads = tmp_path / "deps/downloads"
    downloads.mkdir(parents=True)
    wheel.rename(downloads / wheel.name)
    code, text = prepare("digits", "-o", tmp_path / "d.h5", SHARDMARK_DEPS=str(tmp_path / "deps"))
    assert code == 0 and "downloading" not in text


def test_without_network_the_remedy_is_named(tmp_path):
    code, text = prepare("digits", "-o", tmp_path / "d.h5", SHARDMARK_DEPS=str(tmp_path / "deps"))
    assert code == 5
    assert "--source" in text and "10 MB" in text
    assert not (tmp_path / "d.h5").exists()


def bad_sources(tmp_path, digits_table):
    text = tmp_path / "text.whl"
    text.write_text("no archive")
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("x", "y")
    empty = tmp_path / "empty"
    empty.mkdir()
    yield tmp_path / "missing.whl", "does not exist"
    yield text, "neither a wheel, nor a folder"
    yield other, "holds no sklearn/datasets/data/digits.csv.gz"
    yield empty, "holds no digits.csv.gz"
    tables = {
        "cut": (table_bytes(digits_table, ",")[:-2000], "cannot be read"),
        "few": (table_bytes(digits_table[:100], ","), "100 rows of 65"),
        "words": (gzip.compress(b"a,b\n"), "cannot be read"),
        "pixels": (table_bytes(digits_table + (numpy.arange(65) == 3) * 20, ","), "outside 0 to 16"),
        "nan": (table_bytes(numpy.where(numpy.arange(65) == 7, numpy.nan, digits_table), ","), "row 0, column 7 holds nan"),
    }
    for name, (raw, message) in tables.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "digits.csv.gz").write_bytes(raw)
        yield folder, message


def test_every_bad_source_is_named_and_leaves_nothing(tmp_path, digits_table):
    for source, message in bad_sources(tmp_path, digits_table):
        code, text = prepare("digits", "--source", source, "-o", tmp_path / "d.h5")
        assert code == 2, f"{source}: {text}"
        assert message in text
        assert "Traceback" not in text
        assert not list(tmp_path.glob("d*.h5*"))


def test_a_failed_write_keeps_the_old_file(tmp_path, wheel):
    assert prepare("digits", "--source", wheel, "-o", tmp_path / "d.h5")[0] == 0
    old = (tmp_path / "d.h5").read_bytes()
    (tmp_path / "d.h5.partial").mkdir()
    code, text = prepare("digits", "--source", wheel, "-o", tmp_path / "d.h5")
    assert code == 10 and "cannot be written" in text and "Traceback" not in text
    assert (tmp_path / "d.h5").read_bytes() == old


@pytest.mark.parametrize("name", ["d.h5", "d.eval.h5"])
@pytest.mark.parametrize("what", ["a record", "text"])
def test_only_data_files_are_replaced(tmp_path, wheel, name, what):
    if what == "text":
        (tmp_path / name).write_text("old")
    else:
        with h5py.File(tmp_path / name, "w") as file:
            file.attrs["schema_version"] = 1  # as a run's record has; `kind` it has not
    old = (tmp_path / name).read_bytes()
    for kind in (("digits", "--source", wheel), ("text",)):
        code, text = prepare(*kind, "-o", tmp_path / "d.h5")
        assert code == 2 and f"{name} exists and is no data file: name another output" in text
    assert [path.name for path in tmp_path.glob("d.*")] == [name] and (tmp_path / name).read_bytes() == old


@pytest.mark.parametrize("output, message", [("d.txt", "must end in .h5"), ("no/folder/d.h5", "does not exist")])
def test_bad_outputs_are_refused(tmp_path, wheel, output, message):
    code, text = prepare("digits", "--source", wheel, "-o", tmp_path / output)
    assert code == 2 and message in text
