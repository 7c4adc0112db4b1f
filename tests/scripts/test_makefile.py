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


def test_what_takes_longer_than_a_build_says_how_long():
    helps = dict(re.findall(r"^([a-z-]+):.*?## (.*)$", (SOURCE / "Makefile").read_text(), re.MULTILINE))
    for target in ("bench", "peers", "gpu-check", "bundle"):
        assert re.search(r"minute|hour", helps[target]), target
    loops = (SOURCE / "tests/micro/comm_loops.py").read_text()
    assert "minute" in loops.split('"""')[1]


def test_gpu_check_hands_its_options_on():
    shown = subprocess.run(["make", "-n", "-C", str(SOURCE), "gpu-check", "BUNDLE=b.tar", "GPU_CHECK=--out page"], text=True,
                           capture_output=True, timeout=60, env={**os.environ, "MAKEFLAGS": ""}).stdout
    assert 'scripts/gpu_check.sh --bundle "b.tar" --out page' in shown
