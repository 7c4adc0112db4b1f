"""`prepare_data.py coco`: pictures and COCO's instances JSON to a data file of kind "images".

Every picture of the JSON is taken, also without boxes. Boxes are cut at the picture's border; what keeps no width or height is left
out, and said. Crowd regions train as other boxes do and are marked, for scores treat them apart. Labels are the category ids.
"""

import json
import pathlib
import sys

import numpy

from . import pictures
from .files import Problem, check_output


def add_command(commands):
    command = commands.add_parser("coco", help="pictures with boxes, from COCO's instances JSON", description=__doc__)
    command.add_argument("images", type=pathlib.Path, metavar="IMAGES", help="folder with the pictures")
    command.add_argument("annotations", type=pathlib.Path, metavar="ANNOTATIONS", help="instances_*.json")
    command.add_argument("--held-out", type=int, default=0, metavar="N", help="every Nth picture goes to FILE.eval.h5 (default 0: none)")
    command.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N pictures (default 0: all)")
    command.add_argument("--gzip", action="store_true", help="compress pixels: smaller, slower to read")
    command.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE.h5")


def read_annotations(path):
    try:
        content = json.loads(path.read_bytes())
        images, annotations = content["images"], content["annotations"]
        by_image = {int(image["id"]): [] for image in images}
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Problem(f"{path} is no instances JSON of COCO: it needs images and annotations ({error!r})") from error
    categories = {category.get("id") for category in content.get("categories", [])}
    if len(by_image) != len(images):
        raise Problem(f"{path}: two pictures have one id")
    for annotation in annotations:
        try:
            image, box = int(annotation["image_id"]), [float(number) for number in annotation["bbox"]]
            good = len(box) == 4 and numpy.isfinite(box).all() and int(annotation["category_id"]) >= 1
        except (KeyError, TypeError, ValueError) as error:
            raise Problem(f"{path}: annotation {annotation.get('id')} cannot be read: {error!r}") from error
        if not good:
            raise Problem(f"{path}: annotation {annotation.get('id')} has bbox {box} and category {annotation['category_id']}; four "
                          "finite numbers and a category from 1 on are needed")
        if categories and int(annotation["category_id"]) not in categories:
            raise Problem(f"{path}: annotation {annotation.get('id')} has category {annotation['category_id']}, which categories does not list")
        if image not in by_image:
            raise Problem(f"{path}: annotation {annotation.get('id')} is of picture {image}, which is not listed")
        by_image[image].append(annotation)
    return images, by_image, content.get("licenses", [])


def boxes_of(annotations, height, width):
    """Corners in float32, and which annotations kept an area inside the picture."""
    sides = numpy.array([annotation["bbox"] for annotation in annotations], numpy.float64).reshape(-1, 4)
    corners = numpy.concatenate([sides[:, :2], sides[:, :2] + sides[:, 2:]], axis=1)
    corners = corners.clip(0, [width, height, width, height]).astype(numpy.float32)
    return corners, (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])


def run(options):
    check_output(options.output)
    if options.held_out < 0 or options.held_out == 1:
        raise Problem(f"--held-out {options.held_out}: 0, or 2 and more, are accepted")
    images, by_image, _ = read_annotations(options.annotations)
    images = images[: options.limit or None]
    if not images:
        raise Problem(f"{options.annotations} lists no picture")
    training = pictures.Writer(options.output, options.gzip)
    held_out = pictures.Writer(options.output.with_name(options.output.stem + ".eval.h5"), options.gzip) if options.held_out else None
    left_out = 0
    try:
        for number, image in enumerate(images):
            path = options.images / image["file_name"]
            height, width = int(image["height"]), int(image["width"])
            pixels = pictures.decode(path, (height, width))
            annotations = by_image[int(image["id"])]
            corners, kept = boxes_of(annotations, height, width)
            left_out += int((~kept).sum())
            annotations = [annotation for annotation, keep in zip(annotations, kept) if keep]
            areas = [float(annotation.get("area", (box[2] - box[0]) * (box[3] - box[1])))
                     for annotation, box in zip(annotations, corners[kept])]
            writer = held_out if held_out and number % options.held_out == options.held_out - 1 else training
            writer.add(pixels, int(image["id"]), corners[kept], [int(annotation["category_id"]) for annotation in annotations], areas,
                       [int(annotation.get("iscrowd", 0)) for annotation in annotations])
        if left_out:
            print(f"prepare_data: {left_out} boxes without width or height inside their picture are left out", file=sys.stderr)
        attributes = {"source": f"{options.annotations.name} with pictures of {options.images.name}",
                      "license": "as of each picture; see the list of licences in the JSON"}
        for writer in (held_out, training):
            if writer:
                writer.finish(attributes)
    except Problem:
        for writer in (held_out, training):
            if writer:
                writer.drop()
        raise
