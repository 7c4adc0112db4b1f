"""prepare_data.py coco and shapes: every kind of picture file, crowds, empty pictures, bad annotations. Downloads nothing."""

import json
import os
import pathlib
import subprocess
import sys

import h5py
import numpy
import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))


def prepare(*arguments):
    done = subprocess.run([sys.executable, str(SOURCE / "scripts/prepare_data.py"), *map(str, arguments)], text=True, capture_output=True,
                          timeout=120, env={**os.environ, "PIP_NO_INDEX": "1"})
    return done.returncode, done.stderr


def gradient(height=6, width=8):
    y, x = numpy.mgrid[0:height, 0:width]
    return numpy.stack([x * 20, y * 30, x * 0 + 90], axis=2).astype(numpy.uint8)


def instances(folder, pictures, annotations):
    """`pictures`: name, height, width; ids count from 10."""
    path = folder / "instances.json"
    path.write_text(json.dumps({
        "images": [{"id": 10 + i, "file_name": name, "height": height, "width": width} for i, (name, height, width) in enumerate(pictures)],
        "annotations": [{"id": i, **annotation} for i, annotation in enumerate(annotations)], "categories": []}))
    return path


def pixels_of(file, row):
    offset, height, width, _ = file["images"][row]
    return file["pixels"][offset:offset + height * width * 3].reshape(height, width, 3)


def test_every_kind_of_picture_is_decoded(tmp_path):
    picture = gradient()
    Image.fromarray(picture).save(tmp_path / "rgb.png")
    Image.fromarray(picture[:, :, 0]).save(tmp_path / "grey.png")
    Image.fromarray(picture[:, :, 0].astype(numpy.uint16) * 257).save(tmp_path / "sixteen.png")
    Image.fromarray(picture).convert("CMYK").save(tmp_path / "cmyk.tiff")
    Image.fromarray(numpy.dstack([picture, numpy.full(picture.shape[:2], 7, numpy.uint8)])).save(tmp_path / "alpha.png")
    turned = Image.fromarray(picture)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by a quarter to the right
    turned.save(tmp_path / "turned.png", exif=exif)
    turned.save(tmp_path / "as_stored.png", exif=exif)
    pictures = [("rgb.png", 6, 8), ("grey.png", 6, 8), ("sixteen.png", 6, 8), ("cmyk.tiff", 6, 8), ("alpha.png", 6, 8), ("turned.png", 8, 6),
                ("as_stored.png", 6, 8)]
    code, errors = prepare("coco", tmp_path, instances(tmp_path, pictures, []), "-o", tmp_path / "out.h5")
    assert code == 0, errors
    grey = numpy.repeat(picture[:, :, :1], 3, axis=2)
    with h5py.File(tmp_path / "out.h5") as file:
        for row, expected in enumerate([picture, grey, grey, picture, picture, numpy.rot90(picture, -1), picture]):
            assert (pixels_of(file, row) == expected).all(), pictures[row]
        assert file["images"]["id"].tolist() == list(range(10, 17))
        assert file["box_start"][:].tolist() == [0] * 8
        assert file.attrs["kind"] == "images" and len(file.attrs["sha256"]) == 64


