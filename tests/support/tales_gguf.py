"""Writes a model of the tales pair as a GGUF file, or as the files of a split one, with nothing but
Python's library.

    paths = write(folder_of_model, out, n_files=2)       # bf16; out/NAME-00001-of-00002.gguf, ...
    [path] = write(folder_of_model, out, is_q8=True)     # the matrices in Q8_0
"""
import json
import os
import struct

from safetensors_file import read_tensors

U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
FORMS = {U16: "<H", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
TYPE_F32, TYPE_Q8_0, TYPE_BF16 = 0, 8, 30
ALIGNMENT = 32
BLOCK = 32  # elements of Q8_0
NORMAL, CONTROL = 1, 3
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down"}
NAMES = {"model.embed_tokens.weight": "token_embd.weight",
         "model.norm.weight": "output_norm.weight"}


def _text(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    return _text(value) if kind == STRING else struct.pack(FORMS[kind], value)


def _key(name, kind, value):
    return _text(name) + struct.pack("<I", kind) + _value(kind, value)


def _array(name, kind, values):
    return (_text(name) + struct.pack("<IIQ", ARRAY, kind, len(values)) +
            b"".join(_value(kind, value) for value in values))


def _read(folder):
    """(config, {name: (shape, bf16 bytes)})"""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = read_tensors(os.path.join(folder, "model.safetensors"))
    return config, {name: (shape, data) for name, (_, shape, data) in tensors.items()}


def _file_name(name):
    if name in NAMES:
        return NAMES[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def _paired(shape, data, n_heads):
    """Row i + s E / 2 of each head of E rows becomes row 2i + s."""
    row_bytes, head = len(data) // shape[0], shape[0] // n_heads
    rows = [data[i * row_bytes:(i + 1) * row_bytes] for i in range(shape[0])]
    return b"".join(rows[first + i + s * head // 2] for first in range(0, shape[0], head)
                    for i in range(head // 2) for s in (0, 1))


def _floats(data):
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def _q8_blocks(data):
    values, blocks = _floats(data), []
    for first in range(0, len(values), BLOCK):
        block = values[first:first + BLOCK]
        scale = max(map(abs, block)) / 127
        integers = [round(value / scale) if scale else 0 for value in block]
        blocks.append(struct.pack("<e32b", scale, *integers))
    return b"".join(blocks)


def _tensors(config, tensors, is_q8):
    """(name, dims with the contiguous one first, type, data)"""
    heads = {"attn_q.": config["num_attention_heads"], "attn_k.": config["num_key_value_heads"]}
    for name, (shape, data) in sorted(tensors.items()):
        own = _file_name(name)
        for part, n_heads in heads.items():
            if part in own:
                data = _paired(shape, data, n_heads)
        if len(shape) == 1:
            yield own, shape, TYPE_F32, struct.pack(f"<{shape[0]}f", *_floats(data))
        elif is_q8:
            yield own, shape[::-1], TYPE_Q8_0, _q8_blocks(data)
        else:
            yield own, shape[::-1], TYPE_BF16, data


def _metadata(config, folder):
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    with open(os.path.join(folder, "chat_template.jinja"), encoding="utf-8") as file:
        template = file.read()
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge)
              for merge in tokenizer["model"]["merges"]]
    numbers = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
               "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
               "attention.head_count": "num_attention_heads",
               "attention.head_count_kv": "num_key_value_heads",
               "attention.key_length": "head_dim", "attention.value_length": "head_dim",
               "rope.dimension_count": "head_dim"}
    return [_key("general.architecture", STRING, "llama"),
            *(_key(f"llama.{key}", U32, config[name]) for key, name in numbers.items()),
            _key("llama.attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]),
            _key("llama.rope.freq_base", F32, config["rope_theta"]),
            _key("tokenizer.ggml.model", STRING, "gpt2"),
            _key("tokenizer.ggml.pre", STRING, "gpt-2"),
            _array("tokenizer.ggml.tokens", STRING, tokens),
            _array("tokenizer.ggml.token_type", I32,
                   [CONTROL if token in special else NORMAL for token in tokens]),
            _array("tokenizer.ggml.merges", STRING, merges),
            _key("tokenizer.ggml.eos_token_id", U32, config["eos_token_id"]),
            _key("tokenizer.ggml.add_bos_token", BOOL, False),
            _key("tokenizer.chat_template", STRING, template)]


def _padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


def _write_file(path, keys, tensors):
    table, data = b"", b""
    for name, dims, kind, values in tensors:
        table += _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += _padded(values)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    with open(path, "wb") as file:
        file.write(_padded(head + b"".join(keys) + table) + data)


def write(folder, out, name="tales", n_files=1, is_q8=False):
    """Returns the paths of the files."""
    config, stored = _read(folder)
    keys, tensors = _metadata(config, folder), list(_tensors(config, stored, is_q8))
    if n_files == 1:
        path = os.path.join(out, f"{name}.gguf")
        _write_file(path, keys, tensors)
        return [path]
    paths = []
    for i in range(n_files):
        path = os.path.join(out, f"{name}-{i + 1:05}-of-{n_files:05}.gguf")
        split = [_key("split.no", U16, i), _key("split.count", U16, n_files),
                 _key("split.tensors.count", I32, len(tensors))]
        _write_file(path, split + (keys if i == 0 else []), tensors[i::n_files])
        paths.append(path)
    return paths
