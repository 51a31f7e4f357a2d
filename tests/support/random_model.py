"""A model folder with the shape and the tokenizer of another and random weights: a draft that
guesses badly, for tests that must hold whatever the draft is."""
import array
import json
import os
import random
import shutil
import struct
import sys


def _read_header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


def _bf16(values):
    """The upper halves of float32 numbers, little-endian."""
    single = array.array("f", values)
    if sys.byteorder == "big":
        single.byteswap()
    wide = single.tobytes()
    out = bytearray(len(wide) // 2)
    out[0::2] = wide[2::4]
    out[1::2] = wide[3::4]
    return bytes(out)


def _tensor(shape, generator, deviation):
    """Norm weights are ones; all others are normal numbers."""
    count = 1
    for size in shape:
        count *= size
    if len(shape) == 1:
        return _bf16([1.0] * count)
    return _bf16([generator.gauss(0.0, deviation) for _ in range(count)])


def write_random_model(folder, like, seed, deviation=0.05):
    """Fills a new folder; `like` is a Hugging Face folder with one safetensors file."""
    os.makedirs(folder)
    for name in os.listdir(like):
        if name.endswith(".json"):
            shutil.copy(os.path.join(like, name), folder)
    generator = random.Random(seed)
    header, parts, offset = {}, [], 0
    for name, entry in _read_header(os.path.join(like, "model.safetensors")).items():
        if name == "__metadata__":
            continue
        data = _tensor(entry["shape"], generator, deviation)
        header[name] = {"dtype": "BF16", "shape": entry["shape"],
                        "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    return folder
