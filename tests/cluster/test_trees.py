#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=600
"""Trees of guesses change no text: greedy and `coupled` with a draft model whose guesses have
siblings and go on behind them, alone and in company, on one rank and two, and with little KV, and
with siblings that are found in other texts and in the text itself. Neither do windows of lookahead
decoding. Everything is compared with one rank that decodes plainly (K = 0). The ranks are far away,
so that rows cost nothing beside the link and trees pay on every machine.

Usage: test_trees.py BUILD_FOLDER
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from far_cluster import FarCluster
from generations import (DRAFT, TARGET, GenerationCluster, Report, golden_prompts, order,
                         side_by_side)

N_TOKENS = 100
N_PROMPTS = 6
SEEDS = (21, 22)
PAIR = "synthetic:tiny,seed=5,agree=0.5"
TEXTS = {"greedy": {"temperature": 0}, "coupled": {"temperature": 0.9, "rule": "coupled"}}
SHOWN = {"greedy": ["--temperature", "0"], "coupled": ["--temperature", "0.9"]}
WORKER = ["--threads", "1"]
# As few KV blocks as one text needs, so that texts are in each other's way.
SMALL = WORKER + ["--kv-tokens", "640"]


BRANCH = 4  # the "sibling" of the guesses of a second chain
GROWN = 5  # from here on: behind siblings
PROMPT = "Once upon a time"
PATIENCE = 30  # texts, until guesses behind siblings have stayed


class Far(FarCluster):
    delay_s = 0.004


class Farther(FarCluster):
    """A hundredth of a round is worth several rows."""
    delay_s = 0.02


def orders(text, **way):
    return [order(one["ids"][:20], seed=seed, max_tokens=N_TOKENS, ignore_eos=1, **TEXTS[text],
                  **way) for seed in SEEDS for one in golden_prompts()[:N_PROMPTS]]


def make_plain(build):
    with GenerationCluster(build, target=TARGET, draft=DRAFT, worker_flags=WORKER) as world:
        return {text: [one["ids"] for one in world.generate(orders(text, n_draft=0))]
                for text in TEXTS}


def check(report, name, world, plain, in_flight):
    """Returns how often a text lost its place, and the siblings that were checked."""
    n_preempted = n_siblings = 0
    for text in TEXTS:
        done = world.generate(orders(text, strategy="planned", n_draft=16), in_flight=in_flight)
        n_other = sum(one["ids"] != ids for one, ids in zip(done, plain[text]))
        siblings, accepted = (sum(one[key] for one in done)
                              for key in ("siblings", "siblings_accepted"))
        n_siblings += siblings
        n_preempted += sum(one["preemptions"] for one in done)
        is_right = 0 < accepted < siblings or in_flight > 1 and accepted <= siblings
        report.check(is_right and n_other == 0,
                     f"{name}, {in_flight} at once, {text}: "
                     f"{sum(one['drafted'] for one in done)} guesses, {siblings} siblings, "
                     f"{accepted} of those accepted" +
                     (f"; {n_other} of {len(done)} texts differ" if n_other else ""))
    return n_preempted, n_siblings


def check_store(build, report, plain):
    """What other texts said for a place are siblings. There is no draft model, so all guesses and
    siblings are found, behind texts of other seeds and of the other kind, which say something else.
    At the end the store knows each text itself, too. With --trees off there are no siblings."""
    for trees in ("auto", "off"):
        with Far(build, target=TARGET, draft="none", worker_flags=WORKER,
                 coordinator_flags=["--tokenizer", TARGET, "--lookup", "store", "--trees",
                                    trees]) as world:
            for turn, text in enumerate(("coupled", "greedy", "coupled")):
                done = world.generate(orders(text, strategy="planned", n_draft=16), in_flight=1)
                n_other = sum(one["ids"] != ids for one, ids in zip(done, plain[text]))
                drafted, found, siblings, accepted = (
                    sum(one[key] for one in done)
                    for key in ("drafted", "found", "siblings", "siblings_accepted"))
                is_right = (0 < accepted < siblings or turn == 2) if trees == "auto" \
                    else siblings == 0
                report.check(is_right and n_other == 0 and 0 < found == drafted,
                             f"store, trees {trees}, {text}: {found} guesses are found, with "
                             f"{siblings} siblings, {accepted} of those accepted" +
                             (f"; {n_other} of {len(done)} texts differ" if n_other else ""))


def check_session(build, report, plain):
    """Siblings that are found in the text itself, alone and in company."""
    with Far(build, target=TARGET, draft="none", worker_flags=WORKER,
             coordinator_flags=["--tokenizer", TARGET]) as world:
        n = sum(check(report, "session", world, plain, in_flight)[1] for in_flight in (4, 2))
        report.check(n > 0, f"session: {n} siblings")


def count_branches(world, prompt):
    """Guesses of second chains in a text whose rounds are shown. Without a draft model they are
    windows."""
    made = json.loads(world.outrider("generate", prompt, "-n", str(N_TOKENS), "--ignore-eos",
                                     "--temperature", "0", "--json", "--show-drafts").stdout)
    return sum(guess["sibling"] == BRANCH for step in made["steps"]
               for guess in step["round"]["guesses"])


def check_grown(report, name, world, text, trees="auto"):
    """Guesses behind siblings, in texts whose rounds are shown; with --trees siblings none."""
    n_made = n_kept = n_texts = n_other = 0
    flags = ["-n", str(N_TOKENS), "--ignore-eos", "--json", "--seed", str(SEEDS[0]), *SHOWN[text]]
    plain = json.loads(world.outrider("generate", PROMPT, "-K", "0", *flags).stdout)
    most = PATIENCE if trees != "siblings" else 4
    while n_texts < most and (n_texts < 2 or n_kept == 0):
        made = json.loads(world.outrider("generate", PROMPT, "--show-drafts", *flags).stdout)
        n_texts += 1
        n_other += made["token_ids"] != plain["token_ids"]
        for step in made["steps"]:
            kinds = [guess["sibling"] for guess in step["round"]["guesses"]]
            n_made += sum(kind >= GROWN for kind in kinds)
            n_kept += sum(kind >= GROWN for kind in kinds[:step["round"]["kept"]])
    is_right = 0 < n_kept < n_made if trees != "siblings" else n_made == 0
    report.check(is_right and n_other == 0,
                 f"{name}, trees {trees}, {text}: {n_kept} of {n_made} guesses behind siblings "
                 f"stay in {n_texts} texts" + (f"; {n_other} texts differ" if n_other else ""))


def check_pair(build, report, n_ranks, trees):
    """A pair whose draft is often wrong and then right with its second guess, so that siblings go
    on in most rounds: behind those guesses that the planner names, or that q says."""
    with Farther(build, n_ranks=n_ranks, target=PAIR, draft=PAIR + ",draft=1", worker_flags=WORKER,
                 coordinator_flags=["--half-batches", "off", "--trees", trees]) as world:
        for text in TEXTS:
            check_grown(report, f"pair, T = {n_ranks}", world, text, trees)


def check_fixed(build, report, n_ranks, trees):
    """A tree that is named, in requests with a K of their own: the rounds have all of it, or as
    many guesses where it follows q, but for the last ones and for what would stand behind an end of
    the text. Returns the guesses of the rounds of the first text."""
    rounds = []
    with Far(build, n_ranks=n_ranks, target=PAIR, draft=PAIR + ",draft=1", worker_flags=WORKER,
             coordinator_flags=["--half-batches", "off", "--trees", trees]) as world:
        for text, k, n_whole in (("greedy", 3, 15), ("coupled", 3, 15), ("coupled", 5, 17)):
            flags = ["-n", str(N_TOKENS), "--ignore-eos", "--json", "--seed", str(SEEDS[0]),
                     *SHOWN[text]]
            plain, made = (json.loads(world.outrider("generate", PROMPT, *words, *flags).stdout)
                           for words in (["-K", "0"], ["-K", str(k), "--show-drafts"]))
            rounds.append([step["round"]["guesses"] for step in made["steps"]])
            sizes = [len(guesses) for guesses in rounds[-1]]
            n_kept = sum(guess["sibling"] >= GROWN for step in made["steps"]
                         for guess in step["round"]["guesses"][:step["round"]["kept"]])
            n_short = sum(size != n_whole for size in sizes[1:-2])
            report.check(max(sizes) == n_whole and n_short <= 2 and n_kept > 0 and
                         made["token_ids"] == plain["token_ids"],
                         f"{trees}, K = {k}, T = {n_ranks}, {text}: {n_short} of "
                         f"{len(sizes)} rounds have fewer than {n_whole} guesses; {n_kept} "
                         "behind siblings stay")
    return rounds[0]


def check_company(build, report, plain):
    """The same trees that follow q for texts in each other's way, which lose their places."""
    n_preempted = 0
    for n_ranks, worker, in_flight in ((1, WORKER, 8), (2, WORKER, 2), (1, SMALL, 12)):
        with Far(build, n_ranks=n_ranks, target=TARGET, draft=DRAFT, worker_flags=worker,
                 coordinator_flags=["--half-batches", "off", "--trees", "dynamic:3,2,1"]) as world:
            for text in TEXTS:
                done = world.generate(orders(text, strategy="fixed", n_draft=3),
                                      in_flight=in_flight)
                n_other = sum(one["ids"] != ids for one, ids in zip(done, plain[text]))
                siblings, accepted = (sum(one[key] for one in done)
                                      for key in ("siblings", "siblings_accepted"))
                n_preempted += sum(one["preemptions"] for one in done)
                report.check(0 < accepted < siblings and n_other == 0,
                             f"dynamic:3,2,1, T = {n_ranks}, {in_flight} at once, {text}: "
                             f"{accepted} of {siblings} guesses beside the chain stay" +
                             (f"; {n_other} of {len(done)} texts differ" if n_other else ""))
    report.check(n_preempted > 0, f"dynamic:3,2,1: {n_preempted} times a text lost its place")


