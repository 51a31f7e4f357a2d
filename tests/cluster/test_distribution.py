#!/usr/bin/env python3
# ctest: labels=statistics libs=worker beside=yes timeout=1200 long=3000
"""The text has the target's distribution: the next two tokens after a prompt, drawn through real
workers under `rejection` and `block`, against the exact joint distribution from whole rows.

A request is for 4 tokens, so that the first round makes K = 3 guesses. The second token comes from
the same round or, after a rejection, from the next one, so the independence of rounds is tested
too. The seeds are fixed: a run repeats itself. The same is asked of strategies that choose K, with
fewer draws (test_strategies.c has more); there the planner's timings matter, so those draws do not
repeat. At the end guesses are found in the text itself, and drawn from what other texts have said;
and trees of the draft go on after siblings, also of texts with penalties, biases and bans, or are
independent chains, which tree rules judge.

Most draws come from a small synthetic pair, because a draw costs most of its time in the models:
what is tested does not depend on them. Some come from the tales pair, which is trained. Groups have
one rank, two or more clusters at a time; a group of two ranks must give the same tokens for the
same seeds, so what holds for the one holds for the other. All draws are made in `tests/run long`,
which sets OUTRIDER_TEST_LONG, and a tenth of them elsewhere.
Usage: test_distribution.py BUILD_FOLDER
"""
import collections
import contextlib
import functools
import itertools
import json
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from far_cluster import FarCluster
from generations import (DRAFT, TARGET, Edits, GenerationCluster, Report, chi_square, exact_pairs,
                         fit_cells, order, side_by_side)
from parallel_draft import write_parallel_draft

SMALL = "synthetic:tiny,seed=5,agree=0.7"
PROMPT = [338]  # in tales: "The"
TOP_K = 20
N_DRAFT = 3
ONE_OF = 1 if "OUTRIDER_TEST_LONG" in os.environ else 10  # draws
# Events so rare that a tenth of the draws may have none for one of the rules, but not for both.
FEWEST = 1 if ONE_OF == 1 else 0
N_DRAWS = 33000 // ONE_OF
N_TALES = 6000 // ONE_OF
N_NAIVE = 10000 // ONE_OF
N_STRATEGY = 3500 // ONE_OF
N_EDITED = 10000 // ONE_OF
N_FOUND = 8000 // ONE_OF
N_STORE = 15000 // ONE_OF
N_GROWN = 11000 // ONE_OF
GROWN_CLUSTERS = 4  # of each rule
GROWN_PART = 1000  # draws between texts that are shown
N_SHOWN = 16
N_SHARED = 20000 // ONE_OF
N_UNCUT = 20000 // ONE_OF
N_CHAINS = 20000 // ONE_OF
# Total variations that must be found in 9 of 10 cases by all draws; fewer draws find larger ones.
MAIN_TV, NAIVE_TV, STRATEGY_TV = 0.031, 0.05, 0.07
EDITED_TV, TALES_TV, FOUND_TV, STORE_TV = 0.05, 0.064, 0.064, 0.046
GROWN_TV = 0.05
SHARED_TV = 0.04
UNCUT_TV = 0.046
UNCUT_LEAST = 2e-4  # rarer pairs are one cell
UNCUT_SEEDS = {0: 23000001, 1: 24000001}  # compact and whole rows
CHAINS_TV = 0.04
FIRST_SEEDS = {"rejection": 1, "block": 1000001, "naive": 2000001}
TALES_SEEDS = {"rejection": 13000001, "block": 14000001}
PARALLEL_SEEDS = {"rejection": 25000001, "block": 26000001}
MASK_TOKEN = 4001
GROWN_SEEDS = {"rejection": 19000001, "block": 20000001}
FOUND_SEEDS = {"rejection": 15000001, "block": 16000001}
STRATEGIES = ("planned", "heuristic", "threshold")
N_SAME = 1000 // ONE_OF
BATCH = 10000
P_LEAST = 1e-4
GROWN = 5  # from here on the "sibling" of guesses behind siblings
ONE_THREAD = ["--threads", "1"]


