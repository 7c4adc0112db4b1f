"""Data files of pictures with boxes, and the RetinaNet fixtures, for tests of the real program."""

import json

import h5py
import numpy
from conftest import SOURCE

FIXTURES = SOURCE / "tests" / "fixtures"
TYPES = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64, "I32": numpy.int32, "U8": numpy.uint8, "BF16": numpy.uint16}
PLACE = numpy.dtype([("offset", "<i8"), ("height", "<i8"), ("width", "<i8"), ("id", "<i8")])


def read_safetensors(path):
    """BF16 comes as its bits."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = numpy.frombuffer(raw[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(value.tobytes() for value in tensors.values()))


def from_name(key, shape, amplitude, center):
    """The fixtures' rule for weights that they do not store."""
    state = 0xCBF29CE484222325
    for byte in key.encode():
        state = (state ^ byte) * 0x100000001B3 % 2 ** 64
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(state) + numpy.arange(1, numpy.prod(shape, dtype=int) + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
    z ^= z >> numpy.uint64(31)
    unit = (z >> numpy.uint64(40)).astype(numpy.float64) / 2 ** 24
    return (center + amplitude * (2 * unit - 1)).astype(numpy.float32).reshape(shape)


def write_images(path, images, boxes, labels, crowds=None):
    """`images`: (H, W, 3) uint8 each; `boxes`: (n, 4), `labels`: (n) for each."""
    places = numpy.zeros(len(images), PLACE)
    places["height"] = [image.shape[0] for image in images]
    places["width"] = [image.shape[1] for image in images]
    places["offset"] = numpy.cumsum([0] + [image.size for image in images])[:-1]
    places["id"] = numpy.arange(len(images))
    with h5py.File(path, "w") as file:
        file.attrs["kind"] = "images"
        file.attrs["schema_version"] = 1
        file.attrs["source"] = "made by a test"
        file.attrs["license"] = "none"
        file.attrs["sha256"] = ""
        file["pixels"] = numpy.concatenate([image.ravel() for image in images])
        file["images"] = places
        file["boxes"] = numpy.concatenate([numpy.asarray(box, numpy.float32).reshape(-1, 4) for box in boxes])
        file["box_labels"] = numpy.concatenate([numpy.asarray(label, numpy.int32) for label in labels])
        file["box_start"] = numpy.cumsum([0] + [len(label) for label in labels]).astype(numpy.int64)
        if crowds is not None:
            file["box_crowd"] = numpy.concatenate([numpy.asarray(crowd, numpy.uint8) for crowd in crowds])


class Fixture:
    def __init__(self, name):
        self.name = name
        self.folder = FIXTURES / name
        self.facts = json.loads((self.folder / "reference.json").read_text())
        self.tensors = read_safetensors(self.folder / "reference.safetensors")

    def write_data(self, path, part="steady", number=12):
        images = [self.tensors[f"{part}.image.{i}"].transpose(1, 2, 0) for i in range(number)]
        write_images(path, images, [self.tensors[f"{part}.boxes.{i}"] for i in range(number)],
                     [self.tensors[f"{part}.labels.{i}"] for i in range(number)])

    def checkpoint(self, folder):
        """The folder with the weights: the fixture's own, or one made by the rule."""
        if "tensors" not in self.facts:
            return self.folder
        write_safetensors(folder / "model.safetensors", {
            name: from_name(f"{self.name}/{name}", rule["shape"], rule["amplitude"], rule["center"])
            for name, rule in self.facts["tensors"].items()})
        return folder
