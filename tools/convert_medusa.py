#!/usr/bin/env python3
"""Makes a folder that can be read of Medusa heads as their training writes them.

    python tools/convert_medusa.py FOLDER OUT

FOLDER has config.json and medusa_lm_head.pt; OUT gets config.json and model.safetensors with the
same tensors (model/checkpoint/config/places_config.h). Where the residual blocks of a head are one
block, as Medusa makes them, it is written once. Needs torch and safetensors. The .pt file is read
with weights_only, so that nothing in it runs."""
import argparse
import json
import pathlib
import pickle
import re
import sys

import safetensors.torch
import torch

BLOCK = re.compile(r"^(.*?)(\d+)\.(\d+)\.linear\.(weight|bias)$")
LOGITS = re.compile(r"^(.*?)(\d+)\.(\d+)\.weight$")


def load(path):
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        sys.exit(f"{path} cannot be read: {type(error).__name__} {error}".splitlines()[0])
    if not isinstance(tensors, dict) or not tensors:
        sys.exit(f"{path} has no tensors by name")
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            sys.exit(f"{path}: {name} is no tensor of numbers with a point")
        if not BLOCK.match(name) and not LOGITS.match(name):
            sys.exit(f"{path}: {name} is no tensor of a Medusa head")
        if not torch.isfinite(value).all():
            sys.exit(f"{path}: {name} has an element that is no number")
    return tensors


def repeats_first(tensors, name):
    """True if the tensor is that of its head's block 0 once more."""
    match = BLOCK.match(name)
    if not match or match[3] == "0":
        return False
    first = tensors.get(f"{match[1]}{match[2]}.0.linear.{match[4]}")
    return first is not None and torch.equal(first, tensors[name])


def convert(source, out):
    tensors = load(source / "medusa_lm_head.pt")
    config = json.loads((source / "config.json").read_text())
    heads = {BLOCK.match(name)[2] for name in tensors if BLOCK.match(name)}
    blocks = {BLOCK.match(name)[3] for name in tensors if BLOCK.match(name)}
    later = [name for name in tensors if BLOCK.match(name) and BLOCK.match(name)[3] != "0"]
    is_one_block = all(repeats_first(tensors, name) for name in later)
    kept = {name: value.contiguous().clone() for name, value in tensors.items()
            if not (is_one_block and name in later)}
    config["medusa_num_heads"], config["medusa_num_layers"] = len(heads), len(blocks)
    out.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(kept, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    print(f"{out}: {len(heads)} heads of {len(blocks)} blocks, {len(kept)} tensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("out", type=pathlib.Path, metavar="OUT")
    args = parser.parse_args()
    for file in ("config.json", "medusa_lm_head.pt"):
        if not (args.folder / file).is_file():
            sys.exit(f"{args.folder} has no {file}")
    convert(args.folder, args.out)


if __name__ == "__main__":
    main()
