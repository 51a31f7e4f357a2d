#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=2400
"""Text with speculation is the text without it, token for token: greedy and `coupled`, for every K,
every strategy that chooses K, every number of ranks, a good draft and one with random weights,
truncated distributions, whole rows, and texts that end in every way.

Everything is compared with one rank that decodes plainly (K = 0).
Usage: test_exact_text.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from generations import DRAFT, GenerationCluster, Report, golden_prompts, order
from random_model import write_random_model

RANKS = (1, 2, 4)
ALL_K = range(9)
# Four ranks on two cores take most of the time. What they may get wrong, two ranks would too, but
# for sums of four parts, which every K has. Their texts are shorter for the same reason; they are
# compared with the beginnings of the longer ones.
GREEDY_K = {1: ALL_K, 2: ALL_K, 4: (0, 1, 3, 8)}
COUPLED_K = {1: {0.7: (0, 2, 5, 8), 1.0: ALL_K}, 2: {0.7: (5,), 1.0: (0, 2, 5, 8)},
             4: {0.7: (5,), 1.0: (0, 5)}}  # by temperature
RANDOM_GREEDY_K = {1: (1, 4, 8), 2: (3,), 4: (3,)}
RANDOM_COUPLED_K = {1: {0.7: (3, 8), 1.0: (1, 3, 5, 8)}, 2: {1.0: (3, 8)}, 4: {0.7: (3,)}}
SEEDS = (11, 12)
TEXT_TOKENS = {1: 150, 2: 100, 4: 60}
CONTEXT = 1024          # of the tales models
CONTEXT_K = {1: (0, 3, 8), 2: (3, 8), 4: (8,)}
CUT_TOKENS = 48
RANDOM_SEED = 7
CERTAIN_MARGIN = 0.1    # a lead of the reference's best token that bf16 cannot turn


def figures(done):
    """Acceptance and tokens per round over some generations."""
    tested = sum(one["accepted"] + one["rejections"] for one in done)
    rounds = sum(one["rounds"] for one in done)
    tokens = sum(one["completion_tokens"] for one in done)
    alpha = sum(one["accepted"] for one in done) / tested if tested else 0.0
    return f"alpha {alpha:.3f}, {tokens / rounds:.2f} tokens per round"


class Comparison:
    """Plain texts of one rank by what was asked, and all others against them."""

    def __init__(self, report, prompts):
        self.report = report
        self.prompts = prompts
        self.plain = {}

    def run(self, cluster, name, k, seeds=(0,), prompts=None, **fields):
        """Generates from the prompts with these seeds and K; returns the generations."""
        prompts = self.prompts if prompts is None else prompts
        done = cluster.generate([order(ids, seed=seed, n_draft=k, **fields)
                                 for seed in seeds for ids in prompts])
        plain = self.plain.get(name)
        if plain is None:
            plain = self.plain[name] = [one["ids"] for one in done]
        n_other = sum(one["ids"] != text[:fields["max_tokens"]] for one, text in zip(done, plain))
        rows = ", whole rows" if fields.get("full_rows") else ""
        strategy = fields.get("strategy", "fixed")
        guessed = all((one["drafted"] > 0) == (k > 0 and len(one["ids"]) > 1) or
                      strategy == "planned" for one in done)
        guessed &= all(one["strategy"] == strategy for one in done)
        way = "" if strategy == "fixed" else f"{strategy} {fields.get('threshold', '')} "
        self.report.check(n_other == 0 and guessed and len(done) == len(plain),
                          f"T = {cluster.n_ranks}, {cluster.draft_name}, {name}{rows}, "
                          f"{way}K = {k}: "
                          f"{figures(done)}" +
                          (f"; {n_other} of {len(done)} texts differ" if n_other else ""))
        return done


def greedy(cases, cluster, ks):
    for k in ks:
        cases.run(cluster, "greedy", k, max_tokens=TEXT_TOKENS[cluster.n_ranks], temperature=0,
                  ignore_eos=1)


def to_the_end(cases, cluster):
    """Long texts, past every partition of attention, until the context is full; the last rounds
    have room for less than K guesses."""
    for k in CONTEXT_K[cluster.n_ranks]:
        done = cases.run(cluster, "greedy, until the context is full", k, prompts=cases.prompts[:1],
                         max_tokens=CONTEXT, temperature=0, ignore_eos=1)
        if len(cases.prompts[0]) + len(done[0]["ids"]) != CONTEXT or done[0]["finish"] != "length":
            cases.report.check(False, f"K = {k}: the text ends with {done[0]['finish']} after "
                               f"{len(done[0]['ids'])} tokens, not with the context")


def coupled(cases, cluster, ks):
    for temperature in ks:
        for k in ks[temperature]:
            cases.run(cluster, f"coupled at {temperature}", k, seeds=SEEDS,
                      max_tokens=TEXT_TOKENS[cluster.n_ranks], temperature=temperature,
                      rule="coupled", ignore_eos=1)


WAYS = ({"strategy": "planned"}, {"strategy": "threshold"}, {"strategy": "heuristic"},
        {"strategy": "threshold", "threshold": 0.8})


def strategies(cases, cluster):
    """K that comes from timings, from what was accepted before, from the draft's probabilities."""
    n_tokens = TEXT_TOKENS[cluster.n_ranks]
    for way in WAYS if cluster.n_ranks == 1 else WAYS[:2]:
        for k in (3, 16) if cluster.n_ranks == 1 else (16,):
            cases.run(cluster, "greedy", k, max_tokens=n_tokens, temperature=0, ignore_eos=1, **way)
        cases.run(cluster, "coupled at 1.0", 16, seeds=SEEDS, max_tokens=n_tokens, temperature=1.0,
                  rule="coupled", ignore_eos=1, **way)


