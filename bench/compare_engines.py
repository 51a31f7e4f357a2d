#!/usr/bin/env python3
r"""Decoding, or reading a prompt, beside another engine on the same weights, in turn.

    bench/compare_engines.py BUILD --target FOLDER [--draft FOLDER] [-K N] [--ranks 1]
                             [--threads 2] [--draft-threads 1]
                             [--weights bf16] [--kernels auto] [--tokens 64 | --prompt-tokens N]
                             [--pairs 20] --other NAME::PATTERN::COMMAND [--other ...]

The other engine is a command that decodes about as many tokens with as many threads and prints its
tokens per second, which the first group of PATTERN (a regular expression) must match. It is started
anew for every pair, while our cluster (workers, coordinator, client of BUILD; greedy, end of
sequence ignored) is idle. The time that it needs to load is not counted, and neither is our
prompt's. The first run of each warms up and is dropped. Printed: both rates and our rate over
theirs, as medians with quartiles of the pairs.

With --prompt-tokens our rate is N over the time from the admission of a request with a new prompt
of N random ids to its first token, and the other engine must print the rate of such a prompt:

    --prompt-tokens 256 --other 'llama.cpp::pp256 \|\s*([0-9.]+)::llama-bench -m M -p 256 -n 0 -t 2'
"""
import random
import re
import shlex
import subprocess

import engines
from bench_util import (PROMPTS, build_parser, decode_rate, generate, generate_prompt,
                        quartiles_text)

IDS = 200  # a prompt's are below it, so that every vocabulary has them


def parse():
    parser = build_parser(__doc__)
    engines.add_options(parser)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--other", action="append", required=True, metavar="NAME::PATTERN::COMMAND")
    return parser.parse_args()


def other_rate(pattern, command):
    done = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=600, check=False)
    text = done.stdout.decode("utf-8", "replace")
    found = re.search(pattern, text)
    if done.returncode or not found:
        raise SystemExit(f"{command}: status {done.returncode}, no {pattern} in\n{text[-2000:]}")
    return float(found.group(1))


def answer_of(cluster, pair, args):
    if not args.prompt_tokens:
        return generate_prompt(cluster, PROMPTS[pair % len(PROMPTS)], args.k, 0, args.tokens, 1)
    ids = random.Random(pair).choices(range(1, IDS), k=args.prompt_tokens)
    return generate(cluster, "--prompt-ids", ",".join(map(str, ids)), "-n", "1", "-K", "0",
                    "--temperature", "0", "--rule", "greedy", "--ignore-eos")


def our_rate(answer, args):
    if not args.prompt_tokens:
        return decode_rate(answer)
    return args.prompt_tokens * 1e6 / answer["counters"]["prompt_us"]


def main():
    args = parse()
    others = [other.split("::", 2) for other in args.other]
    with engines.cluster_of(args) as cluster:
        ours, theirs = [], {name: [] for name, _, _ in others}
        answer = None
        for pair in range(args.pairs + 1):
            for name, pattern, command in engines.in_turn([(None, None, None), *others], pair):
                if name:
                    theirs[name].append(other_rate(pattern, command))
                else:
                    answer = answer_of(cluster, pair, args)
                    ours.append(our_rate(answer, args))
        c = answer["counters"]
        what = f"prompts of {args.prompt_tokens}" if args.prompt_tokens else f"K {args.k}"
        print(f"{args.target}, {what}, {args.ranks} ranks x {args.threads} threads, "
              f"{answer['arithmetic']}, kernels {args.kernels}; last request: alpha "
              f"{answer['alpha'] or 0:.2f}, {c['drafted']} drafted, {c['accepted']} accepted")
        print(f"ours  tokens/s {quartiles_text(ours[1:])}")
        for name, rates in theirs.items():
            print(f"{name}  tokens/s {quartiles_text(rates[1:])}, ours over it "
                  f"{engines.ratios_text(ours[1:], rates[1:])}")


if __name__ == "__main__":
    main()
