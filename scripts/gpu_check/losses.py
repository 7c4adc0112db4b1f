"""Holds the losses of techniques against one another: with numerics.reduction = ordered and equal ranks, the same bits.

usage: losses.py COMPARED.json     (what `shardmark compare --format json` printed)
Exit codes: 0 all equal; 8 they differ, or a run has none.
"""

import json
import sys


def verdict(rows):
    """(equal, one line for the page)"""
    losses = {row["technique"]: row["loss_final"] for row in rows}
    if not losses:
        return False, "no record has a loss"
    text = ", ".join(f"{name} {loss!r}" for name, loss in losses.items())
    equal = None not in losses.values() and len(set(losses.values())) == 1
    return equal, f"{'equal' if equal else 'DIFFERENT'} losses after the last step: {text}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        equal, text = verdict(json.load(file)["rows"])
    print(text)
    return 0 if equal else 8


if __name__ == "__main__":
    sys.exit(main())