class Farther(FarCluster):
    delay_s = 0.008


def small_cluster(build, target=SMALL, kind=GenerationCluster, **options):
    return kind(build, target=target, **{"draft": target + ",draft=1", **options})


def draw(cluster, report, rule, n_draws, first_seed, prompt=PROMPT, in_flight=32, **way):
    """The generations of seeds first_seed .. first_seed + n_draws."""
    done = []
    while len(done) < n_draws:
        done += cluster.generate([order(prompt, repeat=min(BATCH, n_draws - len(done)),
                                        seed=first_seed + len(done), max_tokens=N_DRAFT + 1,
                                        temperature=1, rule=rule, ignore_eos=1,
                                        **{"top_k": TOP_K, "n_draft": N_DRAFT, **way})],
                                 in_flight=in_flight)
        report.note(f"{rule} {way.get('strategy', '')}: {len(done)} of {n_draws}")
    return done


def mean_accepted(done):
    """Mean and variance of the mean of the guesses that stay in the first round."""
    values = [one["accepted_in_round"][0] for one in done]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, variance / len(values)


def check_requests(report, name, done, rule=None):
    """Checks that the draws were made as this test says."""
    right = all(len(one["ids"]) == N_DRAFT + 1 and one["rule"] == (rule or name) and
                not one["speculation_off"] and one["drafted"] >= N_DRAFT for one in done)
    report.check(right and len({one["seed"] for one in done}) == len(done),
                 f"{name}: {len(done)} seeds, {N_DRAFT} guesses in every first round")


def fit_pairs(build, done, exact):
    return chi_square(build, "fit", fit_cells([tuple(one["ids"][:2]) for one in done], exact))


def check_fit(build, report, rule, done, exact, most_tv):
    """most_tv: the total variation that all draws must find in 9 of 10 cases."""
    fit = fit_pairs(build, done, exact)
    most_tv *= math.sqrt(ONE_OF)
    report.check(fit["p_value"] > P_LEAST and fit["detectable_tv"] <= most_tv,
                 f"{rule}: chi-square {fit['chi_square']:.1f} over {fit['cells']} cells, p = "
                 f"{fit['p_value']:.3g}; total variation of {fit['detectable_tv']:.4f} would be "
                 "found in 9 of 10 cases")


def check_forgets(build, report, rule, done, exact):
    """Where the first guess was rejected, the second token comes from another round, and p(b | a)
    must not depend on what was guessed for its position before. The first tokens are taken as they
    were drawn, so the test has a few degrees of freedom less than it counts: it alarms too rarely
    rather than too often."""
    after = [one for one in done if one["accepted_in_round"][0] == 0]
    seen = collections.Counter(one["ids"][0] for one in after)
    first = collections.Counter()
    for (a, _), p in exact.items():
        first[a] += p
    given = {(a, b): seen[a] / len(after) * p / first[a] for (a, b), p in exact.items()}
    fit = fit_pairs(build, after, given)
    report.check(fit["p_value"] > P_LEAST,
                 f"{rule}, after {len(after)} rejections of the first guess: chi-square "
                 f"{fit['chi_square']:.1f} over {fit['cells']} cells, p = {fit['p_value']:.3g}")


def check_power(build, report, done, exact):
    """Checks that the same draws do not pass for a distribution that is a little off."""
    gap = 1.5 * fit_pairs(build, done, exact)["detectable_tv"]
    tilted = {pair: p * (1 + 2 * gap * (-1) ** i) for i, (pair, p) in enumerate(exact.items())}
    total = sum(tilted.values())
    tilted = {pair: p / total for pair, p in tilted.items()}
    distance = sum(abs(tilted[pair] - exact[pair]) for pair in exact) / 2
    fit = fit_pairs(build, done, tilted)
    report.check(fit["p_value"] < P_LEAST,
                 f"a distribution at a total variation of {distance:.4f} is refused: p = "
                 f"{fit['p_value']:.3g}")


