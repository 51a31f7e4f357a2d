#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=600
"""Guesses that are looked up change no text: greedy and `coupled`, without a draft model and with
one, alone and in company, on one rank and two, for every strategy, and where texts lose their
places again and again. Everything is compared with one rank that decodes plainly (K = 0).

Usage: test_lookup.py BUILD_FOLDER
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster
from generations import DRAFT, TARGET, GenerationCluster, Report, golden_prompts, order

N_TOKENS = 120
N_PROMPTS = 6
SEEDS = (11, 12)
TEXTS = {"greedy": {"temperature": 0}, "coupled": {"temperature": 0.7, "rule": "coupled"}}
WAYS = {"planned": {"strategy": "planned", "n_draft": 16}, "K = 5": {"n_draft": 5},
        "heuristic": {"strategy": "heuristic", "n_draft": 16},
        "threshold": {"strategy": "threshold", "n_draft": 8}}
WORKER = ["--threads", "1"]
# As few KV blocks as one text needs, so that eight texts are in each other's way.
SMALL = WORKER + ["--kv-tokens", "640"]


def prompts():
    """Texts that say the same twice: there is something to find from the first token on."""
    return [one["ids"][:12] * 2 for one in golden_prompts()[:N_PROMPTS]]


def orders(text, way):
    return [order(ids, seed=seed, max_tokens=N_TOKENS, ignore_eos=1, **TEXTS[text], **way)
            for seed in SEEDS for ids in prompts()]


def make_plain(build):
    with GenerationCluster(build, target=TARGET, draft="none", worker_flags=WORKER,
                           coordinator_flags=["--tokenizer", TARGET, "--lookup", "none"]) as world:
        return {text: [one["ids"] for one in world.generate(orders(text, {"n_draft": 0}))]
                for text in TEXTS}


def check(report, name, world, plain, in_flight, has_draft):
    """Each way; what the strategies but planned guess is found only where there is no draft.
    Returns how often a text lost its place."""
    n_preempted = n_found = 0
    for text in TEXTS:
        for way, fields in WAYS.items():
            done = world.generate(orders(text, fields), in_flight=in_flight)
            n_other = sum(one["ids"] != ids for one, ids in zip(done, plain[text]))
            drafted, found = (sum(one[key] for one in done) for key in ("drafted", "found"))
            kept = sum(one["found_accepted"] for one in done)
            n_preempted += sum(one["preemptions"] for one in done)
            is_right = found == drafted if not has_draft else way == "planned" or found == 0
            is_right &= found > 0 or has_draft
            n_found += found
            report.check(is_right and n_other == 0 and 0 <= kept <= found,
                         f"{name}, {in_flight} at once, {text}, {way}: {drafted} guesses, {found} "
                         f"found, {kept} of those stay" +
                         (f"; {n_other} of {len(done)} texts differ" if n_other else ""))
    # In company a draft may be worth more in every round, on some machines.
    report.check(n_found > 0 or has_draft and in_flight > 1,
                 f"{name}, {in_flight} at once: {n_found} guesses are found")
    return n_preempted


def check_store(build, report, plain):
    """A store alone knows nothing of the first texts, and all of the same ones when they come
    again."""
    with GenerationCluster(build, target=TARGET, draft="none", worker_flags=WORKER,
                           coordinator_flags=["--tokenizer", TARGET, "--lookup",
                                              "store"]) as world:
        for text in TEXTS:
            rounds = []
            for _ in range(2):
                done = world.generate(orders(text, WAYS["planned"]), in_flight=1)
                n_other = sum(one["ids"] != ids for one, ids in zip(done, plain[text]))
                rounds.append(sum(one["rounds"] for one in done))
            found, kept = (sum(one[key] for one in done) for key in ("found", "found_accepted"))
            report.check(n_other == 0 and kept > found / 2 and rounds[1] < rounds[0] / 2,
                         f"store alone, {text}: {rounds[0]} rounds, and {rounds[1]} for the same "
                         f"texts again; {kept} of {found} guesses stay")


def drafter_tokens(world, name, drafter):
    page = urllib.request.urlopen(f"{world.url}/metrics", timeout=30).read().decode()
    return int(re.search(rf'^outrider_{name}{{.*drafter="{drafter}".*}} (\d+)', page, re.M)[1])


def check_alone(build, report, plain, lookup, one_in):
    """A finder that learns from what the target says, alone: it guesses for planned texts only, no
    text differs, and of the guesses for a lone text more than one in `one_in` stays."""
    with GenerationCluster(build, target=TARGET, draft="none", worker_flags=WORKER, http=True,
                           coordinator_flags=["--tokenizer", TARGET, "--lookup", lookup]) as world:
        n_drafted = n_kept = 0
        for text in TEXTS:
            for in_flight in (1, 16):
                done = world.generate(orders(text, WAYS["planned"]), in_flight=in_flight)
                n_other = sum(one["ids"] != ids for one, ids in zip(done, plain[text]))
                found, kept = (sum(one[key] for one in done) for key in ("found", "found_accepted"))
                n_drafted, n_kept = n_drafted + found, n_kept + kept
                report.check(n_other == 0 and kept <= found == sum(one["drafted"] for one in done)
                             and (in_flight > 1 or kept > found / one_in > 0),
                             f"{lookup} alone, {in_flight} at once, {text}: {kept} of {found} "
                             f"guesses stay; {n_other} texts differ")
        fixed = sum(one["found"] for one in world.generate(orders("greedy", WAYS["K = 5"])))
        report.check(fixed == 0, f"{lookup} alone, K = 5: {fixed} guesses")
        counted = [drafter_tokens(world, name, lookup)
                   for name in ("drafter_tokens_total", "drafter_accepted_tokens_total")]
        report.check(counted == [n_drafted, n_kept], f"the metrics count {counted}")


def check_keys(build, report, flags, name):
    """A text whose tokens are all different finds only what other texts have taught."""
    with tempfile.TemporaryDirectory(prefix="outrider-lookup-") as folder:
        path = os.path.join(folder, "keys")
        program = os.path.join(build, "bin", "outrider")
        alice, bob = (subprocess.run([program, "key", "add", path, who], capture_output=True,
                                     encoding="utf-8", check=True).stdout.split()[0]
                      for who in ("alice", "bob"))

        def found(key, n_tokens):
            run = world.outrider("generate", "--json", "--temperature", "0", "-n", str(n_tokens),
                                 "Once upon a time", environment={"OUTRIDER_API_KEY": key})
            answer = json.loads(run.stdout)
            return answer["counters"]["found"], answer["token_ids"]

        with Cluster(build, target=TARGET, draft="none", worker_flags=WORKER,
                     environment={"OUTRIDER_API_KEY": alice},
                     coordinator_flags=["--tokenizer", TARGET, "--lookup", "recycled",
                                        "--keys", path, *flags]) as world:
            world.wait_serving()
            ids = found(alice, 40)[1]
            n = next((i for i in range(len(ids)) if ids[i] in ids[:i]), len(ids))
            again = sum(found(alice, n)[0] for _ in range(10))
            others = found(bob, n)[0]
            if flags:
                others += sum(found(bob, n)[0] for _ in range(9))
            report.check(n >= 8 and again > 0 and (others > 0) == bool(flags),
                         f"{name}: {n} different tokens, {again} guesses for the key that had them "
                         f"before, and {others} for another")


def check_datastore(build, report):
    """A file of texts is found in until it is cut, as cp cuts one that it writes over: then the
    finder is lost, with one warning, and the text is the same."""
    with tempfile.TemporaryDirectory(prefix="outrider-lookup-") as folder:
        text, file = os.path.join(folder, "text"), os.path.join(folder, "datastore")

        def answer(world):
            run = world.outrider("generate", "--json", "--temperature", "0", "-n", "60",
                                 "Once upon a time")
            return json.loads(run.stdout)

        with Cluster(build, target=TARGET, draft="none", worker_flags=WORKER,
                     coordinator_flags=["--tokenizer", TARGET, "--lookup", "none"]) as world:
            plain = answer(world)
        with open(text, "w", encoding="utf-8") as out:
            out.write(("Once upon a time" + plain["text"] + "\n") * 200)
        subprocess.run([os.path.join(build, "bin", "outrider"), "datastore", "build", "-m", TARGET,
                        "-o", file, text], check=True, capture_output=True)
        with Cluster(build, target=TARGET, draft="none", worker_flags=WORKER,
                     coordinator_flags=["--tokenizer", TARGET, "--lookup",
                                        f"datastore={file}"]) as world:
            answers = [answer(world)]
            os.truncate(file, 100)
            answers += [answer(world) for _ in range(2)]
            found = [one["counters"]["found"] for one in answers]
            is_same = all(one["token_ids"] == plain["token_ids"] for one in answers)
            n_warnings = world.coordinator.log().count("datastore_lost")
            report.check(found[0] > 0 and found[2] == 0 and is_same and n_warnings == 1,
                         f"a datastore that is cut after the first of three texts: {found} guesses "
                         f"are found, {n_warnings} warnings, "
                         f"{'the same text' if is_same else 'other texts'}")


def main():
    build = sys.argv[1]
    report = Report()
    plain = make_plain(build)
    worlds = [("none", 1, WORKER, (1, 16), "session"), ("none", 2, WORKER, (16,), "session"),
              ("none", 1, SMALL, (16,), "session"), (DRAFT, 1, WORKER, (1, 16), "session"),
              ("none", 1, WORKER, (1, 16), "session,store"),
              ("none", 1, SMALL, (16,), "session,recycled"),
              ("none", 1, SMALL, (16,), "session,lookahead"),
              (DRAFT, 1, WORKER, (16,), "store,session,recycled,lookahead")]
    for draft, n_ranks, worker, in_flights, lookup in worlds:
        name = f"T = {n_ranks}, {'no draft' if draft == 'none' else 'tales draft'}, {lookup}"
        name += ", little KV" if worker is SMALL else ""
        with GenerationCluster(build, target=TARGET, draft=draft, n_ranks=n_ranks,
                               worker_flags=worker,
                               coordinator_flags=["--tokenizer", TARGET, "--lookup",
                                                  lookup]) as world:
            n = sum(check(report, name, world, plain, in_flight, draft != "none")
                    for in_flight in in_flights)
            if worker is SMALL:
                report.check(n > 0, f"{name}: {n} times a text lost its place")
    check_store(build, report, plain)
    check_alone(build, report, plain, "recycled", 20)
    check_alone(build, report, plain, "lookahead", 40)
    check_datastore(build, report)
    check_keys(build, report, [], "each key has its own lists")
    check_keys(build, report, ["--store-shared"], "--store-shared")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
