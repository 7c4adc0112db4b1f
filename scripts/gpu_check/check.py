"""Runs the steps of plan.py one after another, each within its own limit and all within the whole one, and keeps a page of them.

The page (DIR/summary.md, DIR/summary.json) is written after every step; each step's output lies in DIR/logs/NAME.txt, records in
DIR/records. SIGTERM and SIGINT end the step that runs and finish the page.
Exit codes: 0 no step failed; 1 one failed, ran out of its time or was stopped; 2 wrong usage; 5 no device (and no --rehearse), or nothing to
set up from; a bundle that is cut or none is refused before anything runs.
"""

import argparse
import importlib.util
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import bundle as bundles  # noqa: E402
import facts as machine  # noqa: E402
import page as pages  # noqa: E402

PLANNED_S = 540  # the whole limit that the limits of the steps are meant for; a longer one stretches them alike
RESERVE_S = 8  # of the whole limit: to end a step that overruns and to finish the page
GRACE_S = 3    # between SIGTERM and SIGKILL
SKIPPED = 77
PRELUDE = r"""
set -eu -o pipefail
skip() { echo "skipped: $*"; exit 77; }
if [ -e "${SHARDMARK_DEPS:-.deps}/env.sh" ]; then . "${SHARDMARK_DEPS:-.deps}/env.sh"; fi
"""


class Stopped(BaseException):
    """A signal asked to stop."""


def on_signal(number, _):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise Stopped(signal.Signals(number).name)


def session_processes(session):
    """Processes of a session: a launcher's ranks may have process groups of their own."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                yield int(entry.name)


def signal_session(session, number):
    for process in session_processes(session):
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def end(process):
    """Asks, then kills; nothing of the step is left when this returns."""
    signal_session(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(True for _ in session_processes(process.pid)):
        process.poll()
        time.sleep(0.05)
    signal_session(process.pid, signal.SIGKILL)
    process.wait()


def last_line(path, start="shardmark: "):
    """What a step said at its end: its last line with this start where there is one, since launchers add paragraphs after it."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    lines = [line for line in lines if any(map(str.isalnum, line))]
    ours = [line for line in lines if line.startswith(start)]
    return (ours or lines or ["it said nothing"])[-1][:300]


