#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=300
"""Weights of 8 and 4 bits in a real cluster: text with speculation is the text without it, greedy
and `coupled`, on 1, 2 and 4 ranks, with a draft in the same form or in another, and with models
that are stored in that form; and folders that other tools have quantized.

Usage: test_quant_text.py BUILD_FOLDER
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from generations import DRAFT, TARGET, GenerationCluster, Report, golden_prompts, order
from stored_model import write_stored_model

GREEDY_TOKENS = 120
SAMPLED_TOKENS = 80


def texts(cluster, prompts, k, **fields):
    """The ids that follow each prompt, and how many guesses were accepted."""
    done = cluster.generate([order(ids, n_draft=k, ignore_eos=1, **fields) for ids in prompts])
    return [one["ids"] for one in done], sum(one["accepted"] for one in done)


def kinds():
    yield "greedy", {"max_tokens": GREEDY_TOKENS, "temperature": 0}
    yield "coupled", {"max_tokens": SAMPLED_TOKENS, "temperature": 1, "rule": "coupled", "seed": 5}


def check_texts(report, cluster, name, wanted_of, ks, plain):
    prompts = [prompt["ids"] for prompt in golden_prompts()]
    for kind, fields in kinds():
        for k in ks:
            ids, accepted = texts(cluster, prompts, k, **fields)
            wanted = plain.setdefault((wanted_of, kind), ids)
            report.check(ids == wanted and (accepted > 0) == (k > 0),
                         f"{name}, {kind}, K = {k}: {accepted} guesses accepted")


def run(report, build, weights, n_ranks, draft_weights, ks, plain):
    with GenerationCluster(build, n_ranks=n_ranks, worker_flags=["--weights", weights],
                           coordinator_flags=["--weights", draft_weights]) as cluster:
        name = f"{weights}, T = {n_ranks}, draft {draft_weights}"
        report.check(f"arithmetic=cpu-{weights}" in cluster.coordinator.log(),
                     f"{name}: the arithmetic is called cpu-{weights}")
        check_texts(report, cluster, name, weights, ks, plain)


def run_stored(report, build, weights, folder, plain):
    """Target and draft from folders that hold integers; no option says so."""
    stored = {}
    for role, source in (("target", TARGET), ("draft", DRAFT)):
        stored[role] = os.path.join(folder, f"{weights}-{role}")
        subprocess.run([os.path.join(build, "bin", "outrider"), "export", "--quiet", "--weights",
                        weights, source, stored[role]], check=True, timeout=60)
    with GenerationCluster(build, n_ranks=2, **stored) as cluster:
        name = f"stored {weights}, T = 2"
        report.check(f"arithmetic=cpu-{weights}" in cluster.coordinator.log(),
                     f"{name}: the arithmetic is called cpu-{weights}")
        check_texts(report, cluster, name, weights, (0, 4), plain)
    refused = subprocess.run([os.path.join(build, "bin", "outrider-worker"), "--weights", "bf16",
                              "--model", stored["target"], "--listen", f"unix:{folder}/none"],
                             capture_output=True, encoding="utf-8", timeout=60, check=False)
    report.check(refused.returncode != 0 and f"is stored in {weights}" in refused.stderr,
                 f"stored {weights}: --weights bf16 is refused")


def run_blocks(report, build, folder, plain):
    """Folders of other tools: the target in fp8, the draft in integers of 8 bits."""
    target = write_stored_model(os.path.join(folder, "fp8-target"), TARGET, "fp8")
    draft = write_stored_model(os.path.join(folder, "bytes-draft"), DRAFT, "int8")
    for n_ranks, ks in ((1, (0, 4)), (4, (0, 5))):
        with GenerationCluster(build, n_ranks=n_ranks, target=target, draft=draft) as cluster:
            name = f"stored fp8, T = {n_ranks}, draft in int8"
            report.check("arithmetic=cpu-blocks" in cluster.coordinator.log(),
                         f"{name}: the arithmetic is called cpu-blocks")
            check_texts(report, cluster, name, "blocks", ks, plain)
    refused = subprocess.run([os.path.join(build, "bin", "outrider-worker"), "--weights", "int8",
                              "--model", target, "--listen", f"unix:{folder}/none"],
                             capture_output=True, encoding="utf-8", timeout=60, check=False)
    report.check(refused.returncode != 0 and "is stored in blocks" in refused.stderr,
                 "stored fp8: --weights int8 is refused")


def main():
    build = sys.argv[1]
    report = Report()
    plain = {}
    run(report, build, "bf16", 1, "int8", (0, 4), plain)
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        for weights in ("int8", "int4"):
            run(report, build, weights, 1, weights, (0, 1, 3, 5, 8), plain)
            run(report, build, weights, 2, "bf16", (0, 5), plain)
            run(report, build, weights, 4, "int4", (2, 7), plain)
            run_stored(report, build, weights, folder, plain)
            report.check(plain[weights, "coupled"] != plain["bf16", "coupled"],
                         f"{weights} has other bits than bf16: its text is another")
        run_blocks(report, build, folder, plain)
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
