#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes cores=2 timeout=1200 long=2400
"""Options that promise to change no text, on all kinds of ranks: one cluster for each set of ranks,
whose coordinator is started again with each set of options. Greedy and `coupled` texts are compared
with the plain ones of tests/golden/texts (tests/support/plain_texts.py). What the other rules
decide with a K of their own is compared with a draft that reads nothing ahead. `tests/run long`
compares the texts of all seeds and prompts, other runs those of some.

Each line names the ranks, the coordinator's options, the texts and the request's options.
Usage: test_matrix.py BUILD_FOLDER [PART]   PART: worlds whose function has this in its name
       test_matrix.py BUILD_FOLDER --write  makes tests/golden/texts anew
"""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import plain_texts
from far_cluster import FarCluster
from generations import DRAFT, TARGET, GenerationCluster, Report, check_word_is_refused
from matrix import ALL, FAR_S, GREEDY_AND_COUPLED, PLANNED, World
from matrix_guesses import (LOOKUP_WAYS, check_alone, check_appended, check_chains, check_choices,
                            check_grown, check_lookahead, check_lookup, check_named_tree,
                            check_planned_trees, check_session_trees, check_store,
                            check_store_trees, check_tree_of_q)
from matrix_texts import (OWN, SOME, check_decisions, check_defaults, check_heads, check_layers,
                          check_parallel_draft, check_random_draft, check_reference,
                          check_refused_layers, check_row_forms, decide)
from plain_texts import DEEP_PAIR, PAIR, PlainTexts

AT_ONCE = 4  # worlds; those that are far away mostly wait
ONE_THREAD = ["--threads", "1"]
# As few KV blocks as one text needs, so that texts are in each other's way.
SMALL = ONE_THREAD + ["--kv-tokens", "640"]
LITTLE_DRAFT = ["--draft-kv-tokens", "640"]
ONLY_PLANNED = LOOKUP_WAYS if ALL else {"planned": PLANNED}


def near_one(world, reference):
    """A rank beside its coordinator."""
    check_defaults(world, plain_texts.N_ENDS)
    check_decisions(world, reference, staged=None)
    check_random_draft(world)
    check_parallel_draft(world)
    world.use("--draft-staged", "on")
    check_decisions(world, reference, staged=True)
    check_decisions(world, reference, in_flight=12, staged=True)
    check_heads(world)
    check_layers(world, [TARGET + ",layers=0-1", TARGET + ",layers=0,2", TARGET + ",layers=all"],
                 GREEDY_AND_COUPLED)
    check_refused_layers(world)


def near_lookups(world, _):
    """Finders, on a rank beside its coordinator."""
    check_lookup(world, "session", (1, 16))
    check_lookup(world, "session", (1, 16), draft=DRAFT)
    check_lookup(world, "session,store", (1, 16), ways=ONLY_PLANNED)
    check_lookup(world, "store,session,recycled,lookahead", (1, 16), draft=DRAFT,
                 ways=ONLY_PLANNED)
    check_store(world)
    check_alone(world, "recycled", 20)
    check_alone(world, "lookahead", 40)


def near_two(world, reference):
    check_defaults(world, 2)
    check_decisions(world, reference, staged=None, ways=OWN if ALL else SOME)
    check_row_forms(world)
    check_random_draft(world)
    check_parallel_draft(world)
    check_lookup(world, "session", (16,))


def near_four(world, _):
    check_defaults(world, 2)
    check_random_draft(world)


def near_little(world, reference):
    """Texts lose their places again and again."""
    world.use("--draft-staged", "on", *LITTLE_DRAFT)
    check_decisions(world, reference, in_flight=12, staged=True, preempted=True)
    for lookup in ("session", "session,recycled", "session,lookahead"):
        n = check_lookup(world, lookup, (16,), ways=ONLY_PLANNED, n_seeds=2)
        world.check(n > 0, f"{n} times a text lost its place")


def far_one(world, _):
    """A rank far away: rows cost nothing beside the link, so trees pay on every machine."""
    check_planned_trees(world, (1, 8))
    check_tree_of_q(world, 8)
    check_appended(world, "on", (1, 8))
    check_appended(world, "auto", (1, 8))
    check_appended(world, "off", (2,))