def check_accepted(report, draws):
    mean, variance = {}, {}
    for rule, done in draws.items():
        mean[rule], variance[rule] = mean_accepted(done)
        report.note(f"{rule}: accepts {mean[rule]:.4f} +- {math.sqrt(variance[rule]):.4f} of "
                    f"{N_DRAFT} guesses in the first round")
    error = math.sqrt(variance["block"] + variance["rejection"])
    report.check(mean["block"] > mean["rejection"] - 3 * error,
                 f"block accepts no less than rejection: {mean['block'] - mean['rejection']:+.4f}, "
                 f"standard error {error:.4f}")
    error = math.sqrt(variance["naive"] + variance["rejection"])
    report.check(mean["naive"] < mean["rejection"] - 3 * error,
                 f"naive accepts less than rejection: {mean['naive'] - mean['rejection']:+.4f}, "
                 f"standard error {error:.4f}")


def draw_loads(cluster, report, rule, first_seed, strategy):
    """32 at a time, where a planned K depends on the others; half of the planned ones 4 at a time,
    where K is larger."""
    n_few = N_STRATEGY // 2 if strategy == "planned" else 0
    few = draw(cluster, report, rule, n_few, first_seed, in_flight=4, strategy=strategy)
    return few + draw(cluster, report, rule, N_STRATEGY - n_few, first_seed + n_few,
                      strategy=strategy)


def check_strategies(build, report, exact):
    with small_cluster(build, kind=FarCluster, worker_flags=ONE_THREAD) as cluster, \
            small_cluster(build, kind=FarCluster, worker_flags=ONE_THREAD) as other:
        for i, strategy in enumerate(STRATEGIES):
            first_seed = 3000001 + 2 * i * 1000000
            drawn = side_by_side(
                lambda: draw_loads(cluster, report, "rejection", first_seed, strategy),
                lambda: draw_loads(other, report, "block", first_seed + 1000000, strategy))
            for rule, done in zip(("rejection", "block"), drawn):
                n_guesses = sum(one["drafted"] for one in done)
                report.check(n_guesses > N_STRATEGY // 10 and
                             all(one["strategy"] == strategy for one in done),
                             f"{rule}, {strategy}: {n_guesses} guesses")
                check_fit(build, report, f"{rule}, {strategy}", done, exact, STRATEGY_TV)


def edits_of(exact):
    """Edits that move much of the distribution: tokens that are likely are lowered or banned, some
    after another one, and one of the prompt is raised."""
    first = collections.Counter()
    for (a, _), p in exact.items():
        first[a] += p
    likely = [a for a, _ in first.most_common()]
    then = max((b for a, b in exact if a == likely[1]), key=lambda b: exact[(likely[1], b)])
    return Edits(repetition=1.3, presence=0.7, frequency=0.4, bias=-1.5,
                 biased=[likely[0], likely[5], PROMPT[0]],
                 bans=[[likely[2]], [PROMPT[0], likely[3]], [likely[1], then]])


def check_edits(clusters, build, report, plain, name="edited", seeds=(11000001, 12000001), **way):
    """Penalties, biases and bans are a part of the target's distribution. The prompt's token and
    those of the answer are penalized, so the second token depends on the guess before it."""
    edits = edits_of(plain)
    exact = exact_pairs(build, PROMPT, TOP_K, edits=edits, target=SMALL)
    moved = sum(abs(p - exact.get(pair, 0)) for pair, p in plain.items()) / 2
    report.check(moved > 0.2 and abs(sum(exact.values()) - 1) < 1e-9,
                 f"edits move the distribution by {moved:.3f}")
    drawn = side_by_side(
        lambda: draw(clusters[0], report, "rejection", N_EDITED, seeds[0], edits=edits, **way),
        lambda: draw(clusters[1], report, "block", N_EDITED, seeds[1], edits=edits, **way))
    for rule, done in zip(("rejection", "block"), drawn):
        n_accepted = sum(one["accepted"] for one in done)
        siblings, kept = (sum(one[key] for one in done)
                          for key in ("siblings", "siblings_accepted"))
        has_tree = siblings > 8 * len(done) and kept > 0
        report.check(n_accepted > N_EDITED // 10 and has_tree == (name != "edited"),
                     f"{rule}, {name}: {n_accepted} guesses accepted, {kept} of {siblings} beside "
                     "the chain")
        check_fit(build, report, f"{rule}, {name}", done, exact, EDITED_TV)


