#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=300
"""How a user chooses K and sees what the planner knows: --strategy, --threshold, describe and
`plan --measure`, against real clusters. Usage: test_client_plan.py BUILD_FOLDER [PART_OF_A_NAME]
"""
import math
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, run_all
from test_client import GREEDY, PROMPT, json_of, ok, refuses


def test_strategies(cluster):
    plain = json_of(cluster, "generate", PROMPT, "-n", "64", "-K", "0", *GREEDY)
    assert plain["strategy"] == "fixed" and plain["mean_k"] == 0
    for flags, strategy, k in (((), "planned", 16), (("-K", "3"), "fixed", 3),
                               (("--strategy", "fixed"), "fixed", 4),
                               (("--strategy", "planned", "-K", "2"), "planned", 2),
                               (("--strategy", "heuristic"), "heuristic", 16),
                               (("--strategy", "threshold"), "threshold", 16),
                               (("--threshold", "0.7", "-K", "9"), "threshold", 9)):
        r = json_of(cluster, "generate", PROMPT, "-n", "64", *flags, *GREEDY)
        c = r["counters"]
        assert r["token_ids"] == plain["token_ids"], flags
        assert (r["strategy"], r["n_draft"]) == (strategy, k), (flags, r["strategy"], r["n_draft"])
        assert max(len(c["drafted_per_position"]), r["mean_k"]) <= k
        assert math.isclose(r["mean_k"], c["drafted"] / c["rounds"], rel_tol=1e-6)
        assert (r["speculation_off"] == "") == (c["drafted"] > 0), r["speculation_off"]
        wanted = {(): None, ("--strategy", "threshold"): 0.4}.get(flags, 0.7 if "-K" in flags and
                                                                 strategy == "threshold" else None)
        assert r["threshold"] == wanted or math.isclose(r["threshold"], wanted, rel_tol=1e-6)
        planner = r["planner"]
        assert planner["rounds"] > 0 and planner["step_us"] > 0 and planner["rtt_us"] > 0
        assert all(0 <= alpha <= 1 for alpha in planner["alpha_by_position"])
    one = json_of(cluster, "generate", PROMPT, "-n", "1", *GREEDY)
    assert "one token" in one["speculation_off"] and one["counters"]["drafted"] == 0
    done = ok(cluster.outrider("generate", PROMPT, "-n", "40", "--strategy", "heuristic",
                               "--stats", *GREEDY))
    assert re.search(r"^strategy +heuristic, K up to 16, mean K \d", done.stderr, re.M), done.stderr
    assert re.search(r"^planner +guess \d+ us, step \d+ us", done.stderr, re.M), done.stderr


def test_sure_thresholds(cluster):
    """A threshold that no guess reaches leaves one guess a round; a threshold of 0 never stops."""
    r = json_of(cluster, "generate", PROMPT, "-n", "48", "--threshold", "1", "--seed", "3")
    assert len(r["counters"]["drafted_per_position"]) <= 2 and r["counters"]["drafted"] > 0
    r = json_of(cluster, "generate", PROMPT, "-n", "48", "--threshold", "0", "-K", "5",
                "--seed", "3")
    assert r["counters"]["drafted_per_position"][4] > 0


def test_a_threshold_with_another_strategy_is_refused(cluster):
    """Also where the client gives no strategy: K alone means fixed, the default is planned."""
    def ask(order):
        return subprocess.run([os.path.join(cluster.build, "tests", "prog_generate"),
                               cluster.address], input=f"ids=338 max_tokens=4 {order}\n",
                              capture_output=True, encoding="utf-8", timeout=30, check=False)

    for strategy in ("planned", "fixed", "heuristic"):
        refused = ask(f"threshold=0.5 strategy={strategy}")
        assert refused.returncode == 1 and f"the strategy is {strategy}" in refused.stderr, refused
        assert "threshold of 0.5" in refused.stderr, refused.stderr
    assert '"strategy":"threshold"' in ask("threshold=0.5 n_draft=3").stdout
    assert '"strategy":"fixed"' in ask("n_draft=3").stdout
    assert '"strategy":"planned"' in ask("").stdout


def test_plan_measures_a_running_cluster(cluster):
    with Cluster(cluster.build) as fresh:
        # A busy machine may leave the calibration no time for a round either.
        refuses(fresh, 1, "yet: run `outrider generate", "plan", "--measure", fresh.address)
        ok(fresh.outrider("generate", PROMPT, "-n", "80", "-K", "0", *GREEDY))
        refuses(fresh, 1, "has not measured a guess yet", "plan", "--measure", fresh.address)
        half = json_of(fresh, "plan", "--measure", fresh.address, "--alpha", "0.5", "--c", "0.1")
        assert half["rounds_measured"] >= 79 and half["rtt"] > 0
        ok(fresh.outrider("generate", PROMPT, "-n", "80", "-K", "4", *GREEDY))
        told = json_of(fresh, "describe")["planner"]
        plan = json_of(fresh, "plan", "--measure", fresh.address)
        assert told["draft_us"] > 0 and 0 < told["alpha"] < 1
        for name, value in (("alpha", told["alpha"]), ("c", told["draft_us"] / told["step_us"]),
                            ("row", told["row_us"] / told["step_us"]),
                            ("rtt", told["rtt_us"] / told["step_us"])):
            assert math.isclose(plan[name], value, rel_tol=1e-5), (name, plan, told)
        mine = json_of(fresh, "plan", "--measure", fresh.address, "--alpha", "0.9")
        assert math.isclose(mine["alpha"], 0.9, rel_tol=1e-6) and mine["c"] == plan["c"]
        table = ok(fresh.outrider("plan", "--measure", fresh.address)).stdout
        assert "measured in" in table and "best" in table
        shown = ok(fresh.outrider("describe")).stdout
        assert re.search(r"^rounds measured +\d+$", shown, re.M) and "by position" in shown, shown
    with Cluster(cluster.build, draft=None) as alone:
        refuses(alone, 1, "no draft model", "plan", "--measure", alone.address)
    refuses(cluster, 1, "start outrider serve", "plan", "--measure", "127.0.0.1:9")


def test_the_coordinators_strategy(cluster):
    with Cluster(cluster.build, coordinator_flags=["--strategy", "threshold", "--threshold", "0.25",
                                                   "-K", "6"]) as other:
        r = json_of(other, "generate", PROMPT, "-n", "16", *GREEDY)
        assert (r["strategy"], r["n_draft"], r["threshold"]) == ("threshold", 6, 0.25)
        r = json_of(other, "generate", PROMPT, "-n", "16", "--strategy", "fixed", *GREEDY)
        assert (r["strategy"], r["n_draft"], r["threshold"]) == ("fixed", 6, None)
        r = json_of(other, "generate", PROMPT, "-n", "16", "-K", "2", *GREEDY)
        assert (r["strategy"], r["n_draft"]) == ("fixed", 2)
        about = json_of(other, "describe")
        assert about["default_strategy"] == "threshold" and about["default_n_draft"] == 6


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", globals()))