def far_lookups(world, _):
    """Siblings that are found, on a rank far away."""
    check_store_trees(world)
    check_session_trees(world)
    check_lookahead(world)


def far_two(world, _):
    check_planned_trees(world, (2,))
    check_tree_of_q(world, 2)
    check_appended(world, "on", (2,))


def far_little(world, _):
    n = check_planned_trees(world, (12,), n_seeds=2)
    world.check(n > 0, f"{n} times a text lost its place")
    n = check_tree_of_q(world, 12, n_seeds=2)
    world.check(n > 0, f"{n} times a text lost its place")
    check_appended(world, "on", (12,))


def far_pair_grown(world, _):
    for trees in ("dynamic", "static", "siblings"):
        check_grown(world, trees)


def far_pair_one(world, shown):
    shown[1] = [check_named_tree(world, trees) for trees in ("3,2,1", "dynamic:3,2,1")]
    world.check(shown[1][0] != shown[1][1], "dynamic:3,2,1 has other guesses than 3,2,1")
    check_choices(world, shown[1][0])
    shown[1].append(check_chains(world))


def far_pair_two(world, shown):
    check_grown(world, "dynamic")
    shown[2] = [check_named_tree(world, trees) for trees in ("3,2,1", "dynamic:3,2,1")]
    shown[2].append(check_chains(world))


def near_deep_pair(world, _):
    """Two ranks of a pair whose draft is the core of its target."""
    drafts = [DEEP_PAIR + tail for tail in (",draft=1", ",layers=0", ",layers=0,2-3")]
    names = ("deep pair, greedy", "deep pair, coupled")
    decided = check_layers(world, drafts, names)
    for name in names:
        world.check(decided[drafts[0], name] == decided[drafts[1], name],
                    f"{name}: the core drafts as the pair's draft does")


def worlds(build, reference, shown):
    """(function, its argument, name, cluster) of each; the longest ones first."""
    def near(n_ranks=1, flags=ONE_THREAD, **models):
        return GenerationCluster(build, n_ranks=n_ranks, worker_flags=flags, http=True, **models)

    def far(n_ranks=1, flags=ONE_THREAD, **models):
        return FarCluster(build, n_ranks=n_ranks, worker_flags=flags, **models)

    pair, deep = ({"target": name, "draft": name + ",draft=1"} for name in (PAIR, DEEP_PAIR))
    return ((far_pair_grown, None, "one far rank of a pair", far(**pair)),
            (far_pair_two, shown, "two far ranks of a pair", far(2, **pair)),
            (near_one, reference, "one rank", near(flags=[])),
            (far_lookups, None, "one far rank", far()),
            (far_one, None, "one far rank", far()),
            (near_two, reference, "two ranks", near(2)),
            (far_pair_one, shown, "one far rank of a pair", far(**pair)),
            (near_lookups, None, "one rank", near()),
            (far_two, None, "two far ranks", far(2)),
            (near_four, None, "four ranks", near(4)),
            (far_little, None, "one far rank, little KV", far(flags=SMALL)),
            (near_little, reference, "one rank, little KV", near(flags=SMALL)),
            (near_deep_pair, None, "two ranks of a deep pair", near(2, **deep)))


def run_world(report, plain, function, argument, name, cluster):
    cluster.delay_s = FAR_S
    with cluster:
        function(World(report, plain, cluster, name), argument)
    report.note(f"{function.__name__} is done")


def main(build, part=""):
    if part == "--write":
        plain_texts.write(build)
        return 0
    report, plain, shown = Report(), PlainTexts(), {}
    check_reference(report, plain)
    for option in ("--draft-staged", "--lookup-append"):
        check_word_is_refused(build, report, option)
    with GenerationCluster(build, worker_flags=ONE_THREAD,
                           coordinator_flags=["--draft-staged", "off"]) as cluster:
        reference = decide(cluster)
        is_plain = all(one["staged"] == 0 for done in reference.values() for one in done)
        report.check(is_plain, f"{len(reference)} decisions of a draft that reads nothing ahead")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(run_world, report, plain, *world)
                   for world in worlds(build, reference, shown) if part in world[0].__name__]
        for future in futures:
            future.result()
    if not part:
        report.check(shown[1] == shown[2],
                     "3,2,1, dynamic:3,2,1 and chains:3x4 guess the same on one rank and two")
    return report.status()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
