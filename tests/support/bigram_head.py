"""A small EAGLE-3 head of the tales target that nobody has trained: it guesses the token that came
most often after the last one in the plain texts of tests/golden/texts. Its one layer attends to the
row itself most and to rows before a little, and adds features of the target: both turn some of its
guesses into others. Its lm_head has the tokens of these texts alone. So some guesses stay, most do
not, and wrong features or rows change some.

    write_bigram_head(folder)
    python3 tests/support/bigram_head.py FOLDER
"""
import array
import collections
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from generations import TARGET
from plain_texts import KINDS, PATH
from random_model import bf16
from safetensors_file import read_tensors, write_tensors

SEED = 9
DIM, HEADS, HEAD_DIM, HIDDEN, VOCAB = 256, 8, 32, 64, 4096
BOUNDARIES = [2, 4, 5]
CONFIG = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": DIM,
          "intermediate_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": HEADS,
          "num_key_value_heads": HEADS, "head_dim": HEAD_DIM, "hidden_act": "silu",
          "rms_norm_eps": 1e-05, "max_position_embeddings": 1024, "rope_theta": 10000.0,
          "attention_bias": True, "tie_word_embeddings": False, "vocab_size": VOCAB,
          "norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": BOUNDARIES}
TOWARDS = 3.0      # of q and k, which are the same everywhere: near rows count most
LAYER_SCALE = 4.0  # of the last token beside the features
LOGIT_SCALE = 1.2


def token_rows():
    """The target's rows, each of length 1, without what they have in common."""
    _, (n, dim), data = read_tensors(os.path.join(TARGET, "model.safetensors"))[
        "model.embed_tokens.weight"]
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[0::2], data[1::2]
    values = array.array("f", bytes(wide))
    rows = []
    for i in range(n):
        row = values[i * dim:(i + 1) * dim]
        length = sum(x * x for x in row) ** 0.5 or 1.0
        rows.append([x / length for x in row])
    mean = [sum(column) / n for column in zip(*rows)]
    return [[x - m for x, m in zip(row, mean)] for row in rows]


def followers():
    """{token: {the token after it: share}} of the plain texts."""
    with open(PATH, encoding="ascii") as file:
        texts = json.load(file)["texts"]
    counts = collections.defaultdict(collections.Counter)
    for name, kind in KINDS.items():
        if kind.model == "tales":
            for ids in texts[name]:
                for token, after in zip(ids, ids[1:]):
                    counts[token][after] += 1
    return {token: {after: n / sum(c.values()) for after, n in c.items()}
            for token, c in counts.items()}


def follower_rows(ids, scale=LOGIT_SCALE):
    """Row b of lm_head: the rows of the tokens that b came after, one row after the other."""
    embedding, rows = token_rows(), {id: [0.0] * DIM for id in ids}
    for token, after in followers().items():
        for id, share in after.items():
            row = rows[id]
            for i, x in enumerate(embedding[token]):
                row[i] += scale * share * x
    return [x for id in ids for x in rows[id]]


def noise(generator, n, deviation):
    return bf16([generator.gauss(0.0, deviation) for _ in range(n)])


def unit(columns, scale=1.0):
    """[DIM][columns]: the first elements as they are, times scale."""
    return bf16([scale * (i == j) for i in range(DIM) for j in range(columns)])


def write_bigram_head(folder, seed=SEED, **config):
    """Fills a new folder and returns it. config: keys of config.json that differ."""
    generator = random.Random(seed)
    ids = sorted({id for after in followers().values() for id in after})
    n, layer = len(ids), "midlayer."
    ones, nothing = bf16([1.0] * DIM), bf16([0.0] * DIM)
    towards = ("BF16", [DIM], bf16([TOWARDS] * DIM))
    tensors = {
        "fc.weight": ("BF16", [DIM, 3 * DIM], noise(generator, 3 * DIM * DIM, 0.05)),
        layer + "input_layernorm.weight": ("BF16", [DIM], ones),
        layer + "hidden_norm.weight": ("BF16", [DIM], ones),
        layer + "self_attn.q_proj.weight": ("BF16", [DIM, 2 * DIM], bytes(4 * DIM * DIM)),
        layer + "self_attn.q_proj.bias": towards,
        layer + "self_attn.k_proj.weight": ("BF16", [DIM, 2 * DIM], bytes(4 * DIM * DIM)),
        layer + "self_attn.k_proj.bias": towards,
        layer + "self_attn.v_proj.weight": ("BF16", [DIM, 2 * DIM], unit(2 * DIM)),
        layer + "self_attn.v_proj.bias": ("BF16", [DIM], nothing),
        layer + "self_attn.o_proj.weight": ("BF16", [DIM, DIM], unit(DIM, LAYER_SCALE)),
        layer + "self_attn.o_proj.bias": ("BF16", [DIM], nothing),
        layer + "post_attention_layernorm.weight": ("BF16", [DIM], ones),
        layer + "mlp.gate_proj.weight": ("BF16", [HIDDEN, DIM],
                                         noise(generator, HIDDEN * DIM, 0.05)),
        layer + "mlp.up_proj.weight": ("BF16", [HIDDEN, DIM],
                                       noise(generator, HIDDEN * DIM, 0.05)),
        layer + "mlp.down_proj.weight": ("BF16", [DIM, HIDDEN],
                                         noise(generator, HIDDEN * DIM, 0.05)),
        "norm.weight": ("BF16", [DIM], ones),
        "lm_head.weight": ("BF16", [n, DIM], bf16(follower_rows(ids))),
        "d2t": ("I64", [n], array.array("q", [id - i for i, id in enumerate(ids)]).tobytes()),
    }
    os.makedirs(folder)
    write_tensors(os.path.join(folder, "model.safetensors"), tensors)
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump({**CONFIG, "draft_vocab_size": n, **config}, file, indent=1)
    return folder


if __name__ == "__main__":
    write_bigram_head(sys.argv[1])
