"""`prepare_data.py shapes`: labelled shapes pasted on photographs, a data file of kind "images".

Without photographs given, the two that scikit-learn's wheel carries are used (it is downloaded where it is missing). A shape's kind is
its label's remainder by three: rectangle, disc, triangle. About one picture in five has no shape. The same options give the same file.
"""

import io
import pathlib
import zipfile

import numpy

from . import pictures
from .files import SCIKIT_LEARN, Problem, check_output, download_wheel

PHOTOGRAPHS = ("sklearn/datasets/images/china.jpg", "sklearn/datasets/images/flower.jpg")
MOST_SHAPES = 4


def add_command(commands):
    command = commands.add_parser("shapes", help="labelled shapes on photographs, with boxes", description=__doc__)
    command.add_argument("photographs", nargs="*", type=pathlib.Path, metavar="PHOTOGRAPH")
    command.add_argument("--source", type=pathlib.Path, help="wheel of scikit-learn (default: download it)")
    command.add_argument("--number", type=int, default=200, help="pictures (default 200)")
    command.add_argument("--eval-number", type=int, default=50, help="held-out pictures (default 50; 0 = no such file)")
    command.add_argument("--classes", type=int, default=4, help="labels are 1 to CLASSES - 1 (default 4)")
    command.add_argument("--size", default="128x160", metavar="HxW", help="of the pictures (default 128x160)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE.h5")


def photographs_of(options):
    if options.photographs:
        return [pictures.decode(path) for path in options.photographs]
    wheel = options.source or download_wheel(*SCIKIT_LEARN)
    image, _ = pictures.import_pillow()
    try:
        with zipfile.ZipFile(wheel) as archive:
            return [pictures.as_rgb(image.open(io.BytesIO(archive.read(name))), name) for name in PHOTOGRAPHS]
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise Problem(f"--source {wheel} gives no photographs: {error}") from error


def size_of(text):
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) >= 16 for part in parts):
        raise Problem(f"--size {text}: HEIGHTxWIDTH, each at least 16, is needed, such as 128x160")
    return int(parts[0]), int(parts[1])


def colour_of(label):
    colour = numpy.random.default_rng(label).integers(0, 256, 3)
    colour[label % 3] = 255
    colour[(label + 1) % 3] //= 4
    return colour.astype(numpy.uint8)


def paste(pixels, label, box):
    left, top, right, bottom = box
    v, u = numpy.mgrid[0:bottom - top, 0:right - left]
    u, v = (u + 0.5) / (right - left) * 2 - 1, (v + 0.5) / (bottom - top)
    inside = [abs(u) <= v, numpy.full(u.shape, True), u ** 2 + (2 * v - 1) ** 2 <= 1][label % 3]
    pixels[top:bottom, left:right][inside] = colour_of(label)


def make(photographs, size, classes, generator):
    """A cut of a photograph, scaled, with shapes: pixels, boxes, labels."""
    image, _ = pictures.import_pillow()
    photograph = photographs[generator.integers(len(photographs))]
    height, width = size
    scale = generator.uniform(0.5, 1) * min(photograph.shape[0] / height, photograph.shape[1] / width)
    cut = max(1, int(height * scale)), max(1, int(width * scale))
    top, left = (int(generator.integers(all_ - part + 1)) for all_, part in zip(photograph.shape, cut))
    part = image.fromarray(photograph[top:top + cut[0], left:left + cut[1]])
    pixels = numpy.array(part.resize((width, height), image.Resampling.BILINEAR))
    boxes, labels = [], []
    for _ in range(generator.integers(MOST_SHAPES + 1)):
        sides = [int(side * generator.uniform(0.15, 0.5)) for side in (width, height)]
        x, y = (int(generator.integers(all_ - side + 1)) for all_, side in zip((width, height), sides))
        boxes.append([x, y, x + sides[0], y + sides[1]])
        labels.append(int(generator.integers(1, classes)))
        paste(pixels, labels[-1], boxes[-1])
    return pixels, boxes, labels


def run(options):
    check_output(options.output)
    if options.classes < 2 or options.number < 1 or options.eval_number < 0:
        raise Problem("--classes must be at least 2, --number at least 1, --eval-number at least 0")
    size = size_of(options.size)
    photographs = photographs_of(options)
    held_out = options.output.with_name(options.output.stem + ".eval.h5")
    # FILE.h5 comes last: where it is, both are.
    for part, (path, number) in enumerate([(held_out, options.eval_number), (options.output, options.number)]):
        if number == 0:
            continue
        writer = pictures.Writer(path)
        for index in range(number):
            generator = numpy.random.default_rng([options.seed, part, index])
            pixels, boxes, labels = make(photographs, size, options.classes, generator)
            writer.add(pixels, index, boxes, labels)
        writer.finish({"source": "shapes on photographs: " + (", ".join(path.name for path in options.photographs) or
                                                                   "china.jpg and flower.jpg as shipped by scikit-learn"),
                       "license": "of the photographs; those that scikit-learn ships are CC BY (see its README.txt beside them)"})