def cuts(cases, cluster):
    ks = (0, 3, 8) if cluster.n_ranks < 4 else (3,)
    for name, cut in (("top_k 20", {"top_k": 20}), ("top_p 0.9", {"top_p": 0.9}),
                      ("top_k 20, top_p 0.9", {"top_k": 20, "top_p": 0.9}), ("no cut", {})):
        for k in ks:
            for full_rows in (0, 1):
                cases.run(cluster, f"coupled, {name}", k, seeds=SEEDS[:1],
                          full_rows=full_rows, max_tokens=CUT_TOKENS, temperature=1,
                          rule="coupled", ignore_eos=1, **cut)


def short(cases, cluster):
    """K is more than the number of tokens that are left."""
    for n_tokens in (1, 2, 3, 6):
        for k in (1, 4, 8, 16):
            done = cases.run(cluster, "greedy", k, max_tokens=n_tokens, temperature=0, ignore_eos=1)
            if any(len(one["ids"]) != n_tokens or one["finish"] != "length" for one in done):
                cases.report.check(False, f"{n_tokens} tokens, K = {k}: another length or reason "
                                   "to end")


def find_ends(cases, cluster):
    """Stories that end, cut 10 tokens before their end: [(seed, prompt, rest)]. The coupled noise
    belongs to (seed, position, token), so they end again in the same way."""
    ends = []
    for seed in range(1, 12):
        done = cluster.generate([order(ids, seed=seed, n_draft=4, max_tokens=400, temperature=1,
                                       rule="coupled") for ids in cases.prompts])
        for ids, one in zip(cases.prompts, done):
            if one["finish"] == "stop":
                story = ids + one["ids"]
                ends.append((seed, story[:-10], story[-10:]))
        if len(ends) >= 6:
            break
    cases.report.check(len(ends) >= 2, f"{len(ends)} stories that end")
    return ends


def ends_of_sequence(cases, cluster, ends):
    """The end of sequence among the guesses: the text ends there, or with ignore_eos goes on."""
    n_inside = 0
    for seed, prompt, rest in ends:
        orders = [order(prompt, seed=seed, n_draft=k, max_tokens=30, temperature=1,
                        rule="coupled", ignore_eos=ignore)
                  for ignore in (0, 1) for k in ALL_K]
        done = cluster.generate(orders)
        stopping, going_on = done[:len(ALL_K)], done[len(ALL_K):]
        right = all(one["ids"] == rest and one["finish"] == "stop" for one in stopping)
        right &= all(one["ids"] == going_on[0]["ids"] and len(one["ids"]) == 30 and
                     one["ids"][:len(rest)] == rest for one in going_on)
        # Accepted as a guess: the token after it is discarded.
        n_inside += sum(one["accepted"] + one["rounds"] > len(one["ids"]) for one in stopping)
        cases.report.check(right, f"T = {cluster.n_ranks}, {cluster.draft_name}, seed {seed}: the "
                           f"end of sequence after {len(prompt) + len(rest)} tokens, K = 0 to 8")
    if cluster.draft == DRAFT:
        cases.report.check(n_inside > 0, f"{n_inside} of these ends were guesses in a round")


def check_reference(cases):
    """Plain greedy text against another implementation, up to its first near tie."""
    n_same = 0
    for golden, ids in zip(golden_prompts(), cases.plain["greedy"]):
        wanted = golden["greedy_ids"]
        sure = next((i for i, margin in enumerate(golden["greedy_margins"])
                     if margin < CERTAIN_MARGIN), len(wanted))
        n_same += sure
        cases.report.check(ids[:sure] == wanted[:sure],
                           f"{sure} tokens as the reference after {golden['text']!r}")
    cases.report.check(n_same > 0, f"{n_same} tokens compared with the reference")


def run_ranks(build, cases, n_ranks, random_draft, ends):
    with GenerationCluster(build, n_ranks=n_ranks) as cluster:
        greedy(cases, cluster, GREEDY_K[n_ranks])
        to_the_end(cases, cluster)
        coupled(cases, cluster, COUPLED_K[n_ranks])
        strategies(cases, cluster)
        cuts(cases, cluster)
        short(cases, cluster)
        if not ends:
            check_reference(cases)
            ends += find_ends(cases, cluster)
        ends_of_sequence(cases, cluster, ends if n_ranks < 4 else ends[:2])
        cluster.use_draft(random_draft, "random draft")
        if n_ranks == 1:
            strategies(cases, cluster)
        greedy(cases, cluster, RANDOM_GREEDY_K[n_ranks])
        coupled(cases, cluster, RANDOM_COUPLED_K[n_ranks])
        ends_of_sequence(cases, cluster, ends[:2])


def main():
    build = sys.argv[1]
    report = Report()
    cases = Comparison(report, [prompt["ids"] for prompt in golden_prompts()])
    ends = []
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        random_draft = write_random_model(os.path.join(folder, "draft"), DRAFT, RANDOM_SEED)
        for n_ranks in RANKS:
            run_ranks(build, cases, n_ranks, random_draft, ends)
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
