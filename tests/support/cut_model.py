"""A copy of a model whose embedding and head have fewer rows, so that its vocabulary is smaller
than that of its tokenizer."""
import json
import os
import shutil

from safetensors_file import read_tensors, write_tensors


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
    tensors, n_cut = {}, 0
    for name, (dtype, shape, data) in read_tensors(old).items():
        if len(shape) == 2 and shape[0] == whole:
            shape, data = [n_vocab, shape[1]], data[:len(data) // whole * n_vocab]
            n_cut += 1
        tensors[name] = dtype, shape, data
    assert n_cut > 0, f"no matrix of {whole} rows in {old}"
    write_tensors(new, tensors)
