#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes cores=2 timeout=900 long=1800
"""Block drafters change no text: what test_heads_cluster.py asks of other heads, of a DFlash and a
DSpark drafter. Their guesses depend neither on K nor on company.
Usage: test_block_heads_cluster.py BUILD_FOLDER [PART]   PART: worlds whose function has this in its
name
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import block_head
from generations import Report, order, side_by_side
from matrix_texts import decide
from plain_texts import KINDS, PlainTexts
from test_heads_cluster import (ONE_THREAD, SMALL, check_context, check_decisions,
                                check_distribution, check_little, check_planned, check_reuse,
                                check_texts, check_trees, check_two_ranks, run_world, use)

# The most that each makes in a round is among them.
TEXT_K = {"greedy": (1, 4, 16), "coupled at 0.7": (5,), "coupled at 1": (3, 8)}
TREES = (["3,2,1"], ["chains:3x3", "--tree-rule", "multi-path"])
KIND_OF = {"dflash": "DFlash", "dspark": "DSpark"}
TWO_RANKS_K = {"greedy": (4,), "coupled at 1": (16,)}


def guesses_of(committed, n_tokens, n_most):
    """Guesses for a text of n_tokens: none in the first round, then n_most, or as many as are
    left."""
    total, left = 0, n_tokens - committed[0]
    for n in committed[1:]:
        total += min(n_most, left - 1)
        left -= n
    return total


def check_most(world, n_most, n_tokens=40):
    """A round has as many guesses as a block, and no more."""
    [one] = world.cluster.generate([order(KINDS["greedy"].prompts[0], max_tokens=n_tokens,
                                          temperature=0, n_draft=16, ignore_eos=1)])
    world.check(one["drafted"] == guesses_of(one["committed"], n_tokens, n_most),
                f"{one['drafted']} guesses in {one['rounds']} rounds, at most {n_most} in each")


def near_one(world, heads, made):
    for head, n_most in heads.items():
        use(world, head)
        check_most(world, n_most)
        check_texts(world, TEXT_K, 100)
        check_context(world)
        check_reuse(world, head, KIND_OF[os.path.basename(head)])
        made[head, "alone"] = decide(world.cluster)
        made[head, "in company"] = decide(world.cluster, 12)
        check_distribution(world, world.cluster.build)
        for flags in TREES:
            use(world, head, "--trees", *flags)
            check_distribution(world, world.cluster.build)
        check_planned(world, head)
        check_trees(world, head)


def near_two(world, heads, made):
    for head in heads:
        check_two_ranks(world, head, made, TWO_RANKS_K)


def near_little(world, heads, made):
    for head in heads:
        check_little(world, head, made)


def main(build, part=""):
    report, plain, made = Report(), PlainTexts(), {}
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        heads = {block_head.write_dflash(os.path.join(folder, "dflash")): 16,
                 block_head.write_dspark(os.path.join(folder, "dspark")): 8}
        worlds = ((near_one, "one rank", [], 1), (near_two, "two ranks", ONE_THREAD, 2),
                  (near_little, "one rank, little KV", SMALL, 1))
        side_by_side(*[lambda world=world: run_world(report, plain, build, *world, heads, made)
                       for world in worlds if part in world[0].__name__])
        for (head, name), found in made.items():
            if name != "alone" and (head, "alone") in made:
                check_decisions(report, f"{os.path.basename(head)}, {name}", found,
                                made[head, "alone"])
    return report.status()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
