"""prepare_data.py text: rows of tokens from files made here, held-out text that leaks nothing, a message for every bad source."""

import os
import pathlib
import subprocess
import sys

import h5py
import numpy
import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))


def prepare(*arguments):
    done = subprocess.run([sys.executable, str(SOURCE / "scripts/prepare_data.py"), "text", *map(str, arguments)], text=True,
                          capture_output=True, timeout=120)
    return done.returncode, done.stderr


def read(path):
    with h5py.File(path) as file:
        return file["input_ids"][:], file["labels"][:], dict(file.attrs)


@pytest.fixture
def lines():
    words = (SOURCE / "LICENSE").read_text().split()
    return [" ".join(words[i:i + 9]) + " é\n" for i in range(0, len(words), 9)]


@pytest.fixture
def text(tmp_path, lines):
    path = tmp_path / "some.txt"
    path.write_text("".join(lines))
    return path


def test_bytes_are_cut_into_rows_and_the_end_is_held_out(tmp_path, text, lines):
    code, messages = prepare(text, "--vocabulary", "bytes", "--length", 50, "--held-out", 0.2, "--license", "Apache-2.0", "-o",
                             tmp_path / "t.h5")
    assert code == 0, messages
    training, labels, attributes = read(tmp_path / "t.h5")
    held_out = read(tmp_path / "t.eval.h5")[0]
    raw = text.read_bytes()
    assert training.dtype == numpy.int32 and training.shape[1] == 50
    assert training.tobytes() == numpy.frombuffer(raw, numpy.uint8)[:training.size].astype(numpy.int32).tobytes()
    numpy.testing.assert_array_equal(labels[:, 1:], training[:, 1:])
    assert (labels[:, 0] == -100).all()
    # Held out is a whole number of lines at the end, the part asked for but for one line.
    rest = held_out.astype(numpy.uint8).tobytes()
    start = raw.index(rest)
    assert raw[start - 1:start] == b"\n" and training.size <= start < training.size + 50
    assert 0 <= len("".join(lines)) * 0.2 - (len(raw[start:].decode()) - max(map(len, lines))) <= 2 * max(map(len, lines))
    assert attributes["kind"] == "tokens" and attributes["schema_version"] == 1 and attributes["license"] == "Apache-2.0"
    assert attributes["source"] == "some.txt" and len(attributes["sha256"]) == 64 and attributes["vocabulary"] == "bytes"
    assert not list(tmp_path.glob("*.partial"))


def test_a_trained_vocabulary_knows_nothing_of_the_held_out_text(tmp_path, lines):
    pytest.importorskip("tokenizers", reason="trained vocabularies need Python's tokenizers")
    made = []
    for number, end in enumerate(("plain ends here\n", "zyzzyva zyzzyva\n")):
        path = tmp_path / f"{number}.txt"
        path.write_text("".join(lines) + 10 * end)  # 160 characters, less than the 5 % that are held out
        code, messages = prepare(path, "--vocabulary", 400, "--length", 16, "--held-out", 0.05, "-o", tmp_path / f"{number}.h5")
        assert code == 0, messages
        made.append([read(tmp_path / f"{number}{kind}.h5")[0] for kind in ("", ".eval")])
    assert made[0][0].tobytes() == made[1][0].tobytes() and made[0][1].tobytes() != made[1][1].tobytes()
    assert made[0][0].max() < 400 and len(numpy.unique(made[0][0])) > 256 / 2
    # Fewer tokens than bytes: the merges are used.
    assert made[0][0].size < 0.7 * len("".join(lines).encode())


@pytest.mark.parametrize("content, arguments, part", [
    (b"caf\xe9\n" * 99, (), "byte 3 is 0xe9"),
    (b"short\n" * 3, ("--length", "128"), "fewer than one row of 128"),
    (b"no line end" * 999, (), "no line end"),
    (b"fine\n" * 999, ("--vocabulary", "10"), "--vocabulary 10"),
    (b"fine\n" * 999, ("--vocabulary", "words"), "--vocabulary words"),
    (b"fine\n" * 999, ("--length", "1"), "--length 1"),
    (b"fine\n" * 999, ("--held-out", "1"), "--held-out 1"),
])
def test_bad_sources_and_options_are_named(tmp_path, content, arguments, part):
    (tmp_path / "bad.txt").write_bytes(content)
    code, messages = prepare(tmp_path / "bad.txt", "--vocabulary", "bytes", *arguments, "-o", tmp_path / "t.h5")
    assert code == 2 and part in messages, messages
    assert not list(tmp_path.glob("*.h5*"))


def test_missing_files_and_folders_are_named(tmp_path, text):
    code, messages = prepare(tmp_path / "missing.txt", "-o", tmp_path / "t.h5")
    assert code == 2 and "missing.txt: No such file" in messages
    assert prepare(text, "-o", tmp_path / "none" / "t.h5")[0] == 2
    assert prepare(text, "-o", tmp_path / "t.hdf5")[0] == 2


def test_without_files_the_text_and_its_source_are_named(tmp_path):
    code, messages = prepare("--vocabulary", "bytes", "-o", tmp_path / "t.h5")
    assert code == 0, messages
    source = read(tmp_path / "t.h5")[2]["source"]
    assert "bible-kjv-text" in source or "/usr/share/common-licenses" in source
