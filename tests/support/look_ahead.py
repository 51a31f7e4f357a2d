"""Folders of look-ahead embeddings (model/look_ahead.h), as tools/train writes them."""
import json
import os

from safetensors_file import read_header, write_tensors


def embeddings_of(target, ids):
    """The rows of the target's embedding for these ids, bf16: a look-ahead token with such a row is
    to the target what the token itself is."""
    path = os.path.join(target, "model.safetensors")
    header, start = read_header(path)
    entry = header["model.embed_tokens.weight"]
    assert entry["dtype"] == "BF16", entry
    width = entry["shape"][1]
    with open(path, "rb") as file:
        rows = []
        for token in ids:
            file.seek(start + entry["data_offsets"][0] + 2 * width * token)
            rows.append(file.read(2 * width))
    return rows


def write_look_ahead(folder, rows):
    """rows: bf16, as bytes."""
    os.makedirs(folder)
    width = len(rows[0]) // 2
    config = {"model_type": "pass", "n_lookahead": len(rows), "hidden_size": width}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    tensors = {"look_ahead.weight": ("BF16", [len(rows), width], b"".join(rows))}
    write_tensors(os.path.join(folder, "model.safetensors"), tensors)
    return folder
