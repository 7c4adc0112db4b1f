"""`prepare_data.py movielens`: who rated what how, data files of kind "ratings".

Rows are sorted by user and movie and the first 100,000 kept. A rating of at least their mean is positive. Users are numbered from
0 in the order of their ids; movie ids stay as they are, for a model takes them modulo its table. FILE.h5 gets 70 % of the
rows, FILE.eval.h5 21 % and FILE.test.h5 the rest, drawn by a seed.
"""

import hashlib
import math
import pathlib
import sys
import zipfile
import zlib

import numpy

from prepare.files import Problem, check_output, download_wheel, write_file

PACKAGE, VERSION, SIZE = "recbole", "1.2.1", "2 MB"
MEMBER = "recbole/dataset_example/ml-100k/ml-100k.inter"
SHARES = {"": 0.70, ".eval": 0.21, ".test": None}  # the last gets what is left
# Columns of RecBole's files and of GroupLens' own.
COLUMNS = (("user_id:token", "item_id:token", "rating:float"), ("userId", "movieId", "rating"))
ML_100K = {
    "source": "MovieLens 100K: F. M. Harper and J. A. Konstan (2015), The MovieLens Datasets: History and Context, ACM "
              f"Transactions on Interactive Intelligent Systems 5, 4; as shipped by {PACKAGE} {VERSION}",
    "license": "GroupLens: for research, with acknowledgement; no redistribution or commercial use without permission (README of "
               "ml-100k; not stated by the package that ships a copy)"}


def add_command(commands):
    command = commands.add_parser("movielens", help="ratings of movies by users, for two-tower", description=__doc__)
    command.add_argument("--source", type=pathlib.Path,
                         help=f"wheel of {PACKAGE}, its ml-100k.inter, or a CSV file with columns userId, movieId, rating (default: "
                              f"download the wheel, {SIZE})")
    command.add_argument("--rows", type=int, default=100_000, help="rows to keep (default 100000)")
    command.add_argument("--seed", type=int, default=42, help="of the split (default 42)")
    command.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE.h5",
                         help="training rows; held-out rows go to FILE.eval.h5 and FILE.test.h5")


def run(options):
    check_output(options.output, (".eval", ".test"))
    if options.rows < 10:
        raise Problem(f"--rows {options.rows}: at least 10 are needed, or a part would have none")
    source = options.source or download_wheel(PACKAGE, VERSION, SIZE, "fetch its wheel elsewhere, or name a file of ratings by --source")
    raw, name, about = read_source(source)
    users, movies, ratings = parse(raw, name)
    order = numpy.lexsort((movies, users))[:options.rows]
    users, movies, ratings = users[order], movies[order], ratings[order]
    if len(users) < 10:
        raise Problem(f"{name} holds {len(users)} ratings; at least 10 are needed")
    user_ids, users = numpy.unique(users, return_inverse=True)
    labels = (ratings >= ratings.mean()).astype(numpy.float32)
    attributes = {**about, "sha256": hashlib.sha256(raw).hexdigest(), "num_users": len(user_ids),
                  "num_items": len(numpy.unique(movies)), "rating_mean": float(ratings.mean())}
    parts = cut(numpy.random.default_rng(options.seed).permutation(len(users)))
    for suffix, rows in reversed(parts.items()):  # FILE.h5 comes last: where it is, all are
        path = options.output.with_name(options.output.stem + suffix + ".h5")
        write_file(path, "ratings", {"user": users[rows].astype(numpy.int64), "item": movies[rows], "label": labels[rows]}, attributes)
        print(f"prepare_data: {path}: {len(rows)} ratings", file=sys.stderr)


def cut(order):
    parts, first = {}, 0
    for suffix, share in SHARES.items():
        last = len(order) if share is None else first + math.floor(share * len(order) + 1e-9)
        parts[suffix] = order[first:last]
        first = last
    return parts


def read_source(source):
    """Bytes of the table, its name for messages, and what it is."""
    if not source.is_file():
        raise Problem(f"--source {source} {'is no file' if source.exists() else 'does not exist'}")
    if not zipfile.is_zipfile(source):
        is_ml_100k = source.name == "ml-100k.inter"
        return source.read_bytes(), str(source), ML_100K if is_ml_100k else {"source": source.name, "license": "not stated"}
    try:
        with zipfile.ZipFile(source) as wheel:
            return wheel.read(MEMBER), f"{source}: {MEMBER}", ML_100K
    except KeyError as error:
        raise Problem(f"--source {source} holds no {MEMBER}: is it a wheel of {PACKAGE}?") from error
    except (zipfile.BadZipFile, zlib.error, OSError) as error:
        raise Problem(f"--source {source} is damaged: {error}") from error


def parse(raw, name):
    """Users, movies and ratings, one a row. Rows are counted from 0, the line of titles left out."""
    try:
        lines = raw.decode().splitlines()
    except UnicodeDecodeError as error:
        raise Problem(f"{name} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}") from error
    titles = lines[0] if lines else ""
    separator = "\t" if "\t" in titles else ","
    titles = titles.split(separator)
    columns = next((wanted for wanted in COLUMNS if set(wanted) <= set(titles)), None)
    if columns is None:
        raise Problem(f"{name}: the first line names the columns {', '.join(titles)}; needed are "
                      + ", or ".join(", ".join(wanted) for wanted in COLUMNS))
    places = [titles.index(column) for column in columns]
    ids = numpy.empty((2, len(lines) - 1), numpy.int64)
    ratings = numpy.empty(len(lines) - 1)
    for row, line in enumerate(lines[1:]):
        fields = line.split(separator)
        if len(fields) != len(titles):
            raise Problem(f"{name}, row {row} holds {len(fields)} values, not {len(titles)} ({line!r}): cut short or damaged")
        for which, place in enumerate(places[:2]):
            if not fields[place].isdecimal() or len(fields[place]) > 18:
                raise Problem(f"{name}, row {row}, column {columns[which]} holds {fields[place]}; whole numbers from 0 are ids")
            ids[which, row] = int(fields[place])
        try:
            ratings[row] = float(fields[places[2]])
        except ValueError:
            ratings[row] = math.nan
        if not math.isfinite(ratings[row]):
            raise Problem(f"{name}, row {row}, column {columns[2]} holds {fields[places[2]]}; only finite numbers are ratings")
    return ids[0], ids[1], ratings
