"""`prepare_data.py chat`: conversations, instructions and texts, one JSON object a line, to rows of tokens, by a checkpoint's own
tokenizer. A line is one of

  {"messages": [{"role", "content"}]}              {"conversations": [{"from", "value"}]}
  {"prompt", "completion"}  texts or messages      {"instruction", "input", "output"}
  {"text"}                                         {"input_ids", "labels"}  tokenised already; -100 = no target

Rows longer than --length are cut. Without --pack each example is a row, padded on the right; with it rows hold several examples,
placed first fit in the order of the lines, which do not see each other. Examples that no target is left of are left out, and
counted. What is wrong with any line is said with its number, and nothing is written.
"""

import hashlib
import json
import pathlib
import sys

import numpy

from prepare import conversations
from prepare.files import Problem, check_output, write_file
from prepare.text import IGNORED_LABEL, check_length, read_file

MOST_PROBLEMS = 20
TEMPLATES = {"llama3.2": ("26 Jul 2024", True), "llama3.1-unsloth": ("26 July 2024", False)}  # date without one, texts trimmed
MARKERS = ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|start_header_id|>user<|end_header_id|>\n\n")
LOSSES = {"all": "every token", "completion": "what follows a prompt", "assistant": "replies and their end tokens",
          "replies": "what lies between --response-marker and --instruction-marker"}


def add_command(commands):
    import argparse
    command = commands.add_parser("chat", help="conversations and instructions, one JSON object a line", description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE.jsonl")
    command.add_argument("--tokenizer", type=pathlib.Path, required=True, metavar="FOLDER",
                         help="a checkpoint's folder with tokenizer.json, or that file")
    command.add_argument("--template", default="checkpoint", metavar="NAME",
                         help=f"how conversations become text: checkpoint (default: the folder's own), {', '.join(TEMPLATES)}, or "
                              "FILE.jinja")
    command.add_argument("--date", help="what templates show as today (default: fixed, so that files are reproducible)")
    command.add_argument("--loss", default="all", choices=LOSSES, help="; ".join(f"{name}: {text}" for name, text in LOSSES.items())
                         + " (default all)")
    command.add_argument("--response-marker", default=MARKERS[0], metavar="TEXT", help="of --loss replies (default: Llama 3's)")
    command.add_argument("--instruction-marker", default=MARKERS[1], metavar="TEXT", help="likewise")
    command.add_argument("--length", type=int, default=1024, help="tokens a row (default 1024)")
    command.add_argument("--pack", action="store_true", help="several examples a row")
    command.add_argument("--held-out", type=float, default=0.05, metavar="SHARE", help="of the lines, at their end (default 0.05; 0: none)")
    command.add_argument("--license", default="not stated", help="of the data, for the file's attribute")
    command.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE.h5",
                         help="training rows; held-out rows go to FILE.eval.h5")


def run(options):
    check_output(options.output)
    check_length(options.length)
    if not 0 <= options.held_out < 1:
        raise Problem(f"--held-out {options.held_out} must lie from 0 to below 1")
    folder = Folder(options.tokenizer)
    template = make_template(options, folder)
    lines = read_lines(options.files)
    tokenised = tokenise_all(lines, template, Encoder(options, folder))
    cut = len(tokenised) - int(len(tokenised) * options.held_out)
    parts = [(options.output, "training", tokenised[:cut])]
    if options.held_out > 0:
        if cut == len(tokenised):
            raise Problem(f"{len(tokenised)} lines are too few to hold out a share of {options.held_out}: give more, or --held-out 0")
        parts.insert(0, (options.output.with_name(options.output.stem + ".eval.h5"), "held-out", tokenised[cut:]))
    attributes = {"source": ", ".join(path.name for path in options.files), "license": options.license,
                  "vocabulary": f"{folder.tokenizer.get_vocab_size()} tokens of {folder.path.name}, sha256 {folder.sha256}",
                  "sha256": hashlib.sha256("\n".join(text for _, text in lines).encode()).hexdigest()}
    made = [(path, make_rows(name, examples, options)) for path, name, examples in parts]
    for path, datasets in made:  # FILE.h5 comes last: where it is, both are
        write_file(path, "tokens", datasets, attributes)
        print(f"prepare_data: {path}: {len(datasets['input_ids'])} rows", file=sys.stderr)