class Check:
    def __init__(self, options, facts, plan):
        self.options, self.facts, self.plan = options, facts, plan
        self.start_s = time.monotonic()  # again once set-up is done
        self.folder = options.out
        for name in ("logs", "records"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.values = {**facts, "out": self.folder, "records": self.folder / "records", "here": HERE,
                       "targets": " ".join(getattr(plan, "TARGETS", ())), "setup": self.set_up_command()}
        self.page = {"state": "running", "rehearsal": options.rehearse, "limit_s": options.limit, "seconds": 0.0,
                     "facts": facts, "steps": []}

    def set_up_command(self):
        jobs = f"JOBS={self.facts['cores']}"
        if self.options.bundle:
            return f"{jobs} scripts/bundle/use.sh {shlex.quote(str(self.options.bundle))}"
        return f"{jobs} scripts/setup.sh"

    def set_up(self):
        """Before the clock: what set-up must download is no part of the check. True if the machine is ready."""
        print("gpu_check: set-up before the clock starts; without a network give --bundle FILE (make bundle packs one)", flush=True)
        try:
            if subprocess.run(["bash", "-c", self.script(self.set_up_command())], cwd=ROOT).returncode == 0:
                return True
        except Stopped as stop:  # the command has been killed
            print(f"gpu_check: stopped by {stop} in set-up", file=sys.stderr)
            return False
        print("gpu_check: set-up did not end well, so nothing was checked: it needs a network, or --bundle FILE (make bundle packs one "
              "where there is a network), or what it names above", file=sys.stderr)
        return False

    def left_s(self):
        return self.options.limit - RESERVE_S - (time.monotonic() - self.start_s)

    def script(self, command):
        for name, value in self.values.items():
            quoted = str(value) if name in ("setup", "targets") else shlex.quote(str(value))
            command = command.replace(f"@{name}@", quoted)
        return PRELUDE + command

    def shell(self, command):
        """Output of a short command in the steps' surroundings, for planning; "" if it fails."""
        return machine.said(["bash", "-c", self.script(command)], cwd=ROOT)

    def status_of(self, name):
        return next((step["status"] for step in self.page["steps"] if step["name"] == name), None)

    def note(self, step, status, seconds, reason):
        reason = "; ".join(part for part in (step.get("note", ""), reason) if part)
        self.page["steps"].append({"name": step["name"], "status": status, "seconds": seconds,
                                   "limit_s": round(step["limit_s"], 1) if "limit_s" in step else None, "reason": reason,
                                   "log": f"logs/{step['name']}.txt" if seconds is not None else ""})
        self.write()
        print(f"gpu_check: {step['name']}: {status}" + (f" ({seconds:.1f} s)" if seconds is not None else "")
              + (f": {reason}" if reason else ""), flush=True)

    def write(self):
        self.page["seconds"] = time.monotonic() - self.start_s
        pages.write(self.folder, self.page)

    def reason_not_to_run(self, step):
        """(status, reason) of a step that is not begun, or None."""
        if "skip" in step:
            return "skipped", step["skip"]
        if step.get("after") and self.status_of(step["after"]) != "passed":
            return "not run", f"step {step['after']} did not pass"
        if self.left_s() < step.get("least_s", 5):
            return "not run", "no time left"
        return None

    def run(self, step):
        if "limit_s" in step:
            step = {**step, "limit_s": step["limit_s"] * max(1.0, self.options.limit / PLANNED_S)}
        refusal = self.reason_not_to_run(step)
        if refusal:
            self.note(step, refusal[0], None, refusal[1])
        elif step.get("expand") == "presets":
            for preset in machine.presets(self.shell):
                if self.left_s() < 5:
                    self.note({"name": f"preset-{preset}"}, "not run", None, "no time left")
                else:
                    fitting = machine.technique_that_fits(self.shell, preset, self.facts)
                    self.run(self.plan.preset_step(preset, *fitting, rehearse=self.options.rehearse))
        else:
            self.execute(step)

    def execute(self, step):
        log = self.folder / "logs" / f"{step['name']}.txt"
        limit_s = min(step["limit_s"], self.left_s())
        start_s = time.monotonic()
        with open(log, "w", encoding="utf-8") as output:
            process = subprocess.Popen(["bash", "-c", self.script(step["command"])], cwd=ROOT, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                end(process)
                code = None
            except Stopped as stop:
                end(process)
                self.note(step, "stopped", time.monotonic() - start_s, str(stop))
                raise
        end(process)  # what it left behind would disturb the next step
        seconds = time.monotonic() - start_s
        if code is None:
            whose = "its own limit" if limit_s == step["limit_s"] else "what was left of the whole limit"
            self.note(step, "timed out", seconds, f"killed after {limit_s:.0f} s, {whose}; last line: {last_line(log)}")
        elif code == SKIPPED:
            self.note(step, "skipped", seconds, last_line(log, "skipped: ").replace("skipped: ", "", 1))
        elif code != 0:
            self.note(step, "failed", seconds, f"exit code {code}: {last_line(log)}")
        else:
            self.note(step, "passed", seconds, "")

    def run_all(self):
        steps = list(self.plan.steps(self.facts))
        # A bundle downloads nothing: the step that builds unpacks it.
        if not self.options.bundle and any("@setup@" in step.get("command", "") for step in steps) and not self.set_up():
            return 5
        self.start_s = time.monotonic()
        state = "finished"
        self.write()
        try:
            for number, step in enumerate(steps):
                self.run(step)
        except Stopped as stop:
            state = f"stopped by {stop}"
            begun = number + (0 if self.status_of(step["name"]) is None else 1)
            for step in steps[begun:]:
                self.note(step, "not run", None, f"stopped by {stop}")
        self.page["state"] = state
        self.write()
        bad = [step["name"] for step in self.page["steps"] if step["status"] in ("failed", "timed out", "stopped")]
        left = [step["name"] for step in self.page["steps"] if step["status"] == "not run"]
        passed = sum(step["status"] == "passed" for step in self.page["steps"])
        print(f"gpu_check: {state}; {passed} step(s) passed, {len(bad)} did not pass{': ' + ', '.join(bad) if bad else ''}, "
              f"{len(left)} NOT RUN{': ' + ', '.join(left) if left else ''}; page: {self.folder / 'summary.md'}", flush=True)
        # What was not run proves nothing, so it is no success either.
        return 1 if bad or left or state != "finished" else 0


def load_plan(path):
    spec = importlib.util.spec_from_file_location("plan", path)
    plan = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plan)
    return plan


def parse(arguments):
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", allow_abbrev=False,
                                     description="checks shardmark on a machine with GPUs, without a network and without root",
                                     epilog="example: scripts/gpu_check.sh --bundle shardmark-bundle.tar --out gpu-check")
    parser.add_argument("--bundle", type=pathlib.Path, help="file of make bundle to build from; else what scripts/setup.sh finds or downloads before the clock starts")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/gpu-check", help="folder of page, logs and records")
    parser.add_argument("--rehearse", action="store_true", help="without a device: ranks on the CPU over MPI; the page says so")
    parser.add_argument("--limit", type=float, default=PLANNED_S, metavar="SECONDS",
                        help=f"of the whole (default {PLANNED_S}); a longer one gives each step more in proportion")
    parser.add_argument("--plan", type=pathlib.Path, default=HERE / "plan.py", help="another file of steps")
    options = parser.parse_args(arguments)
    if options.bundle and not options.bundle.is_file():
        parser.error(f"--bundle: there is no file {options.bundle}; make bundle packs one where there is a network")
    if options.limit < 2 * RESERVE_S:
        parser.error(f"--limit: {options.limit:g} s are too few; at least {2 * RESERVE_S}")
    if options.plan.suffix != ".py" or not options.plan.is_file():
        parser.error(f"--plan: {options.plan} is no Python file; scripts/gpu_check/plan.py is an example")
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out: {options.out} is no folder; name one, or what does not exist yet")
    options.out = options.out.resolve()
    options.bundle = options.bundle and options.bundle.resolve()
    return options


def main(arguments):
    options = parse(arguments)
    facts = machine.gather(options.rehearse)
    if not facts["devices"] and not options.rehearse:
        print("gpu_check: nvidia-smi shows no device: run it on a machine with one, or rehearse with --rehearse", file=sys.stderr)
        return 5
    fault = options.bundle and bundles.fault_of(options.bundle)
    if fault:
        print(f"gpu_check: --bundle: {fault}: copy it anew; nothing was checked", file=sys.stderr)
        return 5
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return Check(options, facts, load_plan(options.plan)).run_all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