def test_boxes_crowds_and_empty_pictures(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        Image.fromarray(gradient()).save(tmp_path / name)
    annotations = [
        {"image_id": 10, "category_id": 3, "bbox": [1, 2, 3, 2.5], "area": 4.5, "iscrowd": 0},
        {"image_id": 12, "category_id": 90, "bbox": [-2, 0, 30, 4], "area": 20, "iscrowd": 1},
        {"image_id": 12, "category_id": 1, "bbox": [4, 1, 0, 3], "area": 0, "iscrowd": 0},  # no width
        {"image_id": 12, "category_id": 1, "bbox": [9, 1, 4, 3], "area": 12, "iscrowd": 0},  # outside
        {"image_id": 10, "category_id": 5, "bbox": [0, 0, 1, 1]},
    ]
    path = instances(tmp_path, [(name, 6, 8) for name in ("a.png", "b.png", "c.png")], annotations)
    code, errors = prepare("coco", tmp_path, path, "-o", tmp_path / "out.h5", "--gzip")
    assert code == 0 and "2 boxes without width or height inside their picture are left out" in errors
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["box_start"][:].tolist() == [0, 2, 2, 3]
        assert file["boxes"][:].tolist() == [[1, 2, 4, 4.5], [0, 0, 1, 1], [0, 0, 8, 4]]
        assert file["box_labels"][:].tolist() == [3, 5, 90]
        assert file["box_area"][:].tolist() == [4.5, 1, 20]
        assert file["box_crowd"][:].tolist() == [0, 0, 1]
        assert file["pixels"].compression == "gzip"


def test_every_third_picture_is_held_out(tmp_path):
    names = [f"{i}.png" for i in range(7)]
    for name in names:
        Image.fromarray(gradient()).save(tmp_path / name)
    code, errors = prepare("coco", tmp_path, instances(tmp_path, [(name, 6, 8) for name in names], []), "--held-out", 3, "-o", tmp_path / "x.h5")
    assert code == 0, errors
    with h5py.File(tmp_path / "x.h5") as training, h5py.File(tmp_path / "x.eval.h5") as held_out:
        assert training["images"]["id"].tolist() == [10, 11, 13, 14, 16]
        assert held_out["images"]["id"].tolist() == [12, 15]


def spoil(tmp_path, kind):
    Image.fromarray(gradient()).save(tmp_path / "a.png")
    box = {"image_id": 10, "category_id": 1, "bbox": [1, 1, 2, 2]}
    size = (6, 8)
    if kind == "cut off":
        raw = (tmp_path / "a.png").read_bytes()
        (tmp_path / "a.png").write_bytes(raw[:len(raw) // 2])
    elif kind == "missing":
        (tmp_path / "a.png").unlink()
    elif kind == "another size":
        size = (5, 8)
    elif kind == "unknown picture":
        box["image_id"] = 99
    elif kind == "category 0":
        box["category_id"] = 0
    elif kind == "bbox of three":
        box["bbox"] = [1, 2, 3]
    elif kind == "floating point":
        Image.fromarray(gradient()[:, :, 0].astype(numpy.float32)).save(tmp_path / "b.tiff")
        return instances(tmp_path, [("b.tiff", 6, 8)], [])
    path = instances(tmp_path, [("a.png", *size)], [box])
    if kind == "unlisted category":
        path.write_text(path.read_text().replace('"categories": []', '"categories": [{"id": 77, "name": "x"}]'))
    return path


@pytest.mark.parametrize("kind, message", [
    ("cut off", "a.png cannot be decoded"), ("missing", "a.png does not exist"), ("another size", "6 x 8 pixels; its annotations are for 5 x 8"),
    ("unknown picture", "annotation 0 is of picture 99"), ("category 0", "category 0; four finite numbers and a category from 1 on"),
    ("unlisted category", "which categories does not list"), ("bbox of three", "bbox [1.0, 2.0, 3.0]"), ("floating point", "b.tiff holds floating-point values")])
def test_bad_sources_are_named_and_leave_nothing(tmp_path, kind, message):
    path = spoil(tmp_path, kind)
    code, errors = prepare("coco", tmp_path, path, "-o", tmp_path / "out.h5")
    assert code == 2 and message in errors, errors
    assert not list(tmp_path.glob("out.h5*"))


def test_annotations_that_are_none(tmp_path):
    (tmp_path / "x.json").write_text('{"images": []}')
    code, errors = prepare("coco", tmp_path, tmp_path / "x.json", "-o", tmp_path / "out.h5")
    assert code == 2 and "is no instances JSON of COCO" in errors


def test_shapes_are_the_same_twice_and_fit_their_boxes(tmp_path):
    Image.fromarray(gradient(240, 12).repeat(25, axis=1)).save(tmp_path / "photo.png")
    for name in ("one", "two"):
        code, errors = prepare("shapes", tmp_path / "photo.png", "--number", 12, "--eval-number", 3, "--size", "48x64", "-o", tmp_path / f"{name}.h5")
        assert code == 0, errors
    with h5py.File(tmp_path / "one.h5") as one, h5py.File(tmp_path / "two.h5") as two, h5py.File(tmp_path / "one.eval.h5") as held_out:
        assert one.attrs["sha256"] == two.attrs["sha256"] != held_out.attrs["sha256"]
        assert len(one["images"]) == 12 and len(held_out["images"]) == 3
        assert set(one["images"]["height"]) == {48} and set(one["images"]["width"]) == {64}
        boxes = one["boxes"][:]
        assert (boxes[:, 2:] > boxes[:, :2]).all() and boxes.min() >= 0 and boxes[:, 2].max() <= 64 and boxes[:, 3].max() <= 48
        assert set(one["box_labels"][:]) <= {1, 2, 3}
