#!/usr/bin/env python3
"""Makes the HDF5 data files that shardmark trains on.

  prepare_data.py digits   -o digits.h5      1,797 images of 8 x 8, pixel / 16, with labels 0 to 9
  prepare_data.py diabetes -o diabetes.h5    442 rows of 10 measurements and one target, standardised
  prepare_data.py text     -o text.h5        English text as rows of tokens: see `text --help`
  prepare_data.py chat FILE.jsonl --tokenizer FOLDER -o chat.h5   conversations and instructions: see `chat --help`
  prepare_data.py movielens -o ml.h5         100,000 ratings of movies by 943 users: see `movielens --help`
  prepare_data.py coco IMAGES ANNOTATIONS -o coco.h5   pictures with boxes, from COCO's instances JSON
  prepare_data.py shapes   -o shapes.h5      labelled shapes pasted on photographs, with boxes

FILE.h5 gets the training rows, FILE.eval.h5 the held-out ones (older data files are replaced, other files never): of digits and diabetes every fifth row of the source (4, 9,
14, ...). These two lie in the wheel of scikit-learn; --source names that wheel, an unpacked folder or the table itself, and
without it the wheel is downloaded (10 MB) into $SHARDMARK_DEPS/downloads.

Where the data come from and under what licence, as far as a source says so, stands in each file (attributes source, license).

Exit codes: 0 done, 2 bad usage or source, 5 nothing to download from, 10 the file cannot be written.
"""

import argparse
import gzip
import hashlib
import io
import pathlib
import sys
import zipfile
import zlib

import numpy

from prepare import chat, coco, movielens, shapes, text
from prepare.files import SCIKIT_LEARN, Problem, check_output, download_wheel, write_file

HELD_OUT_EVERY = 5
DATA_FOLDER = "sklearn/datasets/data/"

# What the sources say and no more. scikit-learn (BSD-3-Clause as a whole) describes both sets in sklearn/datasets/descr, without
# a licence of the data. UCI licenses what is donated to it under CC BY 4.0 (https://archive-beta.ics.uci.edu/donation, 4).
DIGITS_LICENSE = "CC BY 4.0 by the donation policy of the UCI repository; not stated by scikit-learn, which ships a copy"
DIABETES_LICENSE = "not stated by the source"


def read_table(source, name):
    """Bytes of one table: out of a wheel or a folder, or the file itself."""
    if not source.exists():
        raise Problem(f"--source {source} does not exist")
    if source.is_dir():
        hits = sorted(source.rglob(name))
        if not hits:
            raise Problem(f"--source {source} holds no {name}")
        return hits[0].read_bytes()
    if source.name == name:
        return source.read_bytes()
    if not zipfile.is_zipfile(source):
        raise Problem(f"--source {source} is neither a wheel, nor a folder, nor {name}")
    try:
        with zipfile.ZipFile(source) as wheel:
            return wheel.read(DATA_FOLDER + name)
    except KeyError as error:
        raise Problem(f"--source {source} holds no {DATA_FOLDER}{name}: is it a wheel of scikit-learn?") from error
    except (zipfile.BadZipFile, zlib.error, OSError) as error:
        raise Problem(f"--source {source} is damaged: {error}") from error


def parse_table(raw, name, delimiter, shape):
    try:
        table = numpy.loadtxt(io.BytesIO(gzip.decompress(raw)), delimiter=delimiter, ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise Problem(f"{name} cannot be read: {error}") from error
    if table.shape != shape:
        raise Problem(f"{name} holds {table.shape[0]} rows of {table.shape[1]} numbers; {shape[0]} of {shape[1]} are expected")
    if not numpy.isfinite(table).all():
        row, column = numpy.argwhere(~numpy.isfinite(table))[0]
        raise Problem(f"{name}, row {row}, column {column} holds {table[row, column]}")
    return table


def write_vectors(path, features, targets, attributes):
    write_file(path, "vectors", {"features": features.astype(numpy.float32), "targets": targets}, attributes)
    print(f"prepare_data: {path}: {features.shape[0]} rows of {features.shape[1]} features", file=sys.stderr)


def held_out_rows(num_rows):
    return numpy.arange(num_rows) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1


def write_split(output, features, targets, attributes):
    held_out = held_out_rows(len(features))
    # FILE.h5 comes last: where it is, both are.
    write_vectors(output.with_name(output.stem + ".eval.h5"), features[held_out], targets[held_out], attributes)
    write_vectors(output, features[~held_out], targets[~held_out], attributes)


def standardise(table, name):
    """Mean 0 and variance 1 over the training rows, so that nothing of the held-out rows enters the training."""
    training = table[~held_out_rows(len(table))]
    constant = numpy.flatnonzero(numpy.ptp(training, axis=0) == 0)
    if constant.size > 0:
        raise Problem(f"{name}, column {constant[0]} is constant over the training rows: it cannot be standardised")
    return ((table - training.mean(axis=0)) / training.std(axis=0)).astype(numpy.float32)


def digits(source, output):
    raw = read_table(source, "digits.csv.gz")
    table = parse_table(raw, "digits.csv.gz", ",", (1797, 65))
    pixels, labels = table[:, :-1], table[:, -1].astype(numpy.int64)
    if pixels.min() < 0 or pixels.max() > 16 or labels.min() < 0 or labels.max() > 9:
        raise Problem("digits.csv.gz holds pixels outside 0 to 16 or labels outside 0 to 9")
    write_split(output, pixels / 16.0, labels, {
        "source": "E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, "
                  "https://doi.org/10.24432/C50P49; its test set, as shipped by scikit-learn",
        "license": DIGITS_LICENSE,
        "sha256": hashlib.sha256(raw).hexdigest()})


def diabetes(source, output):
    raw_features = read_table(source, "diabetes_data_raw.csv.gz")
    raw_targets = read_table(source, "diabetes_target.csv.gz")
    features = parse_table(raw_features, "diabetes_data_raw.csv.gz", None, (442, 10))
    targets = parse_table(raw_targets, "diabetes_target.csv.gz", None, (442, 1))
    features, targets = standardise(features, "diabetes_data_raw.csv.gz"), standardise(targets, "diabetes_target.csv.gz")
    write_split(output, features, targets, {
        "source": "B. Efron, T. Hastie, I. Johnstone, R. Tibshirani (2004), Least Angle Regression, Annals of Statistics 32, "
                  "https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html, as shipped by scikit-learn",
        "license": DIABETES_LICENSE,
        "sha256": hashlib.sha256(raw_features + raw_targets).hexdigest()})


SETS = {
    "digits": (digits, "images of handwritten digits, 64 features, 10 classes"),
    "diabetes": (diabetes, "10 measurements of patients, one real target"),
}


# With options of their own.
OTHERS = {"text": text, "chat": chat, "movielens": movielens, "coco": coco, "shapes": shapes}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="set", required=True, metavar="SET")
    for name, (_, help_text) in SETS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        command.add_argument("--source", type=pathlib.Path, help="wheel, unpacked folder or table (default: download the wheel)")
        command.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE.h5",
                             help="training rows; held-out rows go to FILE.eval.h5")
    for module in OTHERS.values():
        module.add_command(commands)
    options = parser.parse_args(arguments)
    try:
        if options.set in OTHERS:
            OTHERS[options.set].run(options)
            return 0
        check_output(options.output)
        SETS[options.set][0](options.source or download_wheel(*SCIKIT_LEARN), options.output)
    except Problem as problem:
        print(f"prepare_data: {problem}", file=sys.stderr)
        return problem.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
