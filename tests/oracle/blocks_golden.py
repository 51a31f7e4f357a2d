#!/usr/bin/env python3
"""Writes tests/golden/blocks/blocks.golden.json: blocks of weights of all kinds that are read from
GGUF files, and their values as gguf-py's dequantize gives them (pip install gguf).

  version  of gguf
  kinds    for each kind:
    name    as ggml has it
    id      in a file
    blocks  bytes in hexadecimal: random ones, whose scales are ordinary numbers or extremes
    values  fp32, little endian, in hexadecimal
Run: tests/oracle/blocks_golden.py (from the top of the source)."""
import importlib.metadata
import json
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/blocks/blocks.golden.json"
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
          "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
          "IQ4_NL": (0,), "IQ4_XS": (0,)}
# One ordinary, the largest, the least one, a subnormal one, zeros of both signs.
EXTREMES = [(None, None), (0xfbff, 0x7bff), (0x0001, 0x8001), (0x83ff, 0x03ff), (0x8000, 0x8000),
            (0x0000, 0x7bff), (0x7c00, 0x3c00), (0x3c00, 0x7e00)]


def make(kind, rng, n):
    size, n_bytes = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (n, n_bytes), dtype=np.uint8)
    for i in range(n):
        for at, extreme in zip(HALVES[kind.name], EXTREMES[i % len(EXTREMES)]):
            ordinary = np.float16(rng.normal() / 50).view(np.uint16)
            half = ordinary if extreme is None else np.uint16(extreme)
            blocks[i, at:at + 2] = np.frombuffer(half.tobytes(), np.uint8)
    return blocks


def main():
    rng = np.random.default_rng(20261127)
    kinds = []
    for name in HALVES:
        kind = GGMLQuantizationType[name]
        n = 8 if GGML_QUANT_SIZES[kind][0] == 256 else 16
        blocks = make(kind, rng, n)
        with np.errstate(all="ignore"):
            values = np.stack([dequantize(block, kind) for block in blocks])
        kinds.append({"name": name, "id": int(kind), "blocks": blocks.tobytes().hex(),
                      "values": values.astype("<f4").tobytes().hex()})
    GOLDEN.parent.mkdir(exist_ok=True)
    golden = {"version": "gguf " + importlib.metadata.version("gguf"), "kinds": kinds}
    GOLDEN.write_text(json.dumps(golden, indent=0) + "\n")


if __name__ == "__main__":
    main()