def check_two_ranks(build, report, draws):
    """The draws of one rank again, from two ranks that hold half of the vocabulary each."""
    with small_cluster(build, n_ranks=2) as cluster:
        for rule in ("rejection", "block"):
            done = draw(cluster, report, rule, N_SAME, FIRST_SEEDS[rule])
            n_same = sum(one["ids"] == other["ids"] and
                         one["accepted_in_round"] == other["accepted_in_round"]
                         for one, other in zip(done, draws[rule]))
            report.check(n_same == len(done) == N_SAME,
                         f"{rule}, two ranks: {n_same} of {N_SAME} draws are those of one rank")


def likely_loop(build):
    """Returns a prompt that ends as it began, so that the tokens found after its beginning are
    guessed, and the exact distribution after it. The target often goes on after it as the prompt
    did after its beginning."""
    best = None
    for a in {a for a, _ in exact_pairs(build, PROMPT, TOP_K, target=SMALL)}:
        prompt = PROMPT + [a] + PROMPT
        exact = exact_pairs(build, prompt, TOP_K, target=SMALL)
        chance = sum(p for (first, _), p in exact.items() if first == a)
        if not best or chance > best[0]:
            best = (chance, prompt, exact)
    return best


def check_lookup(build, report):
    """Guesses that are looked up in the text itself, without a draft model: q is one-hot."""
    chance, prompt, exact = likely_loop(build)
    report.check(0.02 < chance < 0.98, f"prompt {prompt}: the first guess is right in {chance:.3f}")
    way = {"target": SMALL, "draft": "none", "worker_flags": ONE_THREAD,
           "coordinator_flags": ["--tokenizer", SMALL]}
    with GenerationCluster(build, **way) as cluster, GenerationCluster(build, **way) as other:
        drawn = side_by_side(
            lambda: draw(cluster, report, "rejection", N_FOUND, FOUND_SEEDS["rejection"], prompt),
            lambda: draw(other, report, "block", N_FOUND, FOUND_SEEDS["block"], prompt))
        planned = draw(cluster, report, "rejection", N_STRATEGY, 17000001, prompt,
                       strategy="planned")
    for rule, done in zip(("rejection", "block"), drawn):
        check_requests(report, rule, done)
        report.check(all(one["found"] == one["drafted"] for one in done), f"{rule}: all are found")
        check_fit(build, report, f"{rule}, found", done, exact, FOUND_TV)
        check_forgets(build, report, f"{rule}, found", done, exact)
    n_found = sum(one["found"] for one in planned)
    report.check(n_found > 0, f"planned: {n_found} guesses are found")
    check_fit(build, report, "rejection, found, planned", planned, exact, 1.5 * FOUND_TV)


def draw_without_seeds(cluster, rule, n_draws):
    """Requests that name a seed have no guesses of this kind, so these draws do not repeat."""
    return cluster.generate([order(PROMPT, repeat=n_draws, max_tokens=N_DRAFT + 1, temperature=1,
                                   rule=rule, ignore_eos=1, top_k=TOP_K, n_draft=N_DRAFT,
                                   strategy="planned")])


def check_recycled(build, report, exact):
    """Guesses from what the target has said in other texts, and their siblings: q is one-hot."""
    way = {"target": SMALL, "draft": "none", "worker_flags": ONE_THREAD,
           "coordinator_flags": ["--tokenizer", SMALL, "--lookup", "recycled"]}
    with GenerationCluster(build, **way) as cluster, GenerationCluster(build, **way) as other:
        drawn = side_by_side(lambda: draw_without_seeds(cluster, "rejection", N_FOUND),
                             lambda: draw_without_seeds(other, "block", N_FOUND))
        seeded = draw(cluster, report, "rejection", N_SAME, 18000001, strategy="planned")
    for rule, done in zip(("rejection", "block"), drawn):
        n_guessed, n_siblings = (sum(one[key] > 0 for one in done) for key in ("found", "siblings"))
        report.check(n_guessed > N_FOUND / 50 and len({one["seed"] for one in done}) == N_FOUND,
                     f"{rule}, recycled: {n_guessed} of {N_FOUND} texts have guesses, "
                     f"{n_siblings} have siblings, {sum(one['found_accepted'] for one in done)} "
                     "guesses stay")
        check_fit(build, report, f"{rule}, recycled", done, exact, FOUND_TV)
        check_forgets(build, report, f"{rule}, recycled", done, exact)
    report.check(sum(one["found"] for one in seeded) == 0, "none with a seed")


