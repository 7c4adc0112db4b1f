#!/usr/bin/env python3
"""The presets lm-1m to lm-1b: sizes of lm10m's family for scaling studies, all by one rule.

  ladder.py            prints the steps: name, wanted and true parameters, shape
  ladder.py --write    writes workloads/presets/lm-*.toml

The rule. All steps have lm10m's vocabulary (so one data file serves all), as many key and value heads as query heads, a tied
head, and an MLP of 8/3 of the width, rounded up to a multiple of 16. Heads are 32 wide below a width of 512 and 64 from there
on. For each width that heads of that size make up, the number of layers is the one that comes nearest to the wanted
parameters; of all widths the one is taken whose layers are nearest (as a ratio) to 10 sqrt(width / 256). That gives lm10m
itself at 10 million, and models that grow in width faster than in depth.
"""

import argparse
import math
import pathlib

PRESETS = pathlib.Path(__file__).resolve().parents[1] / "workloads" / "presets"
VOCABULARY = 8192
STEPS = {"1m": 1e6, "3m": 3e6, "10m": 1e7, "30m": 3e7, "100m": 1e8, "300m": 3e8, "1b": 1e9}
WIDEST = 4096


def head_width(width):
    return 32 if width < 512 else 64


def mlp_width(width):
    return -(-8 * width // 48) * 16


def parameters(width, layers):
    block = 4 * width * width + 3 * width * mlp_width(width) + 2 * width
    return VOCABULARY * width + layers * block + width


def shape(wanted):
    """(width, layers) of the step with about this many parameters."""
    found = []
    for width in range(32, WIDEST + 1, 32):
        if width % head_width(width) == 0:
            block = parameters(width, 1) - parameters(width, 0)
            layers = max(1, round((wanted - parameters(width, 0)) / block))
            found.append((abs(math.log(layers / (10 * math.sqrt(width / 256)))), width, layers))
    return min(found)[1:]


def preset(name):
    width, layers = shape(STEPS[name])
    return f"""description = "Llama of {parameters(width, layers):,} parameters, rows of 128 tokens, 4 a rank: a step of the size ladder"
definition_version = 1

[workload]
name = "lm"

[model]
vocab_size = {VOCABULARY}
hidden_size = {width}
intermediate_size = {mlp_width(width)}
num_hidden_layers = {layers}
num_attention_heads = {width // head_width(width)}
num_key_value_heads = {width // head_width(width)}
head_dim = {head_width(width)}
rope_theta = 10000.0
rms_norm_eps = 1e-5
tie_word_embeddings = true

[data]
micro_batch = 4
sequence_length = 128

[technique]
name = "fsdp"

[optimizer]
name = "adamw"
lr = 1e-4
weight_decay = 0.01

[measure]
warmup_steps = 3
steps = 10
blocks = 5
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the presets")
    options = parser.parse_args()
    for name, wanted in STEPS.items():
        width, layers = shape(wanted)
        print(f"lm-{name:<5} {wanted:>13,.0f} {parameters(width, layers):>13,}  width {width}, {layers} layers, "
              f"{width // head_width(width)} heads of {head_width(width)}, MLP {mlp_width(width)}")
        if options.write:
            (PRESETS / f"lm-{name}.toml").write_text(preset(name))


if __name__ == "__main__":
    main()