def lookahead_world(build, draft, trees):
    return Farther(build, target=TARGET, draft=draft, worker_flags=WORKER,
                   coordinator_flags=["--tokenizer", TARGET, "--lookup", "lookahead",
                                      "--half-batches", "off", "--trees", trees])


def check_lookahead(build, report, plain):
    """Rows that cost nothing check what the target has said itself, alone and beside the guesses of
    a draft model. With --trees off they check nothing."""
    n_windows = {}
    for draft in ("none", DRAFT):
        with lookahead_world(build, draft, "auto") as world:
            for text in TEXTS:
                done = world.generate(orders(text, strategy="planned", n_draft=16), in_flight=4)
                n_other = sum(one["ids"] != ids for one, ids in zip(done, plain[text]))
                found, kept, siblings, accepted = (
                    sum(one[key] for one in done)
                    for key in ("found", "found_accepted", "siblings", "siblings_accepted"))
                is_right = n_other == 0 and 0 < accepted < siblings
                is_right &= 0 < kept < found if draft == "none" else kept <= found
                report.check(is_right,
                             f"lookahead, {'no' if draft == 'none' else 'a'} draft, {text}: {kept} "
                             f"of {found} found guesses stay, and {accepted} of {siblings} others" +
                             (f"; {n_other} of {len(done)} texts differ" if n_other else ""))
            if draft == "none":
                n_windows["auto"] = count_branches(world, PROMPT)
    with lookahead_world(build, "none", "off") as world:
        n_windows["off"] = count_branches(world, PROMPT)
    report.check(n_windows["off"] == 0 < n_windows["auto"],
                 f"lookahead: {n_windows['auto']} guesses of windows, {n_windows['off']} with "
                 "--trees off")


