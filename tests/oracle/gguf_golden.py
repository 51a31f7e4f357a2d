#!/usr/bin/env python3
"""Makes tests/golden/gguf: the models of tests/golden/models as GGUF files.

    python tests/oracle/gguf_golden.py OUT      needs gguf, numpy

gguf-py writes the files and says what their tensors are called. The rows of q and k of models whose
programs rotate neighbours are put in the order of llama.cpp's converter. Each file has the values
of the folder of the same name, in the type that its own name ends in; so a program must compute the
same logits from both. Types of blocks, which hold rounded values, and CHANGES are exceptions."""
import json
import math
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
    ("mistral_slides", TYPES.BF16, "llama"),
    ("mistral", TYPES.BF16, "mistral3"),
    ("ministral3_tuned", TYPES.BF16, "mistral3"),
    ("qwen2_bias", TYPES.BF16, "qwen2"),
    ("qwen3_norm", TYPES.BF16, "qwen3"),
    ("qwen3_norm", TYPES.Q4_0, "qwen3"),
    ("gemma2_softcap", TYPES.BF16, "gemma2"),
    ("gemma3_two_ropes", TYPES.BF16, "gemma3"),
    ("phi3_long_factors", TYPES.BF16, "phi3"),
    ("phi3_partial", TYPES.BF16, "phi3"),
    ("olmo2_norms", TYPES.BF16, "olmo2"),
    ("olmo3_yarn", TYPES.BF16, "olmo2"),
    ("granite_bias", TYPES.BF16, "granite"),
    ("granite_factors", TYPES.BF16, "granite"),
    ("smollm3_nope", TYPES.BF16, "smollm3"),
]
# Fields that a file cannot have, because all models of the architecture have one value: then the
# file is of a model with this value, and FOLDER.TYPE.json is its config.json.
CHANGES = {
    "gemma2_softcap": {"query_pre_attn_scalar": 16},
    "mistral": {"sliding_window": None},
    "smollm3_nope": {"no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1]},
    "llama_rope_llama3": {"rope_parameters": {
        "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0, "rope_type": "llama3"}},
}
FILES.append(("llama_rope_llama3", TYPES.BF16, "llama"))
PAIRED = ("llama", "mistral3", "granite", "smollm3")
WHOLE_NORMS = ("gemma2", "gemma3")
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


def llama3_divisors(rope, head_dim):
    """As llama.cpp's converter computes them."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    divisors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / head_dim)
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return divisors


def add_rope(writer, config, head_dim):
    ropes = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = ropes.get("full_attention", ropes)
    writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    if "sliding_attention" in ropes:
        writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    writer.add_rope_dimension_count(int(part * head_dim))
    if "original_max_position_embeddings" in config:
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return
    if kind == "llama3":
        divisors = llama3_divisors(rope, head_dim)
        writer.add_tensor("rope_freqs.weight", numpy.array(divisors, numpy.float32))
        return
    writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
    if kind == "longrope":
        for word in ("long", "short"):
            factors = numpy.array(rope[f"{word}_factor"], numpy.float32)
            writer.add_tensor(f"rope_factors_{word}.weight", factors)
        scale = config["max_position_embeddings"] / config["original_max_position_embeddings"]
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(config["original_max_position_embeddings"])))
        return
    writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for key, add in (("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
                         ("beta_slow", writer.add_rope_scaling_yarn_beta_slow),
                         ("mscale_all_dim", writer.add_rope_scaling_yarn_log_mul),
                         ("llama_4_scaling_beta", writer.add_attn_temperature_scale)):
            if rope.get(key) is not None:
                add(rope[key])


def add_windows(writer, config, arch):
    window = config.get("sliding_window")
    if arch == "phi3":
        writer.add_sliding_window(window or 0)
    elif window is not None:
        writer.add_sliding_window(window)
    if arch in ("gemma3", "olmo2") and window is not None:
        types = config["layer_types"]
        writer.add_sliding_window_pattern([name == "sliding_attention" for name in types])


def add_factors(writer, config):
    for key, add in (("attention_multiplier", writer.add_attention_scale),
                     ("embedding_multiplier", writer.add_embedding_scale),
                     ("residual_multiplier", writer.add_residual_scale),
                     ("logits_scaling", writer.add_logit_scale),
                     ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
                     ("final_logit_softcapping", writer.add_final_logit_softcapping)):
        if config.get(key):
            add(config[key])


def add_config(writer, config, arch):
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
    writer.add_vocab_size(config["vocab_size"])
    add_rope(writer, config, head_dim)
    add_windows(writer, config, arch)
    add_factors(writer, config)


def add_tensors(writer, config, tensors, kind, arch):
    model_arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(model_arch, config["num_hidden_layers"])
    n_heads = config["num_attention_heads"]
    for name, values in sorted(tensors.items()):
        if arch in PAIRED and ".q_proj." in name:
            values = pair(values, n_heads)
        if arch in PAIRED and ".k_proj." in name:
            values = pair(values, config.get("num_key_value_heads", n_heads))
        if arch in WHOLE_NORMS and name.endswith("norm.weight"):
            values = values + 1
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        own_kind = kind if values.ndim == 2 else TYPES.F32
        writer.add_tensor(own, gguf.quants.quantize(values, own_kind), raw_dtype=own_kind)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for folder, kind, arch in FILES:
        config = json.loads((MODELS / folder / "config.json").read_text())
        name = f"{folder}.{kind.name.lower()}"
        if folder in CHANGES:
            config.update(CHANGES[folder])
            (out / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")
        writer = gguf.GGUFWriter(out / f"{name}.gguf", arch)
        writer.add_name(folder)
        add_config(writer, config, arch)
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