def check_store(build, report, exact):
    """Guesses and siblings that are drawn from the counts of a store: what the draws before said.
    The server chooses the seeds, so these draws do not repeat."""
    way = {"target": SMALL, "draft": "none", "kind": FarCluster, "worker_flags": ONE_THREAD,
           "coordinator_flags": ["--tokenizer", SMALL, "--lookup", "store"]}
    with small_cluster(build, **way) as cluster, small_cluster(build, **way) as other:
        drawn = side_by_side(lambda: draw_without_seeds(cluster, "rejection", N_STORE),
                             lambda: draw_without_seeds(other, "block", N_STORE))
    n_accepted = 0
    for rule, done in zip(("rejection", "block"), drawn):
        found, drafted, siblings, accepted = (
            sum(one[key] for one in done)
            for key in ("found", "drafted", "siblings", "siblings_accepted"))
        report.check(found == drafted > N_STORE and siblings > accepted >= FEWEST,
                     f"{rule}, store: {found} guesses are found, with {siblings} siblings, "
                     f"{accepted} of those accepted")
        check_fit(build, report, f"{rule}, store", done, exact, STORE_TV)
        n_accepted += accepted
    report.check(n_accepted > 0, f"store: {n_accepted} siblings are accepted under both rules")


def count_grown(cluster, rule, first_seed):
    """Counts guesses after siblings in some texts of the kind that is drawn, and those that are
    accepted."""
    n_made = n_kept = 0
    for seed in range(first_seed, first_seed + N_SHOWN):
        made = json.loads(cluster.outrider(
            "generate", "T", "-n", str(N_DRAFT + 1), "-K", str(N_DRAFT), "--strategy", "planned",
            "--ignore-eos", "--temperature", "1", "--rule", rule, "--top-k", str(TOP_K), "--seed",
            str(seed), "--json", "--show-drafts").stdout)
        for step in made["steps"]:
            kinds = [guess["sibling"] for guess in step["round"]["guesses"]]
            n_made += sum(kind >= GROWN for kind in kinds)
            n_kept += sum(kind >= GROWN for kind in kinds[:step["round"]["kept"]])
    return n_made, n_kept


def draw_grown(cluster, report, rule, n_draws, first_seed):
    """The draws, and what count_grown has counted before and among them."""
    done, shown = [], []
    while len(done) < n_draws:
        shown.append(count_grown(cluster, rule, first_seed + len(done)))
        done += draw(cluster, report, rule, min(GROWN_PART, n_draws - len(done)),
                     first_seed + len(done), in_flight=4, strategy="planned")
    return done, [sum(counts) for counts in zip(*shown)]


