"""Small block drafters of the tales target that nobody has trained, like bigram_head.py's head.
Their one layer attends to near rows most: from a block to the last token, whose followers are
guessed, and to the context, which is noise that turns some guesses into others. Masks are zeros.
DFlash, in the layout of speculators, guesses the same for all places of its block, but for that
noise; DSpark, in a flat one, has a chain which adds the followers of the guess before.

    write_dflash(folder)
    write_dspark(folder)
"""
import array
import json
import os
import random

from bigram_head import (DIM, HEAD_DIM, HEADS, HIDDEN, SEED, VOCAB, follower_rows, followers, noise,
                         token_rows, unit)
from random_model import bf16
from safetensors_file import write_tensors

MASK = 4001  # no text has it
LAYERS = [2, 4, 5]  # whose outputs are read
TOWARDS = 2.2  # of q and k, which are the same everywhere
TO_CONTEXT = 0.6  # of the features' noise beside the tokens
BLOCK = {"dflash": 17, "dspark": 8}
BASE_SCALE = 0.25  # of DSpark's logits without its chain
LAYER = {"hidden_size": DIM, "intermediate_size": HIDDEN, "num_hidden_layers": 1,
         "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD_DIM,
         "hidden_act": "silu", "rms_norm_eps": 1e-05, "max_position_embeddings": 1024,
         "rope_theta": 10000.0, "attention_bias": True, "vocab_size": VOCAB, "model_type": "qwen3",
         "layer_types": ["full_attention"], "tie_word_embeddings": False}


def _layer(generator):
    ones, nothing, square = bf16([1.0] * DIM), bf16([0.0] * DIM), [DIM, DIM]
    tensors = {
        "input_layernorm.weight": ([DIM], ones),
        "self_attn.q_norm.weight": ([HEAD_DIM], bf16([TOWARDS] * HEAD_DIM)),
        "self_attn.k_norm.weight": ([HEAD_DIM], bf16([TOWARDS] * HEAD_DIM)),
        "self_attn.q_proj.weight": (square, bytes(2 * DIM * DIM)),
        "self_attn.q_proj.bias": ([DIM], ones),
        "self_attn.k_proj.weight": (square, bytes(2 * DIM * DIM)),
        "self_attn.k_proj.bias": ([DIM], ones),
        "self_attn.v_proj.weight": (square, unit(DIM)),
        "self_attn.v_proj.bias": ([DIM], nothing),
        "self_attn.o_proj.weight": (square, unit(DIM, 4.0)),
        "self_attn.o_proj.bias": ([DIM], nothing),
        "post_attention_layernorm.weight": ([DIM], ones),
        "mlp.gate_proj.weight": ([HIDDEN, DIM], noise(generator, HIDDEN * DIM, 0.05)),
        "mlp.up_proj.weight": ([HIDDEN, DIM], noise(generator, HIDDEN * DIM, 0.05)),
        "mlp.down_proj.weight": ([DIM, HIDDEN], noise(generator, HIDDEN * DIM, 0.05)),
    }
    return {"layers.0." + name: ("BF16", *tensor) for name, tensor in tensors.items()}


def _common(seed):
    generator = random.Random(seed)
    rows = token_rows()
    rows[MASK] = [0.0] * DIM
    return {
        **_layer(generator),
        "fc.weight": ("BF16", [DIM, 3 * DIM], noise(generator, 3 * DIM * DIM, 0.05)),
        "hidden_norm.weight": ("BF16", [DIM], bf16([TO_CONTEXT] * DIM)),
        "norm.weight": ("BF16", [DIM], bf16([1.0] * DIM)),
        "embed_tokens.weight": ("BF16", [VOCAB, DIM], bf16([x for row in rows for x in row])),
    }


def _write(folder, tensors, config):
    os.makedirs(folder)
    write_tensors(os.path.join(folder, "model.safetensors"), tensors)
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump(config, file, indent=1)
    return folder


def write_dflash(folder, seed=SEED):
    """Fills a new folder and returns it."""
    ids = sorted({id for after in followers().values() for id in after})
    tensors = {**_common(seed),
               "lm_head.weight": ("BF16", [len(ids), DIM], bf16(follower_rows(ids))),
               "d2t": ("I64", [len(ids)],
                       array.array("q", [id - i for i, id in enumerate(ids)]).tobytes())}
    return _write(folder, tensors, {
        "architectures": ["DFlashSpeculator"], "speculators_model_type": "dflash",
        "aux_hidden_state_layer_ids": [id + 1 for id in LAYERS], "block_size": BLOCK["dflash"],
        "draft_vocab_size": len(ids), "mask_token_id": MASK, "sample_from_anchor": False,
        "sliding_window_non_causal": False, "transformer_layer_config": LAYER,
        "speculators_config": {"algorithm": "dflash", "verifier": {
            "architectures": ["LlamaForCausalLM"], "name_or_path": "tales"}}})


def write_dspark(folder, seed=SEED):
    """Fills a new folder and returns it."""
    first = [16 * x for row in token_rows() for x in row]
    second = follower_rows(range(VOCAB))
    tensors = {**_common(seed),
               "lm_head.weight": ("BF16", [VOCAB, DIM], bf16([BASE_SCALE * x for x in second])),
               "markov_head.markov_w1.weight": ("BF16", [VOCAB, DIM], bf16(first)),
               "markov_head.markov_w2.weight": ("BF16", [VOCAB, DIM], bf16(second))}
    return _write(folder, tensors, {
        **LAYER, "architectures": ["Qwen3DSparkModel"], "block_size": BLOCK["dspark"],
        "enable_confidence_head": False, "markov_head_type": "vanilla", "markov_rank": DIM,
        "mask_token_id": MASK, "target_layer_ids": LAYERS})
