"""A model whose next token is a chosen function of the last one: the embedding is one-hot,
attention and FFN give zeros, and the head is a table. So the right text of every request is known.
Its tokenizer has the bytes as ids 0 to 255, and the tokens that a test adds."""
import json
import os
import struct

from safetensors_file import write_tensors

DIM, HEADS, HEAD_DIM, FFN = 304, 4, 16, 64
LOGIT = 30.0  # of the token that follows; all others have 0


def _bf16(value):
    return struct.pack("<f", value)[2:]


def _matrix(rows, columns, entries=()):
    """Zeros but for entries, (row, column, value)."""
    data = bytearray(2 * rows * columns)
    for row, column, value in entries:
        at = 2 * (row * columns + column)
        data[at:at + 2] = _bf16(value)
    return "BF16", [rows, columns], bytes(data)


def _ones(n):
    return "BF16", [n], _bf16(1.0) * n


def _tensors(follows, vocab):
    # The norm makes sqrt(DIM) of the one in an embedding's row.
    head = [(b, a, LOGIT / DIM ** 0.5) for a, b in follows.items()]
    layer = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": _matrix(vocab, DIM, [(i, i, 1.0) for i in range(vocab)]),
        "model.norm.weight": _ones(DIM),
        "lm_head.weight": _matrix(vocab, DIM, head),
        layer + "input_layernorm.weight": _ones(DIM),
        layer + "post_attention_layernorm.weight": _ones(DIM),
        layer + "self_attn.o_proj.weight": _matrix(DIM, HEADS * HEAD_DIM),
        layer + "mlp.gate_proj.weight": _matrix(FFN, DIM),
        layer + "mlp.up_proj.weight": _matrix(FFN, DIM),
        layer + "mlp.down_proj.weight": _matrix(DIM, FFN),
    }
    for name in "qkv":
        tensors[f"{layer}self_attn.{name}_proj.weight"] = _matrix(HEADS * HEAD_DIM, DIM)
    return tensors


def _byte_names():
    """The character that byte-level BPE writes for each byte, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, more = {byte: chr(byte) for byte in plain}, 256
    for byte in range(256):
        if byte not in names:
            names[byte] = chr(more)
            more += 1
    return names


def _tokenizer(vocab, added):
    words = {name: byte for byte, name in _byte_names().items()}
    words |= {f"<filler {i}>": i for i in range(256, vocab)}
    taken = {token["id"] for token in added}
    return {
        "version": "1.0",
        "added_tokens": [{"single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True, **token} for token in added],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {word: i for word, i in words.items() if i not in taken},
                  "merges": []},
    }


def write_chain_model(folder, chains, *, vocab=300, added=(), in_vocabulary=None, config=None,
                      files=None, post_processor=None):
    """Fills a new folder. chains: lists of ids, each of which follows the one before it. added:
    what added_tokens has, {"id": ..., "content": ...} at least. in_vocabulary: more tokens,
    {text: id}, that the vocabulary alone has. config: more keys of config.json. files: name to
    text, or to what becomes JSON."""
    os.makedirs(folder)
    follows = {a: b for chain in chains for a, b in zip(chain, chain[1:])}
    write_tensors(os.path.join(folder, "model.safetensors"), _tensors(follows, vocab))
    tokenizer = _tokenizer(vocab, added)
    tokenizer["post_processor"] = post_processor
    words = tokenizer["model"]["vocab"]
    for text, number in (in_vocabulary or {}).items():
        words = {word: i for word, i in words.items() if i != number}
        words[text] = number
    tokenizer["model"]["vocab"] = words
    settings = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": vocab, "hidden_size": DIM, "intermediate_size": FFN, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 512,
        "hidden_act": "silu", "tie_word_embeddings": False, **(config or {})}
    for name, value in {"tokenizer.json": tokenizer, "config.json": settings,
                        **(files or {})}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
    return folder
