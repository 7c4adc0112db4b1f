"""The page of a GPU check: summary.json and summary.md, written whole after every step, so that what stands when it is cut is true."""

import json
import os

ORDER = ("passed", "failed", "timed out", "stopped", "skipped", "not run")


def replace(path, text):
    aside = path.with_name(path.name + ".partial")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def markdown(page, throughput):
    facts = page["facts"]
    lines = ["# shardmark GPU check", ""]
    if page["rehearsal"]:
        lines += ["**Rehearsal, no device**: ranks run on the CPU over MPI; nothing here says anything about a GPU.", ""]
    else:
        lines += [f"{facts['devices']} device(s), at least {facts['memory_gib']:.1f} GiB each; {facts['cores']} cores; "
                  f"{facts['np']} rank(s) over {facts['backend']}; NCCL {'.'.join(map(str, facts['nccl_version'])) or 'unknown'}. "
                  "Machine facts: logs/facts.txt.", ""]
    counts = {status: sum(step["status"] == status for step in page["steps"]) for status in ORDER}
    lines += [f"State: {page['state']} after {page['seconds']:.0f} s of {page['limit_s']:.0f} s; "
              + ", ".join(f"{count} {status}" for status, count in counts.items() if count) + ".", "",
              "| step | status | seconds | limit | reason |", "|---|---|---|---|---|"]
    for step in page["steps"]:
        seconds, limit = ("" if step[key] is None else f"{step[key]:.1f}" for key in ("seconds", "limit_s"))
        lines.append(f"| {cell(step['name'])} | {step['status']} | {seconds} | {limit} | {cell(step['reason'])} |")
    lines += ["", "## Throughput of presets", "", throughput.strip() or "No record yet."]
    return "\n".join(lines) + "\n"


def write(folder, page):
    table = folder / "throughput.md"
    throughput = table.read_text(encoding="utf-8", errors="replace") if table.is_file() else ""
    replace(folder / "summary.json", json.dumps(page, indent=1) + "\n")
    replace(folder / "summary.md", markdown(page, throughput))
