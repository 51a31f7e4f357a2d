#!/usr/bin/env python3
"""Makes tests/golden/gguf: the models of tests/golden/models as GGUF files.

    python tests/oracle/gguf_golden.py OUT      needs gguf, numpy

gguf-py writes the files and says what their tensors are called. The rows of q and k of models whose
programs rotate neighbours are put in the order of llama.cpp's converter. Each file has the values
of the folder of the same name, in the type that its own name ends in; so a program must compute the
same logits from both. The exceptions are the types of blocks, which hold rounded values."""
import json
import pathlib
import sys

import gguf
import numpy

MODELS = pathlib.Path(__file__).resolve().parent.parent / "golden" / "models"
TYPES = gguf.GGMLQuantizationType
# The folder, the type of the matrices, and the architecture of the file.
FILES = [
    ("llama_f32", TYPES.F32, "llama"),
    ("llama_f16", TYPES.F16, "llama"),
    ("llama_bias", TYPES.BF16, "llama"),
    ("llama_wide_heads", TYPES.Q8_0, "llama"),
    ("qwen2_bias", TYPES.BF16, "qwen2"),
    ("qwen3_norm", TYPES.Q4_0, "qwen3"),
    ("qwen3_norm", TYPES.BF16, "qwen3"),
]
PAIRED = ("llama",)
NUMBERS = {"BF16": numpy.dtype("<u2"), "F16": numpy.dtype("<f2"), "F32": numpy.dtype("<f4")}


def read_tensors(folder):
    """name -> fp32 array, of all safetensors files of a folder."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        n = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + n]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + n + at for at in entry["data_offsets"])
            values = numpy.frombuffer(data[begin:end], NUMBERS[entry["dtype"]])
            if entry["dtype"] == "BF16":
                values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
            tensors[name] = values.astype(numpy.float32).reshape(entry["shape"])
    return tensors


def pair(values, n_heads):
    """Row i + s E / 2 of each head of E rows becomes row 2i + s."""
    shape = values.shape
    halves = values.reshape(n_heads, 2, shape[0] // n_heads // 2, *shape[1:])
    return halves.swapaxes(1, 2).reshape(shape)


def add_rope(writer, config):
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return
    writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
    writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for key, add in (("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
                         ("beta_slow", writer.add_rope_scaling_yarn_beta_slow)):
            if rope.get(key) is not None:
                add(rope[key])


def add_config(writer, config):
    n_heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // n_heads
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", n_heads))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config.get("head_dim"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(config["vocab_size"])
    add_rope(writer, config)


def add_tensors(writer, config, tensors, kind, arch):
    model_arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(model_arch, config["num_hidden_layers"])
    n_heads = config["num_attention_heads"]
    for name, values in sorted(tensors.items()):
        if arch in PAIRED and ".q_proj." in name:
            values = pair(values, n_heads)
        if arch in PAIRED and ".k_proj." in name:
            values = pair(values, config.get("num_key_value_heads", n_heads))
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        own_kind = kind if values.ndim == 2 else TYPES.F32
        writer.add_tensor(own, gguf.quants.quantize(values, own_kind), raw_dtype=own_kind)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for folder, kind, arch in FILES:
        config = json.loads((MODELS / folder / "config.json").read_text())
        writer = gguf.GGUFWriter(out / f"{folder}.{kind.name.lower()}.gguf", arch)
        writer.add_name(folder)
        add_config(writer, config)
        if config.get("bos_token_id") is not None:
            writer.add_bos_token_id(config["bos_token_id"])
        writer.add_eos_token_id(config["eos_token_id"])
        add_tensors(writer, config, read_tensors(MODELS / folder), kind, arch)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


if __name__ == "__main__":
    main()
