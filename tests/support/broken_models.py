"""Model folders that are not what they claim to be, each a copy of the small shipped one with one
thing wrong, and folders that are only unusual: another token, a padded embedding."""
import json
import os
import shutil
import struct

from cluster import TALES
from safetensors_file import read_parts, write_parts

SOUND = os.path.join(TALES, "draft")
WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
EMBEDDING, NORM = "model.embed_tokens.weight", "model.norm.weight"
PADDING_ROWS = 64


def copy(folder, source=SOUND):
    """Makes folder a sound model."""
    shutil.copytree(source, folder)
    return folder


def read_weights(folder):
    return read_parts(os.path.join(folder, WEIGHTS))


def write_weights(folder, header, data, length=None):
    write_parts(os.path.join(folder, WEIGHTS), header, data, length)


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def edit_json(folder, name, change):
    path = os.path.join(folder, name)
    with open(path, encoding="utf-8") as file:
        value = json.load(file)
    change(value)
    write(folder, name, json.dumps(value))


# ---- one thing wrong ----

def cut(n_bytes):
    def breaker(folder):
        os.truncate(os.path.join(folder, WEIGHTS), n_bytes)
    return breaker


def header_length(length):
    def breaker(folder):
        write_weights(folder, *read_weights(folder), length=length)
    return breaker


def header_text(raw):
    def breaker(folder):
        write_weights(folder, raw, read_weights(folder)[1])
    return breaker


def tensor(name, **fields):
    """Replaces fields of a tensor's entry."""
    def breaker(folder):
        header, data = read_weights(folder)
        header[name].update(fields)
        write_weights(folder, header, data)
    return breaker


def without(name):
    """Takes a tensor away with its data, so that nothing else is wrong."""
    def breaker(folder):
        header, data = read_weights(folder)
        begin, end = header.pop(name)["data_offsets"]
        for entry in header.values():
            offsets = entry.get("data_offsets")
            if offsets and offsets[0] >= end:
                entry["data_offsets"] = [at - (end - begin) for at in offsets]
        write_weights(folder, header, data[:begin] + data[end:])
    return breaker


def config(**fields):
    return lambda folder: edit_json(folder, CONFIG, lambda value: value.update(fields))


def text(name, content):
    return lambda folder: write(folder, name, content)


def gone(name):
    return lambda folder: os.remove(os.path.join(folder, name))


def directory(name):
    def breaker(folder):
        os.remove(os.path.join(folder, name))
        os.mkdir(os.path.join(folder, name))
    return breaker


def pipe(name):
    """A program that opens it waits for a writer that never comes."""
    def breaker(folder):
        os.remove(os.path.join(folder, name))
        os.mkfifo(os.path.join(folder, name))
    return breaker


def device(name):
    def breaker(folder):
        os.remove(os.path.join(folder, name))
        os.symlink("/dev/zero", os.path.join(folder, name))
    return breaker


def empty(folder):
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))


def gguf(folder):
    """Another format's file alone."""
    empty(folder)
    write(folder, "x.gguf", "GGUF")


def extra_tensor(name):
    """Adds a tensor that config.json does not announce."""
    def breaker(folder):
        header, data = read_weights(folder)
        header[name] = {"dtype": "U8", "shape": [4], "data_offsets": [len(data), len(data) + 4]}
        write_weights(folder, header, data + bytes(4))
    return breaker


def index(shard):
    """A sharded model whose only shard has that name."""
    def breaker(folder):
        header, _ = read_weights(folder)
        names = [name for name in header if name != "__metadata__"]
        os.remove(os.path.join(folder, WEIGHTS))
        write(folder, "model.safetensors.index.json",
              json.dumps({"metadata": {}, "weight_map": {name: shard for name in names}}))
    return breaker


def tokenizer_model(**fields):
    return lambda folder: edit_json(folder, TOKENIZER, lambda value: value["model"].update(fields))


