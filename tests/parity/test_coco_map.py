"""COCO's twelve scores against pycocotools on random scenes: crowds, sizes, ties, misses, classes without truths."""

import os
import pathlib
import subprocess
import sys

import numpy
import pytest
from conftest import BINARY

pycocotools_coco = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed: scripts/setup.sh installs it")
from pycocotools.cocoeval import COCOeval  # noqa: E402

TOOL = pathlib.Path(BINARY).with_name("coco_map")


def scene(seed):
    """Truths and detections of a few pictures; most detections lie near a truth."""
    random = numpy.random.default_rng(seed)
    truths, detections = [], []
    for image in range(1, random.integers(2, 12)):
        boxes = []
        for _ in range(random.integers(0, 9)):
            size = float(random.choice([12, 30, 32, 60, 96, 150])) * random.uniform(0.8, 1.25)
            box = [random.uniform(0, 300), random.uniform(0, 300), size, size * random.uniform(0.5, 2)]
            label = int(random.integers(1, 5))
            boxes.append((box, label))
            # An object may be smaller than its box; 1024 and 9216 are borders of the ranges.
            area = float(random.choice([1024, 9216])) if random.random() < 0.1 else box[2] * box[3] * random.uniform(0.4, 1)
            truths.append((image, label, *box, area, int(random.random() < 0.15)))
        for box, label in boxes * int(random.integers(0, 4)):
            moved = numpy.array(box) + random.normal(0, 0.12, 4) * box[2]
            moved[2:] = numpy.maximum(moved[2:], 1)
            if random.random() < 0.15:
                label = int(random.integers(1, 7))
            detections.append((image, label, *moved.tolist(), float(numpy.round(random.random(), 1 if random.random() < 0.5 else 6))))
        for _ in range(random.integers(0, 130)):
            detections.append((image, int(random.integers(1, 4)), *random.uniform(1, 200, 4).tolist(), float(random.random())))
    return truths, detections


def expected_scores(truths, detections):
    coco = pycocotools_coco.COCO()
    images = sorted({truth[0] for truth in truths} | {found[0] for found in detections})
    coco.dataset = {
        "info": {},
        "images": [{"id": image} for image in images],
        "categories": [{"id": label} for label in sorted({truth[1] for truth in truths})],
        "annotations": [{"id": number + 1, "image_id": image, "category_id": label, "bbox": list(box), "area": area, "iscrowd": crowd}
                        for number, (image, label, *box, area, crowd) in enumerate(truths)]}
    coco.createIndex()
    found = coco.loadRes([{"image_id": image, "category_id": label, "bbox": box, "score": score}
                          for image, label, *box, score in detections])
    evaluation = COCOeval(coco, found, "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation.stats


def our_scores(truths, detections):
    lines = [" ".join(("T", *(repr(value) for value in truth))) for truth in truths]
    lines += [" ".join(("D", *(repr(value) for value in found))) for found in detections]
    done = subprocess.run([TOOL], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=60, check=True, env=os.environ)
    return numpy.array([float(line) for line in done.stdout.split()])


@pytest.mark.parametrize("seed", range(40))
def test_scores_are_those_of_pycocotools(seed):
    truths, detections = scene(seed)
    if not truths or not detections:
        pytest.skip("nothing to compare")
    # Means of some thousand numbers up to 1, in double.
    numpy.testing.assert_allclose(our_scores(truths, detections), expected_scores(truths, detections), rtol=0, atol=1e-12)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
