"""Decoding pictures with Pillow, and writing data files of kind "images"."""

import hashlib
import os
import sys

import h5py
import numpy

from .files import SCHEMA_VERSION, Problem

CHUNK_BYTES = 1 << 20
PLACE = numpy.dtype([("offset", "<i8"), ("height", "<i8"), ("width", "<i8"), ("id", "<i8")])


def import_pillow():
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise Problem("decoding pictures needs Python's Pillow: pip install pillow==13.0.0", code=5) from error
    return Image, ImageOps


def as_rgb(picture, path):
    """(H, W, 3) uint8 of a Pillow picture. Sixteen bits keep their upper eight; an alpha channel is left out."""
    if picture.mode.startswith("I"):
        values = numpy.asarray(picture).astype(numpy.int64)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise Problem(f"{path} holds values from {values.min()} to {values.max()}; 8 or 16 bits are read")
        return numpy.repeat((values >> 8).astype(numpy.uint8)[:, :, None], 3, axis=2)
    if picture.mode == "F":
        raise Problem(f"{path} holds floating-point values; 8 or 16 bits are read")
    return numpy.asarray(picture.convert("RGB"))


def decode(path, size=None):
    """`size` (height, width), if given, is what boxes refer to: it decides whether the file's EXIF rotation is applied, which it is
    where both fit."""
    image, operations = import_pillow()
    try:
        with image.open(path) as picture:
            picture.load()
            turned = operations.exif_transpose(picture)
            for candidate in (turned, picture):
                if size is None or (candidate.height, candidate.width) == tuple(size):
                    return as_rgb(candidate, path)
    except FileNotFoundError as error:
        raise Problem(f"{path} does not exist") from error
    except (OSError, SyntaxError, image.DecompressionBombError) as error:
        raise Problem(f"{path} cannot be decoded: {error}") from error
    raise Problem(f"{path} has {picture.height} x {picture.width} pixels; its annotations are for {size[0]} x {size[1]}")


class Writer:
    """One data file, written aside picture by picture and renamed by `finish`: `path` is whole or as it was."""

    def __init__(self, path, compress=False):
        self.path = path
        self.aside = path.with_name(path.name + ".partial")
        self.places, self.boxes, self.labels, self.areas, self.crowds, self.starts = [], [], [], [], [], [0]
        self.bytes = 0
        self.digest = hashlib.sha256()
        try:
            self.file = h5py.File(self.aside, "w")
            self.pixels = self.file.create_dataset("pixels", (0,), numpy.uint8, maxshape=(None,), chunks=(CHUNK_BYTES,),
                                                   compression="gzip" if compress else None)
        except OSError as error:
            raise Problem(f"{path} cannot be written: {error}", code=10) from error

    def add(self, pixels, identity, boxes, labels, areas=None, crowds=None):
        """`boxes`: x1, y1, x2, y2 in pixels."""
        boxes = numpy.asarray(boxes, numpy.float32).reshape(-1, 4)
        try:
            self.pixels.resize((self.bytes + pixels.size,))
            self.pixels[self.bytes:] = pixels.ravel()
        except (OSError, RuntimeError) as error:
            self.drop()
            raise Problem(f"{self.path} cannot be written: {error}", code=10) from error
        self.digest.update(pixels.tobytes() + boxes.tobytes())
        self.places.append((self.bytes, pixels.shape[0], pixels.shape[1], identity))
        self.bytes += pixels.size
        self.boxes.append(boxes)
        self.labels.extend(labels)
        sides = (boxes[:, 2:] - boxes[:, :2]).astype(numpy.float64)
        self.areas.extend(sides[:, 0] * sides[:, 1] if areas is None else areas)
        self.crowds.extend([0] * len(boxes) if crowds is None else crowds)
        self.starts.append(self.starts[-1] + len(boxes))

    def finish(self, attributes):
        try:
            self.file.attrs["kind"] = "images"
            self.file.attrs["schema_version"] = SCHEMA_VERSION
            for name, value in {**attributes, "sha256": self.digest.hexdigest()}.items():
                self.file.attrs[name] = value
            self.file["images"] = numpy.array(self.places, PLACE)
            self.file["boxes"] = numpy.concatenate([*self.boxes, numpy.empty((0, 4), numpy.float32)])
            self.file["box_labels"] = numpy.array(self.labels, numpy.int32)
            self.file["box_area"] = numpy.array(self.areas, numpy.float64)
            self.file["box_crowd"] = numpy.array(self.crowds, numpy.uint8)
            self.file["box_start"] = numpy.array(self.starts, numpy.int64)
            self.file.close()
            with open(self.aside, "rb") as written:
                os.fsync(written.fileno())
            os.replace(self.aside, self.path)
        except (OSError, RuntimeError) as error:  # h5py gives a failed close as RuntimeError
            self.drop()
            raise Problem(f"{self.path} cannot be written: {error}", code=10) from error
        print(f"prepare_data: {self.path}: {len(self.places)} pictures with {self.starts[-1]} boxes", file=sys.stderr)

    def drop(self):
        try:
            self.file.close()
        except (OSError, RuntimeError):
            pass
        self.aside.unlink(missing_ok=True)