class Folder:
    """tokenizer.json and what lies beside it."""

    def __init__(self, path):
        self.path = path / "tokenizer.json" if path.is_dir() else path
        try:
            import tokenizers
        except ImportError as error:
            raise Problem("tokens need Python's tokenizers: pip install tokenizers==0.23.3", code=5) from error
        try:
            raw = self.path.read_bytes()
        except OSError as error:
            raise Problem(f"--tokenizer {path}: {self.path} cannot be read: {error.strerror}") from error
        try:
            self.tokenizer = tokenizers.Tokenizer.from_buffer(raw)
        except Exception as error:  # the library raises nothing more special
            raise Problem(f"--tokenizer {self.path} is no tokenizer: {error}") from error
        self.sha256 = hashlib.sha256(raw).hexdigest()
        self.settings = self.read_settings()

    def read_settings(self):
        path = self.path.with_name("tokenizer_config.json")
        if not path.exists():
            return {}
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise Problem(f"{path} cannot be read: {error}") from error

    def special(self, name):
        """A token's text: "eos_token" and the like; "" where the folder does not say."""
        value = self.settings.get(name) or ""
        return value.get("content", "") if isinstance(value, dict) else value

    def chat_template(self):
        path = self.path.with_name("chat_template.jinja")
        return path.read_text() if path.exists() else self.settings.get("chat_template")


def make_template(options, folder):
    if options.template in TEMPLATES:
        date, trims = TEMPLATES[options.template]
        return conversations.Llama3(options.date or date, trims)
    if options.template == "checkpoint":
        source = folder.chat_template()
        if not isinstance(source, str):
            return NoTemplate(folder.path.parent)
    elif pathlib.Path(options.template).is_file():
        source = pathlib.Path(options.template).read_text()
    else:
        raise Problem(f"--template {options.template}: accepted are checkpoint, {', '.join(TEMPLATES)}, or a file")
    if options.loss == "assistant":
        raise Problem("--loss assistant: a checkpoint's template does not say which parts are replies: use --loss replies with its "
                      f"markers, or --template {' or '.join(TEMPLATES)}")
    variables = {name: folder.special(name) for name in ("bos_token", "eos_token", "pad_token")}
    return conversations.Jinja(source, variables, options.date or TEMPLATES["llama3.2"][0])


class NoTemplate:
    """Texts and instructions need none."""

    def __init__(self, folder):
        self.folder = folder

    def render(self, messages, add_generation_prompt=False):
        raise Problem(f"{self.folder} has no chat template: --template {' or '.join(TEMPLATES)}, or FILE.jinja")


def read_lines(paths):
    """(place, text) of every line that is not empty."""
    lines = []
    for path in paths:
        lines += [(f"{path}:{number}", line) for number, line in enumerate(read_file(path).split("\n"), 1) if line.strip()]
    if not lines:
        raise Problem(f"{', '.join(map(str, paths))}: no line holds anything")
    return lines


