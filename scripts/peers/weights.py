"""Reads model.safetensors of a folder into a model: fp32 parameters and buffers under the names that shardmark exports."""

import json
import pathlib
import struct

import numpy
import torch

from problem import DataProblem


DTYPES = {"F32": "<f4", "I64": "<i8"}  # whole numbers are counters among the buffers


def read_safetensors(path):
    """Tensors by name, views of the file's bytes, and these bytes."""
    raw = bytearray(pathlib.Path(path).read_bytes())
    (header_bytes,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + header_bytes])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise DataProblem(f"{path}: tensor {name} is {entry['dtype']}; peers read F32 (export with precision.parameters = fp32)")
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        tensors[name] = numpy.frombuffer(memoryview(raw)[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, raw


def load(model, folder):
    """Every parameter and stored buffer of the model, once if tied, and nothing else, or DataProblem."""
    path = pathlib.Path(folder) / "model.safetensors"
    stored, _ = read_safetensors(path)
    kept = model.state_dict()  # without tables that a model makes anew
    wanted = {**dict(model.named_parameters()),  # tied ones once, under the first name
              **{name: buffer for name, buffer in model.named_buffers() if name in kept}}
    problems = [f"tensor {name} is missing" for name in wanted if name not in stored]
    problems += [f"tensor {name} is not one of this model's" for name in stored if name not in wanted]
    problems += [f"tensor {name} is {list(stored[name].shape)}, the model needs {list(wanted[name].shape)}"
                 for name in wanted if name in stored and list(stored[name].shape) != list(wanted[name].shape)]
    if problems:
        raise DataProblem(f"{path}: " + "; ".join(problems))
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(torch.from_numpy(stored[name].copy()))
