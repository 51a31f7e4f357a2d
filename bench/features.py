#!/usr/bin/env python3
"""Measures what the target's features cost in a round, with and without a head's fc at the workers.

    bench/features.py BUILD [--ranks 2] [--width 4096] [--guesses 4] [--transport tcp]
                      [--turns 20] [--rounds 50]

Starts ranks of one compute thread of a synthetic target of this width, which has little else to
compute, with --head on a random EAGLE-3 head of the same width, and runs bench_features over them;
its first lines say what the figures are.
"""
import json
import os
import subprocess
import tempfile

import bench_util
from bench_util import SOURCE
from cluster import Cluster, wait_until
from safetensors_file import write_tensors

LAYERS, VOCAB, FFN, HEADS, HEAD_DIM, FEATURES = 2, 4096, 512, 8, 64, 3


class Workers(Cluster):
    """Ranks without a coordinator."""

    def start(self, timeout=120):
        self.start_workers()
        wait_until(lambda: self.workers.log().count(" ready rank=") == self.n_ranks, timeout,
                   "all ranks serve")


def config(width, architecture, layers, **more):
    return {"architectures": [architecture], "model_type": "llama", "hidden_size": width,
            "intermediate_size": FFN, "num_hidden_layers": layers, "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB,
            "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "hidden_act": "silu", "tie_word_embeddings": False, **more}


def small_numbers(n):
    """n random bf16 between 1/128 and 1/32, of either sign."""
    high = os.urandom(n).translate(bytes(0xbc if i % 2 else 0x3c for i in range(256)))
    numbers = bytearray(2 * n)
    numbers[0::2] = os.urandom(n)
    numbers[1::2] = high
    return bytes(numbers)


def write_head(folder, width):
    attention = HEADS * HEAD_DIM
    layer = "midlayer."
    shapes = {"fc.weight": [width, FEATURES * width], "norm.weight": [width],
              layer + "hidden_norm.weight": [width], layer + "input_layernorm.weight": [width],
              layer + "post_attention_layernorm.weight": [width],
              layer + "self_attn.q_proj.weight": [attention, 2 * width],
              layer + "self_attn.k_proj.weight": [attention, 2 * width],
              layer + "self_attn.v_proj.weight": [attention, 2 * width],
              layer + "self_attn.o_proj.weight": [width, attention],
              layer + "mlp.gate_proj.weight": [FFN, width],
              layer + "mlp.up_proj.weight": [FFN, width],
              layer + "mlp.down_proj.weight": [width, FFN]}
    tensors = {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[name] = "BF16", shape, small_numbers(count)
    write_tensors(os.path.join(folder, "model.safetensors"), tensors)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config(width, "LlamaForCausalLMEagle3", 1, draft_vocab_size=VOCAB,
                         target_hidden_size=width), file)


def main():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--guesses", type=int, default=4)
    parser.add_argument("--transport", choices=("tcp", "unix"), default="tcp")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "target.json")
        with open(model, "w", encoding="utf-8") as file:
            json.dump(config(args.width, "LlamaForCausalLM", LAYERS), file)
        write_head(folder, args.width)
        flags = ["--threads", "1", "--head", folder]
        with Workers(build, args.ranks, transport=args.transport, draft=None,
                     target=f"synthetic:{model},seed=1", worker_flags=flags) as cluster:
            subprocess.run([os.path.join(build, "bench", "bench_features"), "--target",
                            ",".join(cluster.worker_addresses), "--guesses", str(args.guesses),
                            "--turns", str(args.turns), "--rounds", str(args.rounds)],
                           check=True, cwd=SOURCE)


if __name__ == "__main__":
    main()
