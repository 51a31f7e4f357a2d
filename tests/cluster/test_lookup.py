#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=300
"""Guesses that are found in what other texts have said belong to the key that asked, and a
datastore that is lost while it is used costs no text. test_matrix.py compares the texts of all
finders with plain ones.

Usage: test_lookup.py BUILD_FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster
from generations import TARGET, Report

WORKER = ["--threads", "1"]


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
    check_datastore(build, report)
    check_keys(build, report, [], "each key has its own lists")
    check_keys(build, report, ["--store-shared"], "--store-shared")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
