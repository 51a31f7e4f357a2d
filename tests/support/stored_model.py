"""Copies of bf16 model folders whose matrices are stored in another way, as tools that quantize
write them: in fp8, or in integers of 8 bits, with one scale for each matrix."""
import array
import json
import math
import os
import shutil
import struct
import sys

from safetensors_file import read_tensors, write_tensors


def _float(bf16):
    return struct.unpack("<f", struct.pack("<I", bf16 << 16))[0]


def _fp8(value):
    """The nearest e4m3 number."""
    size = min(abs(value), 448.0)
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    exponent = max(math.frexp(size)[1] - 1, -6) if size else -6
    steps = round(size / 2.0 ** (exponent - 3)) # of 8 to 16 halves of the exponent, or less below
    if steps == 16:
        exponent, steps = exponent + 1, 8
    return sign | (exponent + 7 << 3 | steps - 8 if steps >= 8 else steps)


def _signed(value):
    return max(-128, min(127, round(value))) & 0xff


def _store(data, largest, number):
    """(bytes, scale): each element of bf16 is `number` of itself over the scale."""
    elements = array.array("H", data)
    if sys.byteorder == "big":
        elements.byteswap()
    scale = max(abs(_float(x)) for x in set(elements)) / largest
    scale = struct.unpack("<f", struct.pack("<f", scale))[0]
    table = {x: number(_float(x) / scale) for x in set(elements)}
    return bytes(table[x] for x in elements), struct.pack("<f", scale)


def _config(kind, number):
    weights = {"num_bits": 8, "type": number, "symmetric": True, "strategy": "tensor"}
    return {"quant_method": "compressed-tensors", "format": kind, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


KINDS = {"fp8": ("F8_E4M3", 448.0, _fp8, _config("float-quantized", "float")),
         "int8": ("I8", 127.0, _signed, _config("int-quantized", "int"))}


def write_stored_model(folder, like, kind):
    """Fills a new folder; `like` has one file of bf16 tensors. Returns the folder."""
    dtype, largest, number, config = KINDS[kind]
    shutil.copytree(like, folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = {}
    for name, (old, shape, data) in read_tensors(path).items():
        tensors[name] = old, shape, data
        if name.endswith("_proj.weight"):
            stored, scale = _store(data, largest, number)
            tensors[name] = dtype, shape, stored
            tensors[name + "_scale"] = "F32", [1], scale
    write_tensors(path, tensors)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        values = json.load(file)
    values["quantization_config"] = config
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file)
    return folder