# name -> (what breaks the folder, words of the sentence that refuses it)
CASES = {
    "weights cut in the middle": (cut(1000000), (WEIGHTS, "cut short")),
    "weights cut in the header": (cut(1000), (WEIGHTS, "1000")),
    "weights cut in the length": (cut(4), (WEIGHTS, "4 bytes")),
    "weights empty": (cut(0), (WEIGHTS,)),
    "header of 2^60 bytes": (header_length(1 << 60), (WEIGHTS, str(1 << 60))),
    "header of 2^31 bytes": (header_length(1 << 31), (WEIGHTS, str(1 << 31))),
    "header of 2^64-1 bytes": (header_length((1 << 64) - 1), (WEIGHTS, str((1 << 64) - 1))),
    "header of 0 bytes": (header_length(0), (WEIGHTS,)),
    "header is no JSON": (header_text(b"{" * 500), (WEIGHTS,)),
    "header is a list": (header_text(b"[1, 2, 3]"), (WEIGHTS,)),
    "header is binary": (header_text(bytes(range(256))), (WEIGHTS,)),
    "offsets beyond the file": (tensor(NORM, data_offsets=[1 << 40, (1 << 40) + 256]),
                                (WEIGHTS, NORM)),
    "offsets swapped": (tensor(NORM, data_offsets=[512, 256]), (WEIGHTS, NORM)),
    "offsets negative": (tensor(NORM, data_offsets=[-256, 0]), (WEIGHTS, NORM)),
    "overlapping tensors": (tensor(NORM, data_offsets=[0, 256]), (WEIGHTS, "overlapping")),
    "dtype of no weight": (tensor(EMBEDDING, dtype="U16"), (EMBEDDING, "U16")),
    "dtype of another size": (tensor(EMBEDDING, dtype="F32"), (EMBEDDING, "F32")),
    "dtype unheard of": (tensor(EMBEDDING, dtype="Z9"), (EMBEDDING, "Z9")),
    "shape turned over": (tensor(EMBEDDING, shape=[128, 4096]), (EMBEDDING, "[128, 4096]")),
    "shape beyond 64 bits": (tensor(EMBEDDING, shape=[1 << 40, 1 << 40]), (WEIGHTS, EMBEDDING)),
    "tensor missing": (without(NORM), (NORM,)),
    "config broken": (text(CONFIG, '{"vocab_size": 4096,'), (CONFIG,)),
    "config is a list": (text(CONFIG, "[]"), (CONFIG,)),
    "config empty": (text(CONFIG, ""), (CONFIG,)),
    "config asks for gelu": (config(hidden_act="gelu"), (CONFIG, "hidden_act", "gelu")),
    "config of another family": (config(model_type="bloom", architectures=["BloomForCausalLM"]),
                                 (CONFIG, "loom")),
    "config with a switch that is not supported": (config(no_rope_layers=[1, 0]),
                                                   (CONFIG, "no_rope_layers")),
    "config with a text for a size": (config(hidden_size="128"), (CONFIG, "hidden_size")),
    "config with a negative size": (config(num_hidden_layers=-2), (CONFIG, "num_hidden_layers")),
    "config with a billion layers": (config(num_hidden_layers=10**9), ("layers",)),
    "config with a billion tokens": (config(vocab_size=2**31 - 1), ("2147483647",)),
    "config with an endless number": (config(intermediate_size=10**30), (CONFIG,)),
    "tokenizer broken": (text(TOKENIZER, '{"model": {"vocab": '), (TOKENIZER,)),
    "tokenizer of another kind": (tokenizer_model(type="WordPiece"), (TOKENIZER, "WordPiece")),
    "tokenizer with an id too high": (tokenizer_model(vocab={"a": 2**31}), (TOKENIZER, "id")),
    "tokenizer with a text for an id": (tokenizer_model(vocab={"a": "0"}), (TOKENIZER, "id")),
    "no config": (gone(CONFIG), ("has no config.json",)),
    "no weights": (gone(WEIGHTS), ("safetensors",)),
    "no tokenizer": (gone(TOKENIZER), ("has no tokenizer.json",)),
    "empty folder": (empty, ("has no ",)),
    "config is a folder": (directory(CONFIG), (CONFIG,)),
    "weights are a folder": (directory(WEIGHTS), (WEIGHTS,)),
    "tokenizer is a folder": (directory(TOKENIZER), (TOKENIZER,)),
    "config is a pipe": (pipe(CONFIG), (CONFIG,)),
    "weights are a pipe": (pipe(WEIGHTS), (WEIGHTS,)),
    "tokenizer is a pipe": (pipe(TOKENIZER), (TOKENIZER,)),
    "config is endless": (device(CONFIG), (CONFIG,)),
    "weights are endless": (device(WEIGHTS), (WEIGHTS,)),
    "tokenizer is endless": (device(TOKENIZER), (TOKENIZER,)),
    "a GGUF file beside no config": (gguf, ("GGUF", "x.gguf")),
    "weights of hqq": (config(quantization_config={"quant_method": "hqq", "bits": 4}),
                       (CONFIG, "hqq")),
    "no weights of awq": (config(quantization_config={"quant_method": "awq", "bits": 4}),
                          (CONFIG, "no matrix that is")),
    "a tensor that nobody reads": (extra_tensor("model.layers.0.self_attn.q_proj.bias"),
                                   ("q_proj.bias",)),
    "shard outside of the folder": (index("../../other.safetensors"), ("../../other.safetensors",)),
    "shard missing": (index("model-00001-of-00001.safetensors"), ("model-00001-of-00001",)),
}


# ---- unusual ----

def other_token(folder):
    """Changes one of the tokens and keeps their number."""
    def change(value):
        vocab = value["model"]["vocab"]
        vocab["<|uzer|>"] = vocab.pop("<|user|>")
        for added in value["added_tokens"]:
            added["content"] = added["content"].replace("<|user|>", "<|uzer|>")
    edit_json(folder, TOKENIZER, change)


def pad_embedding(folder):
    """Rows that no token has, larger than all others: if not masked, they would always win."""
    header, data = read_weights(folder)
    n_rows, width = header[EMBEDDING]["shape"]
    begin, end = header[EMBEDDING]["data_offsets"]
    tail = struct.pack("<H", 0x4170) * (PADDING_ROWS * width)  # 15.0 as bf16
    for entry in header.values():
        offsets = entry.get("data_offsets")
        if offsets and offsets[0] >= end:
            entry["data_offsets"] = [at + len(tail) for at in offsets]
    header[EMBEDDING].update(shape=[n_rows + PADDING_ROWS, width],
                             data_offsets=[begin, end + len(tail)])
    write_weights(folder, header, data[:end] + tail + data[end:])
    edit_json(folder, CONFIG, lambda value: value.update(vocab_size=n_rows + PADDING_ROWS))
