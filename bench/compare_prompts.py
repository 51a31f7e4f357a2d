#!/usr/bin/env python3
"""Reading a prompt: Outrider against transformers' eager forward pass of the same shape, on one
device, in bf16, with random weights.

    bench/compare_prompts.py BUILD [--shape llama-3.1-8b] [--tokens 512,4096] [--repeats 7]
                             [--device cuda] [--json FILE]

Both write the KV cache of the whole prompt and compute the logits of its last token alone. Ours is
BUILD/bench/bench_prompt; it runs before torch is loaded and once more after torch has given the
device back, so that neither shares it with the other, and so that the two say how far times drift.
Torch's attention is scaled_dot_product_attention; its shape is LlamaForCausalLM of the same sizes.
Printed for each length: milliseconds of both as medians, and our time over torch's. Needs torch and
transformers.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import time

from bench_util import build_parser, numbers

# Layers, width, heads, KV heads, width of a head, of the MLP, vocabulary, positions, theta of rope
# and tied embeddings, as in model/checkpoint/synthetic_shapes.c.
SHAPES = {
    "llama-3.1-8b": (32, 4096, 32, 8, 128, 14336, 128256, 131072, 5e5, False),
    "llama-3.2-3b": (28, 3072, 24, 8, 128, 8192, 128256, 131072, 5e5, True),
    "llama-3.2-1b": (16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5, True),
    "tiny": (2, 128, 8, 4, 16, 256, 512, 512, 1e4, False),
}
OURS = re.compile(r"^(\d+) tokens of .*?: ([\d.]+) ms \(([\d.]+) to ([\d.]+)\)", re.M)


def ours(args):
    """{tokens: milliseconds}"""
    command = [os.path.join(args.build, "bench", "bench_prompt"), "--device", args.device,
               "--model", f"synthetic:{args.shape},seed=1", "--repeats", str(args.repeats),
               "--tokens", ",".join(map(str, args.tokens))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"bench/compare_prompts.py: {command[0]} ended with {done.returncode}")
    return {int(tokens): float(ms) for tokens, ms, _, _ in OURS.findall(done.stdout)}


def torch_model(args):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    (layers, width, heads, kv_heads, head, mlp, vocabulary, positions, theta,
     tied) = SHAPES[args.shape]
    config = LlamaConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
                         num_key_value_heads=kv_heads, head_dim=head, intermediate_size=mlp,
                         vocab_size=vocabulary, max_position_embeddings=positions,
                         tie_word_embeddings=tied, attn_implementation="sdpa")
    # Versions 5 and 4 of transformers take theta at different places.
    config.rope_theta = theta
    config.rope_parameters = {"rope_type": "default", "rope_theta": theta}
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(args.device), no_initialisation():
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    model.eval().requires_grad_(False)
    generator = torch.Generator(args.device).manual_seed(1)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.fill_(1)
        else:
            parameter.normal_(0, 0.02, generator=generator)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    return model


def no_initialisation():
    """transformers would fill all weights, which are drawn afterwards."""
    try:
        from transformers.initialization import no_init_weights  # 5
    except ImportError:
        from transformers.modeling_utils import no_init_weights  # 4
    return no_init_weights()


def torchs(args):
    """{tokens: milliseconds}"""
    import torch
    is_gpu = args.device != "cpu"
    wait = torch.cuda.synchronize if is_gpu else (lambda: None)
    model = torch_model(args)
    found = {}
    with torch.inference_mode():
        for n in args.tokens:
            ids = (torch.arange(n, device=args.device) * 2654435761 % model.config.vocab_size)[None]
            times = []
            for i in range(args.repeats + 2):  # the first two warm up
                wait()
                start = time.perf_counter()
                logits = model(ids, use_cache=True, logits_to_keep=1).logits
                wait()
                times.append(1e3 * (time.perf_counter() - start))
            assert logits.shape[1] == 1 and bool(torch.isfinite(logits).all())
            found[n] = statistics.median(times[2:])
    where = torch.cuda.get_device_name() if is_gpu else "the CPU"
    import transformers
    print(f"{args.shape} on {where}, torch {torch.__version__}, transformers "
          f"{transformers.__version__}", flush=True)
    del model, logits
    if is_gpu:
        torch.cuda.empty_cache()
    return found


def main():
    parser = build_parser(__doc__)
    parser.add_argument("--shape", default="llama-3.1-8b", choices=SHAPES)
    parser.add_argument("--tokens", type=lambda text: numbers(text, int), default=[512, 4096])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", help="write the figures there too")
    args = parser.parse_args()
    before = ours(args)
    theirs = torchs(args)
    after = ours(args)
    points = []
    for n in args.tokens:
        mine = (before[n] + after[n]) / 2
        points.append({"tokens": n, "ours_ms": mine, "torch_ms": theirs[n],
                       "ratio": mine / theirs[n]})
        print(f"{n} tokens: ours {mine:.2f} ms ({before[n]:.2f} and {after[n]:.2f}), torch "
              f"{theirs[n]:.2f} ms, ours over torch {mine / theirs[n]:.3f}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(points, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
