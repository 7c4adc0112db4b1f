"""Makefile: its help names every target, and comes without set-up."""

import os
import pathlib
import re
import subprocess

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))


def test_help_lists_every_target_and_sets_nothing_up(tmp_path):
    targets = re.search(r"^\.PHONY: (.*)$", (SOURCE / "Makefile").read_text(), re.MULTILINE).group(1).split()
    assert {"help", "build", "test", "bench"} <= set(targets)
    for arguments in ([], ["help"]):
        result = subprocess.run(["make", "-s", "-C", str(SOURCE), *arguments], text=True, capture_output=True, timeout=60,
                                env={**os.environ, "SHARDMARK_DEPS": str(tmp_path / "deps"), "MAKEFLAGS": ""})
        assert result.returncode == 0, result.stderr
        listed = re.findall(r"^  make (\S+) +(\S.*)$", result.stdout, re.MULTILINE)
        assert [name for name, _ in listed] == targets
    assert not (tmp_path / "deps").exists()


def test_every_rule_is_a_target_of_the_help():
    text = (SOURCE / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split()
    assert re.findall(r"^([a-z-]+):", text, re.MULTILINE) == targets
