"""A model folder with the shape and the tokenizer of another and random weights: a draft that
guesses badly, for tests that must hold whatever the draft is."""
import array
import os
import random
import shutil
import sys

from safetensors_file import read_header, write_tensors


def bf16(values):
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
        return bf16([1.0] * count)
    return bf16([generator.gauss(0.0, deviation) for _ in range(count)])


def write_random_model(folder, like, seed, deviation=0.05):
    """Fills a new folder; `like` is a Hugging Face folder with one safetensors file."""
    os.makedirs(folder)
    for name in os.listdir(like):
        if name.endswith(".json"):
            shutil.copy(os.path.join(like, name), folder)
    generator = random.Random(seed)
    header, _ = read_header(os.path.join(like, "model.safetensors"))
    write_tensors(os.path.join(folder, "model.safetensors"),
                  {name: ("BF16", entry["shape"], _tensor(entry["shape"], generator, deviation))
                   for name, entry in header.items() if name != "__metadata__"})
    return folder