class Encoder:
    """Ids and labels of an example."""

    def __init__(self, options, folder):
        self.loss, self.tokenizer = options.loss, folder.tokenizer
        self.size = folder.tokenizer.get_vocab_size()
        self.end = folder.special("eos_token")
        self.markers = [self.ids(text) for text in (options.response_marker, options.instruction_marker)]
        if self.loss == "replies" and not all(self.markers):
            raise Problem("--loss replies needs markers that are not empty")

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def __call__(self, example):
        if example.ids is not None:
            if max(example.ids) >= self.size:
                raise Problem(f"id {max(example.ids)} is not among the {self.size} tokens")
            ids, labels = example.ids, list(example.labels)
        else:
            encoding = self.tokenizer.encode(example.text + (self.end if example.plain else ""), add_special_tokens=example.plain)
            ids = encoding.ids
            counted = self.counted(example, encoding)
            labels = [token if is_counted else IGNORED_LABEL for token, is_counted in zip(ids, counted)]
        if not ids:
            raise Problem("no token")
        labels[0] = IGNORED_LABEL
        return ids, labels

    def counted(self, example, encoding):
        if self.loss == "all":
            return [True] * len(encoding.ids)
        if self.loss == "replies":
            return conversations.marked_by(encoding.ids, *self.markers)
        if self.loss == "completion":
            if example.completion is None:
                raise Problem("no prompt and completion in it: --loss completion cannot tell what counts")
            parts = [(example.completion, len(example.text) + len(self.end))]
        else:
            parts = example.replies
        return [any(first <= start and end <= last for first, last in parts) and end > start for start, end in encoding.offsets]


def tokenise_all(lines, template, encode):
    made, problems = [], []
    for place, line in lines:
        try:
            made.append(encode(conversations.parse(line, template)))
        except Problem as problem:
            problems.append(f"{place}: {problem}")
    if problems:
        left = len(problems) - MOST_PROBLEMS
        raise Problem("\n".join(problems[:MOST_PROBLEMS]) + (f"\nand {left} more" if left > 0 else ""))
    return made


class FirstFit:
    """Finds the first bin with room: a tree of the largest room below each node."""

    def __init__(self, most_bins, room):
        self.leaves = 1 << max(0, most_bins - 1).bit_length()
        self.room = [room] * (2 * self.leaves)

    def place(self, size):
        node = 1
        while node < self.leaves:
            node = 2 * node + (self.room[2 * node] < size)
        bin_index = node - self.leaves
        self.room[node] -= size
        while node > 1:
            node //= 2
            self.room[node] = max(self.room[2 * node], self.room[2 * node + 1])
        return bin_index


def make_rows(name, examples, options):
    """Datasets of a file; says what became of the examples."""
    length, kept, cut, idle = options.length, [], 0, 0
    for ids, labels in examples:
        cut += len(ids) > length
        ids, labels = ids[:length], labels[:length]
        if any(label != IGNORED_LABEL for label in labels):
            kept.append((ids, labels))
        else:
            idle += 1
    if not kept:
        raise Problem(f"the {name} part has no target in any of its {len(examples)} lines: --loss {options.loss}, --length {length}")
    bins = range(len(kept))  # rows of the examples
    if options.pack:
        fit = FirstFit(len(kept), length)
        bins = [fit.place(len(ids)) for ids, _ in kept]
    rows = max(bins) + 1
    input_ids = numpy.zeros((rows, length), numpy.int32)
    labels_of_row = numpy.full((rows, length), IGNORED_LABEL, numpy.int32)
    segments = numpy.zeros((rows, length), numpy.int32)
    filled, counts = numpy.zeros(rows, numpy.int32), numpy.zeros(rows, numpy.int32)
    for row, (ids, labels) in zip(bins, kept):
        place = slice(filled[row], filled[row] + len(ids))
        counts[row] += 1
        input_ids[row, place], labels_of_row[row, place], segments[row, place] = ids, labels, counts[row]
        filled[row] += len(ids)
    targets = int((labels_of_row != IGNORED_LABEL).sum())
    tokens = int(filled.sum())
    print(f"prepare_data: {name}: {len(examples)} examples, {idle} without a target left out, {cut} cut to {length} tokens; {rows} rows, "
          f"{tokens} tokens ({tokens / rows / length:.1%} of the rows), {targets} targets ({targets / tokens:.1%})", file=sys.stderr)
    return {"input_ids": input_ids, "labels": labels_of_row, "lengths": filled, **({"segment_ids": segments} if options.pack else {})}
