"""A copy of a model whose embedding and head have fewer rows, so that its vocabulary is smaller
than that of its tokenizer."""
import json
import os
import shutil
import struct


def write_cut_model(folder, like, n_vocab):
    """Fills a new folder; `like` is a Hugging Face folder with one safetensors file in bf16."""
    os.makedirs(folder)
    for name in os.listdir(like):
        if name.endswith(".json"):
            shutil.copy(os.path.join(like, name), folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    whole, config["vocab_size"] = config["vocab_size"], n_vocab
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    _cut_tensors(os.path.join(like, "model.safetensors"),
                 os.path.join(folder, "model.safetensors"), whole, n_vocab)
    return folder


def _cut_tensors(old, new, whole, n_vocab):
    """Rows lie one after the other, so a matrix of fewer rows is the beginning of its bytes."""
    with open(old, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensors = json.loads(file.read(length))
        data = file.read()
    header, parts, offset, n_cut = {}, [], 0, 0
    for name, entry in tensors.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        shape = list(entry["shape"])
        if len(shape) == 2 and shape[0] == whole:
            end = begin + (end - begin) // whole * n_vocab
            shape[0], n_cut = n_vocab, n_cut + 1
        header[name] = {"dtype": entry["dtype"], "shape": shape,
                        "data_offsets": [offset, offset + end - begin]}
        parts.append(data[begin:end])
        offset += end - begin
    assert n_cut > 0, f"no matrix of {whole} rows in {old}"
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(new, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
