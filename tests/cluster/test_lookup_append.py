#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=600
"""Guesses that are looked up behind those of the draft model change no text: greedy and `coupled`,
alone and in company, on one rank and two, and with little KV. Everything is compared with one rank
that decodes plainly (K = 0). The ranks are far away, so that guesses are made on every machine.

Usage: test_lookup_append.py BUILD_FOLDER
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from far_cluster import FarCluster
from generations import (DRAFT, TARGET, GenerationCluster, Report, check_word_is_refused,
                         golden_prompts, order, side_by_side)

N_TOKENS = 100
N_PROMPTS = 6
SEEDS = (41, 42)
TEXTS = {"greedy": {"temperature": 0}, "coupled": {"temperature": 0.8, "rule": "coupled"}}
DRAWN = {"rejection": {"temperature": 0.8, "rule": "rejection"},
         "block": {"temperature": 0.8, "rule": "block"}}
WORKER = ["--threads", "1"]
SMALL = WORKER + ["--kv-tokens", "640"]


class Far(FarCluster):
    delay_s = 0.004


def orders(fields, **way):
    return [order(one["ids"][:20], seed=seed, max_tokens=N_TOKENS, ignore_eos=1, **fields, **way)
            for seed in SEEDS for one in golden_prompts()[:N_PROMPTS]]


def make_plain(build):
    with GenerationCluster(build, target=TARGET, draft=DRAFT, worker_flags=WORKER) as world:
        return {text: [one["ids"] for one in world.generate(orders(fields, n_draft=0))]
                for text, fields in TEXTS.items()}


def total(done, key):
    return sum(one[key] for one in done)


def check(report, name, world, plain, in_flight, mode):
    """Returns the guesses that were appended."""
    n_appended = 0
    for text, fields in {**TEXTS, **DRAWN}.items():
        done = world.generate(orders(fields, strategy="planned", n_draft=16), in_flight=in_flight)
        n_other = sum(one["ids"] != ids for one, ids in zip(done, plain.get(text, ())))
        appended, kept, found = (total(done, key)
                                 for key in ("appended", "appended_accepted", "found"))
        n_appended += appended
        is_right = kept <= appended <= found and (mode != "off" or appended == 0)
        report.check(is_right and n_other == 0,
                     f"{name}, {in_flight} at once, {text}: of {total(done, 'drafted')} guesses "
                     f"{found} were found, {appended} of them behind others, of which {kept} stay" +
                     (f"; {n_other} of {len(done)} texts differ" if n_other else ""))
        own = world.generate(orders(fields, n_draft=3)[:2], in_flight=in_flight)
        report.check(total(own, "appended") == 0, f"{name}, {text}: a K of its own is kept")
    return n_appended


def check_world(build, report, plain, mode, n_ranks, worker, in_flights):
    name = f"{mode}, T = {n_ranks}" + (", little KV" if worker is SMALL else "")
    with Far(build, n_ranks=n_ranks, target=TARGET, draft=DRAFT, worker_flags=worker,
             coordinator_flags=["--half-batches", "off", "--lookup-append", mode]) as world:
        n = sum(check(report, name, world, plain, in_flight, mode) for in_flight in in_flights)
        report.check(n > 0 or mode != "on", f"{name}: {n} guesses behind those of the draft")


def main():
    build = sys.argv[1]
    report = Report()
    plain = make_plain(build)
    worlds = (("on", 1, WORKER, (1, 8)), ("on", 2, WORKER, (2,)), ("on", 1, SMALL, (12,)),
              ("auto", 1, WORKER, (1, 8)), ("off", 1, WORKER, (2,)))
    for pair in (worlds[:2], worlds[2:4], worlds[4:]):
        side_by_side(*[lambda world=world: check_world(build, report, plain, *world)
                       for world in pair])
    check_word_is_refused(build, report, "--lookup-append")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
