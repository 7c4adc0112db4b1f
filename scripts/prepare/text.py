"""`prepare_data.py text`: plain text to rows of tokens, data files of kind "tokens".

The end of the text is held out: FILE.h5 gets what comes before the cut, FILE.eval.h5 what comes after it. A vocabulary is
trained on the training part alone. Rows follow each other without overlap; tokens that fill no row are left out, and said.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy

from prepare.files import Problem, check_output, write_file

IGNORED_LABEL = -100
LICENSES = pathlib.Path("/usr/share/common-licenses")
BIBLE_PACKAGES = ("bible-kjv", "bible-kjv-text")
BIBLE_VERSES = 31102


def add_command(commands):
    command = commands.add_parser("text", help="plain text as rows of tokens", description=__doc__)
    command.add_argument("files", nargs="*", type=pathlib.Path, metavar="TEXT",
                         help="UTF-8 files (default: the King James Bible of Debian's packages bible-kjv and bible-kjv-text where "
                              "they are installed, else the licence texts in /usr/share/common-licenses)")
    command.add_argument("--install", action="store_true", help="as root: first install Debian's packages of the Bible (2.5 MB)")
    command.add_argument("--vocabulary", default="8192", metavar="SIZE",
                         help="tokens of a byte-level BPE trained on the training part (default 8192), or bytes")
    command.add_argument("--length", type=int, default=128, help="tokens a row (default 128)")
    command.add_argument("--held-out", type=float, default=0.05, metavar="SHARE", help="of the text, at its end (default 0.05)")
    command.add_argument("--license", default="not stated", help="of TEXT, for the file's attribute")
    command.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE.h5",
                         help="training rows; held-out rows go to FILE.eval.h5")


def run(options):
    check_output(options.output)
    check_length(options.length)
    if not 0 < options.held_out < 1:
        raise Problem(f"--held-out {options.held_out} must lie between 0 and 1")
    if options.install:
        install_bible()
    text, source, license_text = read_text(options)
    training, held_out = split(text, options.held_out)
    encode, vocabulary = make_vocabulary(options.vocabulary, training)
    attributes = {"source": source, "license": license_text, "vocabulary": vocabulary,
                  "sha256": hashlib.sha256(text.encode()).hexdigest()}
    parts = {"the held-out part": (held_out, options.output.with_name(options.output.stem + ".eval.h5")),
             "the training part": (training, options.output)}
    rows = {path: make_rows(encode(part), options.length, name) for name, (part, path) in parts.items()}
    for path, input_ids in rows.items():  # FILE.h5 comes last: where it is, both are
        write_tokens(path, input_ids, attributes)


def check_length(length):
    if length < 2:
        raise Problem(f"--length {length}: a row needs at least 2 tokens, as the first is never a target")


def install_bible():
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Problem("--install needs root and apt-get: name text files instead", code=5)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *BIBLE_PACKAGES]
    if subprocess.run(command, stdout=sys.stderr, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}).returncode != 0:
        raise Problem(f"apt-get could not install {' '.join(BIBLE_PACKAGES)}: name text files instead", code=5)


def read_text(options):
    """The text, where it is from, its licence."""
    if options.files:
        return read_files(options.files), ", ".join(path.name for path in options.files), options.license
    if shutil.which("bible"):
        return (read_bible(), "King James Version of the Bible, Debian package bible-kjv-text, one verse a line",
                "public domain: the copyright of the translation of 1611 has expired (Debian package bible-kjv-text)")
    # Links point at other files of the folder, whose text would come twice.
    licenses = sorted(path for path in LICENSES.glob("*") if path.is_file() and not path.is_symlink())
    if not licenses:
        raise Problem(f"no text: name files, or install Debian's packages {' and '.join(BIBLE_PACKAGES)}")
    print(f"prepare_data: Debian's packages {' and '.join(BIBLE_PACKAGES)} are not installed: taking the licence texts in {LICENSES}",
          file=sys.stderr)
    return (read_files(licenses), f"licence texts of {LICENSES}: " + ", ".join(path.name for path in licenses),
            "verbatim copies, as each text allows")


def read_file(path):
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}") from error


def read_files(paths):
    return "\n".join(map(read_file, paths))


def read_bible():
    done = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], capture_output=True, text=True)
    verses = [re.sub(r"^\S+ ", "", line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(verses) != BIBLE_VERSES:
        raise Problem(f"the program bible gave {len(verses)} verses, not {BIBLE_VERSES} (is package bible-kjv-text installed?): "
                      f"{done.stderr.strip()}", code=5)
    return "\n".join(verses) + "\n"


def split(text, held_out):
    """Training part and held-out part, cut at the end of a line."""
    cut = text.rfind("\n", 0, int(len(text) * (1 - held_out))) + 1
    if cut == 0:
        raise Problem("the text has no line end before its held-out part to cut at: give a longer text or a smaller --held-out")
    return text[:cut], text[cut:]


def make_vocabulary(wanted, training):
    """A function from text to token ids, and what the vocabulary is."""
    if wanted == "bytes":
        return (lambda text: numpy.frombuffer(text.encode(), numpy.uint8).astype(numpy.int32)), "bytes"
    if not wanted.isdecimal() or int(wanted) < 256:
        raise Problem(f"--vocabulary {wanted}: bytes, or a size of at least 256, are accepted")
    try:
        import tokenizers
    except ImportError as error:
        raise Problem("a trained vocabulary needs Python's tokenizers: pip install tokenizers==0.23.3, or use --vocabulary bytes",
                      code=5) from error
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    # All 256 bytes are tokens, so that nothing in a held-out text is unknown.
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=int(wanted), show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(training.splitlines(keepends=True), trainer)
    size = tokenizer.get_vocab_size()
    if size < int(wanted):
        print(f"prepare_data: the training part gives only {size} of {wanted} tokens", file=sys.stderr)

    def encode(text):
        lines = tokenizer.encode_batch(text.splitlines(keepends=True))
        return numpy.concatenate([numpy.array(line.ids, dtype=numpy.int32) for line in lines] or [numpy.empty(0, numpy.int32)])

    return encode, f"byte-level BPE of {size} tokens, trained on the training part"


def make_rows(tokens, length, name):
    num_rows = len(tokens) // length
    if num_rows == 0:
        raise Problem(f"{name} has {len(tokens)} tokens, fewer than one row of {length}: give a longer text or a smaller --length")
    left = len(tokens) - num_rows * length
    print(f"prepare_data: {name}: {num_rows} rows of {length} tokens; {left} tokens at the end fill no row", file=sys.stderr)
    return tokens[: num_rows * length].reshape(num_rows, length)


def write_tokens(path, input_ids, attributes):
    labels = input_ids.copy()
    labels[:, 0] = IGNORED_LABEL
    write_file(path, "tokens", {"input_ids": input_ids, "labels": labels}, attributes)
    print(f"prepare_data: {path}: {len(input_ids)} rows", file=sys.stderr)
