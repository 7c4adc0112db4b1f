"""scripts/speed.py runs everything that it measures and prints one object. What it measures here means nothing."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import SOURCE

BUILD = pathlib.Path(os.environ.get("SHARDMARK_BUILD", SOURCE / "build"))


def test_quick_run_measures_everything_and_judges_nothing(tmp_path):
    if not (BUILD / "bench" / "bench_hook_cost").exists():
        pytest.skip("this build has no benchmarks (SM_BENCHMARKS=OFF)")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, SOURCE / "scripts" / "speed.py", "--quick", "--format", "json"], env=environment,
                          cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "not judged"
    rows = {row["name"]: row for row in result["rows"]}
    assert {row["name"]: row["bound"] for row in result["rows"] if row["bound"]} == {
        "mlp ddp step": 0.16, "mlp-wide ddp / limit": 1.15, "measuring": 0.01}
    for row in rows.values():
        assert len(row["values"]) == 2 and row["low"] <= row["median"] <= row["high"] and row["met"] is None
        assert row["coverage"] == 0.5
    for name in ("mlp ddp step", "mlp single step", "mlp-wide ddp step", "mlp-wide single step, alone", "mlp-wide payload / speed",
                 "measuring: collective", "measuring: row", "measuring: clock"):
        assert rows[name]["median"] > 0, name
    parts = sum(row["values"][0] for name, row in rows.items() if name.startswith("measuring: "))
    assert rows["measuring"]["values"][0] == pytest.approx(parts)
    limit = rows["mlp-wide single step, twice at once"]["values"][0] + rows["mlp-wide payload / speed"]["values"][0]
    assert rows["mlp-wide limit"]["values"][0] == pytest.approx(limit)
    assert not any(tmp_path.iterdir()), "its records are temporary"
