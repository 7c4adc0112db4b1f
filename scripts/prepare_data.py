#!/usr/bin/env python3
"""Makes the HDF5 data files that shardmark trains on.

prepare_data.py digits   -o digits.h5      8 x 8 images of digits, 10 classes
prepare_data.py diabetes -o diabetes.h5    10 measurements, one real target (standardised)

Each writes the training rows to FILE.h5 and held-out rows (every fifth row) to FILE.eval.h5. Both sets lie in scikit-learn's
wheel; --source names a wheel, an unpacked folder or the table itself, otherwise the wheel is downloaded (10 MB).
"""

import argparse
import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import h5py
import numpy

SCHEMA_VERSION = 1
WHEEL = "scikit-learn==1.9.1"
HELD_OUT_EVERY = 5
DATA_FOLDER = "sklearn/datasets/data/"


def fail(message):
    sys.exit(f"prepare_data: error: {message}")


def download_wheel():
    folder = pathlib.Path(os.environ.get("SHARDMARK_DEPS", ".deps")) / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(folder.glob("scikit_learn-*.whl"))
    if not found:
        print(f"prepare_data: downloading {WHEEL} (about 10 MB) into {folder}", file=sys.stderr)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), WHEEL]
        if subprocess.run(command).returncode != 0:
            fail(f"pip could not download {WHEEL}; give its wheel or an unpacked folder by --source")
        found = sorted(folder.glob("scikit_learn-*.whl"))
    return found[-1]


def read_table(source, name):
    """Bytes of one table: from a wheel, a folder that holds it, or the file itself."""
    source = pathlib.Path(source) if source else download_wheel()
    if not source.exists():
        fail(f"--source {source} does not exist")
    if source.is_dir():
        hits = sorted(source.rglob(name))
        if not hits:
            fail(f"{source} holds no {name}")
        return hits[0].read_bytes()
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            if DATA_FOLDER + name not in wheel.namelist():
                fail(f"{source} holds no {DATA_FOLDER}{name}")
            return wheel.read(DATA_FOLDER + name)
    if source.name != name:
        fail(f"--source {source} is neither a wheel, nor a folder, nor {name}")
    return source.read_bytes()


def load_numbers(raw, name, delimiter):
    try:
        table = numpy.loadtxt(io.BytesIO(gzip.decompress(raw)), delimiter=delimiter)
    except (OSError, ValueError) as error:
        fail(f"{name} cannot be read: {error}")
    if not numpy.isfinite(table).all():
        fail(f"{name} holds values that are not finite")
    return table


def write_vectors(path, features, targets, source, digest):
    """Written aside, then renamed: FILE is whole or not there."""
    path = pathlib.Path(path)
    with tempfile.NamedTemporaryFile(dir=path.parent or ".", prefix=path.name, suffix=".partial", delete=False) as aside:
        pass
    try:
        with h5py.File(aside.name, "w") as file:
            file.attrs["kind"] = "vectors"
            file.attrs["schema_version"] = SCHEMA_VERSION
            file.attrs["source"] = source
            file.attrs["license"] = "BSD-3-Clause"
            file.attrs["sha256"] = digest
            file.create_dataset("features", data=features.astype(numpy.float32))
            file.create_dataset("targets", data=targets)
        os.chmod(aside.name, 0o644)
        os.replace(aside.name, path)
    except BaseException:
        os.unlink(aside.name)
        raise
    print(f"prepare_data: {path}: {len(features)} rows of {features.shape[1]} features", file=sys.stderr)


def split_and_write(output, features, targets, source, digest):
    if not output.endswith(".h5"):
        fail(f"-o {output} must end in .h5")
    if not os.path.isdir(os.path.dirname(output) or "."):
        fail(f"the folder of {output} does not exist")
    held_out = numpy.arange(len(features)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    write_vectors(output, features[~held_out], targets[~held_out], source, digest)
    write_vectors(output[: -len(".h5")] + ".eval.h5", features[held_out], targets[held_out], source, digest)


def digits(arguments):
    raw = read_table(arguments.source, "digits.csv.gz")
    table = load_numbers(raw, "digits.csv.gz", ",")
    split_and_write(arguments.output, table[:, :-1] / 16.0, table[:, -1].astype(numpy.int64),
                    "UCI optical recognition of handwritten digits, test set (1,797 images), as in scikit-learn",
                    hashlib.sha256(raw).hexdigest())


def diabetes(arguments):
    raw = read_table(arguments.source, "diabetes_data_raw.csv.gz")
    features = load_numbers(raw, "diabetes_data_raw.csv.gz", None)
    targets = load_numbers(read_table(arguments.source, "diabetes_target.csv.gz"), "diabetes_target.csv.gz", None)
    standardise = lambda table: (table - table.mean(axis=0)) / table.std(axis=0)
    split_and_write(arguments.output, standardise(features), standardise(targets).reshape(-1, 1).astype(numpy.float32),
                    "diabetes measurements of Efron, Hastie, Johnstone and Tibshirani (2004), 442 rows, as in scikit-learn",
                    hashlib.sha256(raw).hexdigest())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    for name, action in (("digits", digits), ("diabetes", diabetes)):
        command = commands.add_parser(name)
        command.add_argument("--source", help="wheel, folder or table; default: download the wheel")
        command.add_argument("-o", "--output", required=True, help="FILE.h5")
        command.set_defaults(action=action)
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()