def check_grown(build, report, exact):
    """Guesses after siblings, which the planner makes where rows cost nothing beside the link. What
    it chooses depends on times, so these draws do not repeat. Each rule has several clusters,
    because all of them wait for the link most of the time."""
    way = {"kind": Farther, "worker_flags": ONE_THREAD}
    with contextlib.ExitStack() as stack:
        drawn = side_by_side(*[
            functools.partial(draw_grown, stack.enter_context(small_cluster(build, **way)), report,
                              rule, N_GROWN // GROWN_CLUSTERS, first_seed + i * N_GROWN)
            for rule, first_seed in GROWN_SEEDS.items() for i in range(GROWN_CLUSTERS)])
    n_all_kept = 0
    for i, rule in enumerate(GROWN_SEEDS):
        parts, counts = zip(*drawn[i * GROWN_CLUSTERS:(i + 1) * GROWN_CLUSTERS])
        done = list(itertools.chain(*parts))
        n_made, n_kept = (sum(count) for count in zip(*counts))
        n_clusters = sum(made > 0 for made, _ in counts)
        report.check(n_clusters >= (len(counts) if ONE_OF == 1 else 1),
                     f"{rule}, trees: {n_clusters} clusters make guesses behind siblings")
        siblings, accepted = (sum(one[key] for one in done)
                              for key in ("siblings", "siblings_accepted"))
        report.check(siblings > accepted > 0 and n_made > n_kept >= FEWEST,
                     f"{rule}, trees: {accepted} of {siblings} siblings and guesses behind them "
                     f"stay; in texts between them {n_made} guesses are behind siblings, and "
                     f"{n_kept} of those stay")
        check_fit(build, report, f"{rule}, trees", done, exact, GROWN_TV)
        n_all_kept += n_kept
    report.check(n_all_kept > 0, f"trees: {n_all_kept} guesses after siblings stay under both "
                 "rules")


def check_shared(build, report, exact):
    """Trees whose places have 3, 6 and 6 guesses, after those that the draft's q says."""
    way = {"worker_flags": ONE_THREAD, "coordinator_flags": ["--trees", "dynamic:3,2,1"]}
    with small_cluster(build, **way) as cluster, small_cluster(build, **way) as other:
        drawn = side_by_side(lambda: draw(cluster, report, "rejection", N_SHARED, 21000001,
                                          strategy="fixed"),
                             lambda: draw(other, report, "block", N_SHARED, 22000001,
                                          strategy="fixed"))
    for rule, done in zip(("rejection", "block"), drawn):
        siblings, accepted = (sum(one[key] for one in done)
                              for key in ("siblings", "siblings_accepted"))
        report.check(siblings > 8 * len(done) and accepted > 0,
                     f"{rule}, dynamic:3,2,1: {accepted} of {siblings} guesses beside the chain "
                     "stay")
        check_fit(build, report, f"{rule}, dynamic:3,2,1", done, exact, SHARED_TV)


def check_edited_trees(build, report, exact):
    """Edits in trees that are named: they depend on the path of each guess."""
    for i, trees in enumerate(("3,2,1", "dynamic:3,2,1")):
        way = {"worker_flags": ONE_THREAD, "coordinator_flags": ["--trees", trees]}
        with small_cluster(build, **way) as cluster, small_cluster(build, **way) as other:
            check_edits((cluster, other), build, report, exact, f"edited, {trees}",
                        (23000001 + 2000000 * i, 24000001 + 2000000 * i), strategy="fixed")


def check_chains(build, report, exact):
    """Three independent chains of two guesses, judged by the two rules that are for such: which
    chains hold the same tokens shows in neither."""
    way = {"worker_flags": ONE_THREAD, "coordinator_flags": ["--trees", "chains:3x2"]}
    cases = {"k-sequential": ("rejection", 23000001), "multi-path": ("block", 24000001)}
    with small_cluster(build, **way) as cluster, small_cluster(build, **way) as other:
        drawn = side_by_side(*[
            functools.partial(draw, world, report, rule, N_CHAINS, seed, strategy="fixed",
                              tree_rule=tree_rule)
            for world, (tree_rule, (rule, seed)) in zip((cluster, other), cases.items())])
    for tree_rule, done in zip(cases, drawn):
        name = f"{cases[tree_rule][0]}, {tree_rule}"
        drafted, siblings, accepted = (sum(one[key] for one in done)
                                       for key in ("drafted", "siblings", "siblings_accepted"))
        report.check(siblings == 2 * drafted >= 4 * len(done) and accepted > 0,
                     f"{name}: {accepted} of {siblings} guesses of the other chains stay")
        check_fit(build, report, name, done, exact, CHAINS_TV)
        check_forgets(build, report, name, done, exact)


def draw_both(clusters, report, n_draws, seeds):
    """{rule: draws} of the two rules that keep the distribution."""
    rejection, block = side_by_side(
        lambda: draw(clusters[0], report, "rejection", n_draws, seeds["rejection"]),
        lambda: draw(clusters[1], report, "block", n_draws, seeds["block"]))
    return {"rejection": rejection, "block": block}


def exact_of(build, report, target):
    exact = exact_pairs(build, PROMPT, TOP_K, target=target)
    report.check(len(exact) == TOP_K ** 2 and abs(sum(exact.values()) - 1) < 1e-9,
                 f"the exact distribution of {target} has {len(exact)} pairs")
    return exact


def check_draws(build, report, draws, exact, most_tv):
    for rule, done in draws.items():
        check_requests(report, rule, done)
        check_fit(build, report, rule, done, exact, NAIVE_TV if rule == "naive" else most_tv)
        check_forgets(build, report, rule, done, exact)


def check_tales(build, report):
    """With the pair's draft, and with one that makes all guesses in one pass."""
    exact = exact_of(build, report, TARGET)
    way = {"target": TARGET, "draft": DRAFT, "worker_flags": ONE_THREAD}
    with GenerationCluster(build, **way) as cluster, GenerationCluster(build, **way) as other, \
            tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        draws = draw_both((cluster, other), report, N_TALES, TALES_SEEDS)
        parallel = write_parallel_draft(os.path.join(folder, "parallel"), DRAFT, MASK_TOKEN)
        for world in (cluster, other):
            world.use(draft=parallel)
        at_once = draw_both((cluster, other), report, N_TALES, PARALLEL_SEEDS)
    check_draws(build, report, draws, exact, TALES_TV)
    check_draws(build, report, at_once, exact, TALES_TV)


def check_uncut(build, report):
    """Without truncation, with compact rows and with whole ones: rejection draws outside of the
    draft's support, whose mass compact rows know only as a sum."""
    exact = exact_pairs(build, PROMPT, 0, UNCUT_LEAST)
    way = {"target": TARGET, "draft": DRAFT, "worker_flags": ONE_THREAD}
    with GenerationCluster(build, **way) as cluster, GenerationCluster(build, **way) as other:
        drawn = side_by_side(*[
            functools.partial(draw, world, report, "rejection", N_UNCUT, UNCUT_SEEDS[full],
                              top_k=0, full_rows=full) for full, world in enumerate((cluster,
                                                                                      other))])
    for name, done in zip(("compact", "whole"), drawn):
        check_requests(report, f"rejection, {name} rows", done, "rejection")
        check_fit(build, report, f"rejection, no truncation, {name} rows", done, exact, UNCUT_TV)
    cells = [fit_cells([tuple(one["ids"][:2]) for one in done], exact) for done in drawn]
    same = chi_square(build, "same", [(a, b) for (a, _), (b, _) in zip(*cells)])
    report.check(same["p_value"] > P_LEAST, f"compact against whole rows: chi-square "
                 f"{same['chi_square']:.1f} over {same['cells']} cells, p = {same['p_value']:.3g}")


def main():
    build = sys.argv[1]
    report = Report()
    exact = exact_of(build, report, SMALL)
    with small_cluster(build, worker_flags=ONE_THREAD) as cluster, \
            small_cluster(build, worker_flags=ONE_THREAD) as other:
        draws = draw_both((cluster, other), report, N_DRAWS, FIRST_SEEDS)
        draws["naive"] = draw(cluster, report, "naive", N_NAIVE, FIRST_SEEDS["naive"])
        check_edits((cluster, other), build, report, exact)
    check_strategies(build, report, exact)
    check_two_ranks(build, report, draws)
    check_draws(build, report, draws, exact, MAIN_TV)
    check_power(build, report, draws["block"], exact)
    check_accepted(report, draws)
    check_tales(build, report)
    check_lookup(build, report)
    check_recycled(build, report, exact)
    check_store(build, report, exact)
    check_grown(build, report, exact)
    check_shared(build, report, exact)
    check_uncut(build, report)
    check_edited_trees(build, report, exact)
    check_chains(build, report, exact)
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
