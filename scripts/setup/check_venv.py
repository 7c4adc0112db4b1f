"""Tells whether a virtual environment is whole, has the named packages, and all in the pinned versions.

usage: check_venv.py CONSTRAINTS NAME [NAME ...]     (run by the environment's own Python)
Exit code 0: all there; 1: some absent or of another version (pip can put that right); 2: one is half-installed, as after an
interrupted pip, and only a new environment helps. What is wrong goes to standard output, one line a package.
"""

import importlib.metadata
import os
import re
import sys


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned_versions(path):
    with open(path, encoding="utf-8") as file:
        pairs = (line.strip().split("==") for line in file if "==" in line and not line.startswith("#"))
        return {canonical(name): version for name, version in pairs}


def broken_file(distribution):
    """The first file of a distribution that is not there in its full size, or None."""
    if distribution.files is None:
        return "its list of files"
    for file in distribution.files:
        if file.name.endswith(".pyc"):
            continue
        try:
            size = os.stat(file.locate()).st_size
        except OSError:
            return str(file)
        if file.size is not None and size != file.size:
            return str(file)
    return None


def main():
    pins = pinned_versions(sys.argv[1])
    absent = {canonical(name) for name in sys.argv[2:]}
    code = 0
    for distribution in importlib.metadata.distributions():
        name = canonical(distribution.metadata["Name"] or "a package without a name")
        absent.discard(name)
        broken = broken_file(distribution)
        if broken is not None:
            print(f"{name}: half-installed ({broken} is missing or cut)")
            code = 2
        elif pins.get(name, distribution.version) != distribution.version:
            print(f"{name}: {distribution.version}, pinned {pins[name]}")
            code = max(code, 1)
    for name in sorted(absent):
        print(f"{name}: absent")
        code = max(code, 1)
    return code


if __name__ == "__main__":
    sys.exit(main())