def check_world(build, report, plain, n_ranks, worker, in_flights):
    name = f"T = {n_ranks}" + (", little KV" if worker is SMALL else "")
    with Far(build, n_ranks=n_ranks, target=TARGET, draft=DRAFT, worker_flags=worker,
             coordinator_flags=["--half-batches", "off"]) as world:
        for in_flight in in_flights:
            n, n_siblings = check(report, name, world, plain, in_flight)
            # Many lanes need their rows for other things on slow machines.
            report.check(n_siblings > 0 or in_flight > 2, f"{name}: {n_siblings} siblings")
        if worker is SMALL:
            report.check(n > 0, f"{name}: {n} times a text lost its place")


def main():
    build = sys.argv[1]
    report = Report()
    plain = make_plain(build)
    # Clusters wait for the link most of the time.
    side_by_side(lambda: check_store(build, report, plain),
                 lambda: check_session(build, report, plain),
                 lambda: check_lookahead(build, report, plain))
    side_by_side(*[lambda world=world: check_world(build, report, plain, *world)
                   for world in ((1, WORKER, (1, 8)), (2, WORKER, (2,)), (1, SMALL, (12,)))])
    side_by_side(*[lambda ranks=n_ranks, trees=trees: check_pair(build, report, ranks, trees)
                   for n_ranks, trees in ((1, "dynamic"), (2, "dynamic"), (1, "static"),
                                          (1, "siblings"))])
    static, static_two, dynamic, dynamic_two = side_by_side(
        *[lambda ranks=n_ranks, trees=trees: check_fixed(build, report, ranks, trees)
          for trees in ("3,2,1", "dynamic:3,2,1") for n_ranks in (1, 2)])
    report.check(static == static_two and dynamic == dynamic_two,
                 "3,2,1 and dynamic:3,2,1 have the same guesses for T = 1, 2")
    report.check(static != dynamic, "dynamic:3,2,1 has other guesses than 3,2,1")
    check_company(build, report, plain)
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
