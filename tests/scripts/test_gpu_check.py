"""gpu_check.sh: limits, the page, what is skipped and why, by small plans of shell commands; and the real plan as data."""

import hashlib
import importlib.util
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import time

import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
FOLDER = SOURCE / "scripts/gpu_check"


def load(name):
    spec = importlib.util.spec_from_file_location(f"gpu_check_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(tmp_path):
    """Runs or starts a check with steps of ours, away from this tree's env.sh."""
    def start(steps, *arguments, rehearse=True):
        (tmp_path / "plan.py").write_text(f"def steps(facts):\n    return {steps!r}\n")
        environment = {**os.environ, "SHARDMARK_DEPS": str(tmp_path / "deps"), "SHARDMARK_PYTHON": sys.executable}
        return subprocess.Popen([str(SOURCE / "scripts/gpu_check.sh"), "--out", str(tmp_path / "out"), "--plan",
                                 str(tmp_path / "plan.py"), *(["--rehearse"] if rehearse else []), *arguments],
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def run(steps, *arguments, **options):
        process = start(steps, *arguments, **options)
        text, errors = process.communicate(timeout=120)
        return process.returncode, text, errors

    run.start = start
    return run


def page(tmp_path):
    """(state, {step: its line}) of the page; both of its forms name the same steps in the same order."""
    found = json.loads((tmp_path / "out/summary.json").read_text())
    table = re.findall(r"^\| (\S+) \| (.+?) \| ", (tmp_path / "out/summary.md").read_text(), re.MULTILINE)[1:]
    assert table == [(step["name"], step["status"]) for step in found["steps"]]
    return found["state"], {step["name"]: step for step in found["steps"]}


def processes_with(mark):
    return [entry for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and mark in command_line(entry)]


def command_line(entry):
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def test_a_step_that_hangs_is_killed_at_its_limit_and_the_next_one_runs(tmp_path, check):
    mark = f"31{os.getpid()}"  # of the hanging processes: seconds nobody else sleeps
    hanging = f"trap '' TERM; setsid -w true; sleep {mark} & (set -m; sleep {mark} & wait)"
    code, text, _ = check([dict(name="hangs", limit_s=1, command=hanging), dict(name="next", limit_s=9, command="echo here")])
    assert code == 1
    state, steps = page(tmp_path)
    assert state == "finished"
    assert steps["hangs"]["status"] == "timed out" and "killed after 1 s, its own limit" in steps["hangs"]["reason"]
    assert steps["hangs"]["seconds"] < 1 + 3 + 5  # its limit, the grace of check.py, a busy machine
    assert steps["next"]["status"] == "passed"
    assert (tmp_path / "out/logs/next.txt").read_text() == "here\n"
    assert processes_with(mark) == []
    assert "1 step(s) passed, 1 did not pass: hangs, 0 NOT RUN" in text


def test_sigterm_leaves_a_complete_page(tmp_path, check):
    steps = [dict(name="first", limit_s=9, command="true"), dict(name="long", limit_s=99, command="echo begun; sleep 98"),
             dict(name="never", limit_s=9, command="true")]
    process = check.start(steps)
    deadline_s = time.monotonic() + 60
    log = tmp_path / "out/logs/long.txt"
    while not (log.exists() and "begun" in log.read_text()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert page(tmp_path)[0] == "running" and list(page(tmp_path)[1]) == ["first"]  # what was done stands before the end
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 1
    state, found = page(tmp_path)
    assert state == "stopped by SIGTERM"
    assert [found[name]["status"] for name in ("first", "long", "never")] == ["passed", "stopped", "not run"]


def test_steps_that_no_longer_fit_are_listed(tmp_path, check):
    start_s = time.monotonic()
    code, _, _ = check([dict(name="long", limit_s=99, command="sleep 98"), dict(name="late", limit_s=30, command="true")],
                       "--limit", "16")
    assert time.monotonic() - start_s < 16 + 5  # the limit and a busy machine's start of Python
    _, steps = page(tmp_path)
    assert code == 1
    assert "what was left of the whole limit" in steps["long"]["reason"]
    assert (steps["late"]["status"], steps["late"]["reason"]) == ("not run", "no time left")


def test_what_was_not_run_is_no_success(tmp_path, check):
    code, text, _ = check([dict(name="first", limit_s=9, command="true"),
                           dict(name="late", limit_s=900, least_s=900, command="true")], "--limit", "16")
    assert code == 1 and "1 step(s) passed, 0 did not pass, 1 NOT RUN: late" in text
    assert page(tmp_path)[1]["late"]["reason"] == "no time left"


def test_failures_skips_and_what_depends_on_them(tmp_path, check):
    code, _, _ = check([
        dict(name="build", limit_s=9, command="echo 'wrong | thing'; exit 3"),
        dict(name="needs-it", limit_s=9, after="build", command="true"),
        dict(name="chose", limit_s=9, command="echo shardmark: hello; skip no toolkit"),
        dict(name="planned", skip="needs a device"),
        dict(name="noted", limit_s=9, note="over MPI", command="true"),
        dict(name="unset", limit_s=9, command="echo $no_such_variable"),
        dict(name="pipe", limit_s=9, command="false | true"),
        dict(name="launched", limit_s=9, command="echo shardmark: no such preset; echo; echo mpirun noticed; echo ------; exit 2"),
    ])
    assert code == 1
    _, steps = page(tmp_path)
    assert {name: (step["status"], step["reason"]) for name, step in steps.items() if name != "unset"} == {
        "build": ("failed", "exit code 3: wrong | thing"),
        "needs-it": ("not run", "step build did not pass"),
        "chose": ("skipped", "no toolkit"),
        "planned": ("skipped", "needs a device"),
        "noted": ("passed", "over MPI"),
        "pipe": ("failed", "exit code 1: it said nothing"),
        "launched": ("failed", "exit code 2: shardmark: no such preset"),
    }
    assert steps["unset"]["status"] == "failed"
    assert "wrong \\| thing" in (tmp_path / "out/summary.md").read_text()  # a bar would break the table


def test_skips_alone_are_no_failure_and_a_rehearsal_is_called_one(tmp_path, check):
    code, _, _ = check([dict(name="a", limit_s=9, command="skip why"), dict(name="b", limit_s=9, command="true")])
    assert code == 0
    assert "**Rehearsal, no device**" in (tmp_path / "out/summary.md").read_text()
    assert json.loads((tmp_path / "out/summary.json").read_text())["rehearsal"] is True


@pytest.mark.parametrize("arguments, said", [(["--rehearsal"], "--rehearsal"), (["--limit", "3"], "at least 16"),
                                             (["--limit", "soon"], "soon"), (["--bundle", "/no/file.tar"], "make bundle"),
                                             (["--plan", "/no/plan.py"], "is no Python file"),
                                             (["--plan", str(SOURCE / "README.md")], "is no Python file"),
                                             (["--out", str(SOURCE / "README.md")], "is no folder")])
def test_wrong_options_are_refused(tmp_path, check, arguments, said):
    code, _, errors = check([], *arguments)
    assert code == 2 and said in errors
    assert not (tmp_path / "out").exists()


def test_without_a_device_it_says_how_to_rehearse(tmp_path, check, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # where there is a device, it is not to be seen
    code, _, errors = check([], rehearse=False)
    assert code == 5 and "--rehearse" in errors


def with_set_up(tmp_path, monkeypatch, code):
    """check.py on a tree whose setup.sh only notes that it ran, for longer than any step may."""
    module = load("check")
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts/setup.sh"
    script.write_text(f"#!/bin/bash\necho set up >>'{tmp_path}/calls'\n[ -e '{tmp_path}/once' ] || sleep 2\ntouch '{tmp_path}/once'\nexit {code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("SHARDMARK_DEPS", str(tmp_path / "deps"))
    steps = [dict(name="build", limit_s=1.5, command="@setup@\necho built")]
    (tmp_path / "plan.py").write_text(f"def steps(facts):\n    return {steps!r}\n")
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        return module.main(["--rehearse", "--out", str(tmp_path / "out"), "--plan", str(tmp_path / "plan.py")])
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)


def test_downloads_come_before_the_clock(tmp_path, monkeypatch):
    assert with_set_up(tmp_path, monkeypatch, 0) == 0
    assert (tmp_path / "calls").read_text() == "set up\n" * 2  # before the clock, and by the step, which finds all done
    found = json.loads((tmp_path / "out/summary.json").read_text())
    assert found["seconds"] < 2, "the clock began before set-up had ended"


def test_with_neither_network_nor_bundle_it_is_refused(tmp_path, monkeypatch, capfd):
    assert with_set_up(tmp_path, monkeypatch, 5) == 5
    text = capfd.readouterr().err
    assert "nothing was checked" in text and "--bundle FILE" in text
    assert not (tmp_path / "out/summary.json").exists() and (tmp_path / "calls").read_text() == "set up\n"


def packed(path, spoil=lambda name, data: data, leave_out=()):
    """A tar as make bundle packs it, of one part."""
    part = os.urandom(3000)
    files = {"VERSIONS": b"fmt 1\n", "SHA256SUMS": f"{hashlib.sha256(part).hexdigest()}  fmt.tar.xz\n".encode(), "fmt.tar.xz": part}
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            if name not in leave_out:
                info = tarfile.TarInfo(f"shardmark-bundle/{name}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(spoil(name, data)))
    return path


def test_a_whole_bundle_is_taken(tmp_path, check):
    code, text, errors = check([dict(name="a", limit_s=9, command="true")], "--bundle", packed(tmp_path / "b.tar"))
    assert code == 0 and "a: passed" in text, errors


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])
    return path


@pytest.mark.parametrize("make, said", [
    (lambda path: packed(path, leave_out=["SHA256SUMS"]), "is cut or no tar of make bundle"),
    (lambda path: packed(path, leave_out=["fmt.tar.xz"]), "was cut or changed (fmt.tar.xz)"),
    (lambda path: packed(path, lambda name, data: data[:-1] + b"x" if name == "fmt.tar.xz" else data), "was cut or changed (fmt.tar.xz)"),
    (lambda path: cut(packed(path), 3500), "cut"), (lambda path: cut(packed(path), 100), "is cut or no tar"),
    (lambda path: cut(packed(path), 0), "is cut or no tar"), (lambda path: path.write_text("no tar at all") and path, "is cut or no tar")])
def test_a_wrong_bundle_is_refused_before_anything_runs(tmp_path, check, make, said):
    code, text, errors = check([dict(name="a", limit_s=9, command="true")], "--bundle", make(tmp_path / "b.tar"))
    assert code == 5 and text == "" and not (tmp_path / "out").exists()
    assert errors.count("\n") == 1 and said in errors and "copy it anew" in errors and "b.tar" in errors, errors


def test_measured_collectives_are_kept_when_the_step_is_cut():
    command = next(step["command"] for step in load("plan").steps(FACTS) if step["name"] == "comm")
    assert "-o @records@/comm.h5" in command and "--format json" not in command


FACTS = dict(devices=1, memory_gib=140.0, cores=16, np=1, backend="nccl", nccl_version=(2, 30, 7), compute_sanitizer="/x", python="python3")


def test_the_plan_is_whole():
    plan = load("plan")
    for facts in (FACTS, {**FACTS, "devices": 0, "np": 2, "backend": "mpi"}, {**FACTS, "devices": 8, "np": 8}):
        steps = list(plan.steps(facts))
        names = [step["name"] for step in steps]
        assert len(names) == len(set(names))
        for step in steps:
            if "skip" in step or "expand" in step:
                continue
            assert step["limit_s"] > 0
            assert not step.get("after") or step["after"] in names[: names.index(step["name"])]
            known = {*facts, "out", "records", "setup", "here", "targets"}
            assert set(re.findall(r"@(\w+)@", step["command"])) <= known
            assert subprocess.run(["bash", "-n", "-c", step["command"]]).returncode == 0
    assert {f"{preset}-{technique}" for preset in plan.CHECKED_PRESETS for technique in plan.TECHNIQUES} <= set(names)


def test_several_ranks_on_a_device_use_nccl_only_where_it_can():
    plan = load("plan")
    for version, backend, said in (((2, 30, 7), "nccl", ""), ((2, 28, 9), "mpi", "NCCL 2.28.9 does not know"), ((), "mpi", "NCCL unknown")):
        steps = list(plan.shared_device_steps({**FACTS, "nccl_version": version}))
        assert len(steps) == 4
        for step in steps:
            assert f"comm.backend={backend}" in step["command"] and said in step["note"]
            assert "NCCL_MULTI_RANK_GPU_ENABLE=1" in step["command"]


def test_global_batches_can_be_shared_by_any_number_of_ranks():
    plan = load("plan")
    for ranks in range(1, 17):
        rows = int(plan.batch_of("lm10m-tiny", ranks).split("=")[1])
        assert rows % ranks == 0
    assert plan.batch_of("mlp-digits", 8) == ""


def test_losses_must_be_equal():
    verdict = load("losses").verdict
    row = dict(technique="ddp", loss_final=2.5)
    assert verdict([row, {**row, "technique": "fsdp"}])[0]
    assert not verdict([row, {**row, "technique": "fsdp", "loss_final": 2.5000000000000004}])[0]
    assert not verdict([row, {**row, "technique": "fsdp", "loss_final": None}])[0]
    assert not verdict([])[0]


@pytest.mark.parametrize("fits, chosen", [
    ({"ddp": "before activations", "fsdp": "before activations"}, "fsdp"),  # the recipe's
    ({"ddp": "before activations", "fsdp": "no"}, "ddp"),
    ({"ddp": "no", "fsdp": "no"}, None)])
def test_a_preset_runs_under_a_technique_that_fits(fits, chosen):
    facts = load("facts")
    rows = json.dumps({"rows": [dict(technique=name, fits=text) for name, text in fits.items()]})

    def shell(command):
        return rows if " plan " in command else '[technique]\nname = "fsdp"   # preset\n'

    technique, why = facts.technique_that_fits(shell, "lm10m", FACTS)
    assert technique == chosen
    assert ("no technique fits" in why) == (chosen is None)


def test_programs_of_gpu_tests_are_found(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/CTestTestfile.cmake").write_text(
        f'add_test([=[nccl.np2]=] "/x/launch.sh" "2" "{tmp_path}/nccl_tests")\n'
        'set_tests_properties([=[nccl.np2]=] PROPERTIES  LABELS "gpu" PROCESSORS "2")\n'
        f'add_test([=[unit]=] "{tmp_path}/unit_tests")\nset_tests_properties([=[unit]=] PROPERTIES  LABELS "unit")\n')
    assert load("targets").programs_labelled(tmp_path, "gpu") == ["nccl_tests"]


def test_a_rehearsal_leaves_presets_for_devices_out_with_the_reason():
    plan = load("plan")
    for preset in plan.FOR_DEVICES:
        assert "needs a device" in plan.preset_step(preset, "ddp", "", rehearse=True)["skip"]
        assert "command" in plan.preset_step(preset, "ddp", "")
        assert (SOURCE / "workloads" / "presets" / f"{preset}.toml").exists(), preset
    assert "command" in plan.preset_step("mlp", "ddp", "", rehearse=True)
