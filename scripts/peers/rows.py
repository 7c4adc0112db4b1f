"""Rows of a data file in shardmark's order: the same permutation of every epoch, each rank a contiguous share of the global
batch. All rows are held in memory, which costs a peer less than any loader would."""

import h5py
import numpy
import torch

from models import IGNORED
from problem import DataProblem

WORD = numpy.uint64(0xFFFFFFFF)
MASK64 = (1 << 64) - 1


def hash_text(text, value=0xCBF29CE484222325):
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK64
    return value


def hash_mix(value, other):
    z = (value ^ (other + 0x9E3779B97F4A7C15 + (value << 6) + (value >> 2))) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def philox_first(key, low, high):
    """First word of Philox4x32-10 blocks with counters (low, high); `low` is an array (src/base/random.hpp)."""
    shift = numpy.uint64(32)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    c = [low & WORD, low >> shift, numpy.full_like(low, high & 0xFFFFFFFF), numpy.full_like(low, high >> 32)]
    for _ in range(10):
        p0, p1 = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> shift) ^ c[1] ^ numpy.uint64(k0), p1 & WORD, (p0 >> shift) ^ c[3] ^ numpy.uint64(k1), p0 & WORD]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c[0]


def permutation(seed, epoch, size):
    """base::RandomPermutation as a table: a Feistel network over a power of four, walked until it lands inside."""
    key = hash_mix(hash_mix(hash_text("permutation"), seed), epoch)
    half_bits = 1
    while 1 << (2 * half_bits) < size:
        half_bits += 1
    shift, mask = numpy.uint64(half_bits), numpy.uint64((1 << half_bits) - 1)
    values = numpy.arange(size, dtype=numpy.uint64)
    walking = numpy.arange(size)
    while walking.size:
        left, right = values[walking] >> shift, values[walking] & mask
        for number in range(4):
            left, right = right, left ^ (philox_first(key, right, number) & mask)
        values[walking] = (left << shift) | right
        walking = walking[values[walking] >= size]
    return values.astype(numpy.int64)


KINDS = {"lm": "tokens", "two-tower": "ratings", "retinanet": "images"}  # of the data files of workloads; else vectors


def check_kind(path, file, config):
    kind = file.attrs["kind"]
    kind = kind.decode() if isinstance(kind, bytes) else kind
    wanted = KINDS.get(config["workload"]["name"], "vectors")
    if kind != wanted:
        raise DataProblem(f"data.path = {path} is of kind {kind}; this workload reads {wanted}")
    return kind


def open_rows(config):
    path = config["data"]["path"]
    if not path:
        raise DataProblem("data.path = \"\": synthetic rows are made inside shardmark; name a data file that both sides read "
                          "(scripts/prepare_data.py makes them)")
    return (Pictures if config["workload"]["name"] == "retinanet" else Rows)(config)


class Ordered:
    """The order of a file's rows. Its heirs set num_rows, length, targets_of_row and tokens_of_row."""

    def __init__(self, config):
        self.shuffle, self.seed = config["data"]["shuffle"], config["data"]["seed"]

    def plan(self, num_steps, global_batch):
        """Rows of every step's global batch, (steps, global_batch), -1 where the last batch of an epoch is filled up."""
        steps_per_epoch = -(-self.num_rows // global_batch)
        epochs = []
        for epoch in range(-(-num_steps // steps_per_epoch)):
            order = permutation(self.seed, epoch, self.num_rows) if self.shuffle else numpy.arange(self.num_rows)
            fillers = numpy.full(steps_per_epoch * global_batch - self.num_rows, -1)
            epochs.append(numpy.concatenate((order, fillers)).reshape(steps_per_epoch, global_batch))
        return numpy.concatenate(epochs)[:num_steps]

    def count_tokens(self, rows):
        return sum(self.tokens_of_row[row] for row in rows if row >= 0)

    def count_targets(self, rows):
        return sum(self.targets_of_row[row] for row in rows if row >= 0)


class Rows(Ordered):
    """inputs, targets: one tensor each, with a filler row at index -1."""

    def __init__(self, config):
        super().__init__(config)
        path = config["data"]["path"]
        with h5py.File(path) as file:
            kind = check_kind(path, file, config)
            if "segment_ids" in file:
                raise DataProblem(f"data.path = {path} holds packed rows; peers train on unpacked ones only")
            if kind == "ratings":
                inputs = torch.from_numpy(numpy.column_stack((file["user"][:], file["item"][:])))
                targets = torch.from_numpy(file["label"][:])
                self.num_users, self.num_items = int(file.attrs["num_users"]), int(file.attrs["num_items"])
            else:
                names = ("input_ids", "labels") if kind == "tokens" else ("features", "targets")
                inputs, targets = (torch.from_numpy(file[name][:]) for name in names)
            lengths = file["lengths"][:].tolist() if "lengths" in file else None
        if kind == "tokens":
            if inputs.shape[1] != config["data"]["sequence_length"]:
                raise DataProblem(f"data.path = {path} has rows of {inputs.shape[1]} tokens; data.sequence_length = "
                                  f"{config['data']['sequence_length']}")
            inputs, targets = inputs.long(), targets.long()
            self.targets_of_row = (targets[:, 1:] != IGNORED).sum(dim=1).tolist()
        else:
            self.targets_of_row = [targets.shape[1] if targets.ndim == 2 else 1] * len(targets)
        self.length = inputs.shape[1] if kind == "tokens" else 0
        self.num_rows = len(inputs)
        self.tokens_of_row = lengths or [self.length] * len(inputs)  # that are not padding
        filler = torch.full_like(targets[:1], float("nan") if targets.is_floating_point() else IGNORED)
        self.inputs = torch.cat((inputs, torch.zeros_like(inputs[:1])))
        self.targets = torch.cat((targets, filler))

    def batch(self, rows, device):
        """(inputs, targets) on the device."""
        mine = torch.from_numpy(rows)
        return self.inputs[mine].to(device, non_blocking=True), self.targets[mine].to(device, non_blocking=True)


class Pictures(Ordered):
    """A file of kind "images"; a batch is (pictures, their boxes and labels) as torchvision's detectors take them."""

    def __init__(self, config):
        super().__init__(config)
        self.path = config["data"]["path"]
        with h5py.File(self.path) as file:
            check_kind(self.path, file, config)
            pixels, self.images, starts = file["pixels"][:], file["images"][:], file["box_start"][:].tolist()
            boxes, labels = torch.from_numpy(file["boxes"][:]), torch.from_numpy(file["box_labels"][:]).long()
        self.pixels = torch.from_numpy(pixels)
        self.boxes = [{"boxes": boxes[first:last], "labels": labels[first:last]} for first, last in zip(starts, starts[1:])]
        self.num_rows, self.length = len(self.images), 0
        self.targets_of_row, self.tokens_of_row = [1] * self.num_rows, [0] * self.num_rows

    def plan(self, num_steps, global_batch):
        made = super().plan(num_steps, global_batch)
        if (made < 0).any():
            raise DataProblem(f"{self.path} has {self.num_rows} pictures, which batches of {global_batch} do not divide: peers train "
                              "on whole batches of pictures only")
        return made

    def batch(self, rows, device):
        pictures = []
        for row in rows:
            offset, height, width = (int(self.images[row][name]) for name in ("offset", "height", "width"))
            picture = self.pixels[offset:offset + height * width * 3].view(height, width, 3).permute(2, 0, 1)
            pictures.append(picture.to(device).float().div_(255))
        targets = [{name: value.to(device) for name, value in self.boxes[row].items()} for row in rows]
        return (pictures, targets), None
