"""Prints which of the wished build targets exist, and the programs of the tests labelled gpu.

usage: targets.py BUILD TARGET...
"""

import pathlib
import re
import subprocess
import sys


def known_targets(build):
    lines = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True, text=True, stdout=subprocess.PIPE).stdout
    return {line.split(":")[0] for line in lines.splitlines()}


def programs_labelled(build, label):
    """Programs in the build folder that tests of the label call."""
    found = []
    for path in pathlib.Path(build).rglob("CTestTestfile.cmake"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(rf'set_tests_properties\(\[=\[(.+?)\]=\].*LABELS "(?:[^"]*;)?{label}(?:;[^"]*)?"', text):
            line = re.search(rf"^add_test\(\[=\[{re.escape(name)}\]=\] (.*)\)$", text, re.MULTILINE)
            for argument in re.findall(r'"([^"]+)"', line.group(1)) if line else ():
                if pathlib.Path(argument).parent == pathlib.Path(build).resolve():
                    found.append(pathlib.Path(argument).name)
    return found


def main():
    build, wished = sys.argv[1], sys.argv[2:]
    known = known_targets(build)
    print(*[name for name in dict.fromkeys([*wished, *programs_labelled(build, "gpu")]) if name in known])
    return 0


if __name__ == "__main__":
    sys.exit(main())
