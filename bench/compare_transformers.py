#!/usr/bin/env python3
"""Outrider against Hugging Face transformers: the same weights, bf16, one sequence, in one call.

    bench/compare_transformers.py BUILD [--target MODEL --draft MODEL] [--device cuda] [--k 4]
                                  [--tokens 200] [--context 32] [--rounds 10] [--no-compile]

Needs torch, transformers and safetensors. Both models are exported to a temporary folder, which
takes at most twice the target's size on disk. The arms take turns, `rounds` times, each with one
text, greedily:
  outrider plain, outrider with K guesses: BUILD/bench/bench_pair, without the wire
  eager, compiled (static cache, reduce-overhead), assisted: transformers' generate
Printed: tokens per second of each arm (median, quartiles) and the ratios of the medians.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM

from bench_util import build_parser, quartiles

TARGET = "synthetic:llama-3.1-8b,seed=1,agree=0.8"


class Outrider:
    """Runs of bench_pair with two texts of each arm; loading the models is not counted."""

    def __init__(self, args):
        self.command = [os.path.join(args.build, "bench", "bench_pair"), "--target", args.target,
                        "--draft", args.draft, "--device", args.device, "--k", str(args.k),
                        "--tokens", str(args.tokens), "--context", str(args.context),
                        "--temperature", "0", "--pairs", "2"]

    def rates(self):
        """Tokens per second: plain, speculative."""
        output = subprocess.run(self.command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for line in output.splitlines():
            fields = line.split()
            if fields and fields[0].isdigit():
                return float(fields[2]), float(fields[1])
        raise RuntimeError(f"bench_pair printed no figures: {output}")


class Transformers:
    def __init__(self, args, folders):
        self.args = args
        load = {"dtype": torch.bfloat16, "attn_implementation": "sdpa"}
        self.target = AutoModelForCausalLM.from_pretrained(folders[0], **load).to(args.device)
        self.draft = AutoModelForCausalLM.from_pretrained(folders[1], **load).to(args.device)
        self.target.eval()
        self.draft.eval()
        self.draft.generation_config.num_assistant_tokens = args.k
        self.draft.generation_config.num_assistant_tokens_schedule = "constant"
        self.draft.generation_config.assistant_confidence_threshold = 0.0

    def rate(self, seed, **options):
        args = self.args
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, self.target.config.vocab_size, (1, args.context),
                            generator=generator)
        ids = ids.to(args.device)
        if args.device != "cpu":
            torch.cuda.synchronize()
        start = time.monotonic()
        with torch.no_grad():
            out = self.target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                       max_new_tokens=args.tokens, min_new_tokens=args.tokens,
                                       pad_token_id=0, **options)
        if args.device != "cpu":
            torch.cuda.synchronize()
        return (out.shape[1] - args.context) / (time.monotonic() - start)

    def arms(self):
        arms = {"transformers eager": lambda seed: self.rate(seed),
                "transformers assisted": lambda seed: self.rate(seed, assistant_model=self.draft)}
        if not self.args.no_compile:
            arms["transformers compiled"] = lambda seed: self.rate(
                seed, cache_implementation="static")
        return arms


def export(args, folder):
    folders = []
    for name in (args.target, args.draft):
        if os.path.isdir(name):
            folders.append(name)
            continue
        folders.append(os.path.join(folder, str(len(folders))))
        subprocess.run([os.path.join(args.build, "bench", "bench_export"), name, folders[-1]],
                       check=True)
    return folders


def measure(args, folders):
    outrider, others = Outrider(args), Transformers(args, folders).arms()
    rates = {name: [] for name in ["outrider plain", "outrider speculative", *others]}
    for arm in others.values():
        arm(0)  # compiles, allocates
    for i in range(args.rounds):
        plain, fast = outrider.rates()
        rates["outrider plain"].append(plain)
        rates["outrider speculative"].append(fast)
        for name, arm in others.items():
            rates[name].append(arm(i + 1))
    return rates


def show(args, rates):
    device = torch.cuda.get_device_name() if args.device != "cpu" else "CPU"
    print(f"{args.target} with {args.draft}, K = {args.k}, {args.tokens} tokens, {device}, torch "
          f"{torch.__version__}, transformers {__import__('transformers').__version__}")
    medians = {}
    for name, values in rates.items():
        low, medians[name], high = quartiles(values)
        print(f"  {name:<24} {medians[name]:9.1f} tokens/s ({low:.1f} to {high:.1f})")
    plain, fast = medians["outrider plain"], medians["outrider speculative"]
    for name in medians:
        if name.startswith("transformers"):
            print(f"  outrider plain over {name:<24} {plain / medians[name]:6.2f}   "
                  f"speculative {fast / medians[name]:6.2f}")


def main():
    parser = build_parser(__doc__)
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--draft", help="default: the target's core, draft=1")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    args.draft = args.draft or args.target + ",draft=1"
    folder = tempfile.mkdtemp(prefix="outrider-")
    try:
        show(args, measure(args, export(args, folder)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
