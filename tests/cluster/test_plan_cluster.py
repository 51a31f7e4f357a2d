#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=120
"""`outrider plan --cluster`: what it says of a file, what it refuses, and that a file that a
running cluster fills predicts that cluster. Usage: test_plan_cluster.py BUILD_FOLDER [NAME_PART]"""
import json
import math
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE, Cluster, run_all
from test_client import GREEDY, PROMPT, json_of, ok, refuses

QUESTION = {"groups": 1, "ranks": 1, "clients": 1, "tokens": 100, "k": 0}
PLAN = {
    "name": "a made-up cluster",
    "assumptions": ["nothing fails"],
    "alpha": [0.8, 0.7],
    "guess_us": [[1, 50], [4, 80]],
    "step_us": [[1, 1000], [5, 1200]],
    "collectives": {"per_step": 10, "measured": [{"ranks": 2, "us": 5}]},
    "coordinator": {"us_per_round": 40, "us_per_lane": 5, "rounds_at_once": 1},
    "wire": {"us_per_step": 100, "bytes_per_row": 300},
    "prices": {"rank_hour": 2, "coordinator_hour": 1},
    "questions": [QUESTION, {**QUESTION, "ranks": 2, "k": 1, "link_us": 500},
                  {**QUESTION, "groups": 100, "clients": 400, "k": "best"}],
}


class Written:
    """A plan as a file."""

    def __init__(self, plan):
        self.text = plan if isinstance(plan, str) else json.dumps(plan)

    def __enter__(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            file.write(self.text)
        self.path = file.name
        return self.path

    def __exit__(self, *what):
        os.remove(self.path)


def test_answers(cluster):
    with Written(PLAN) as path:
        plan = json_of(cluster, "plan", "--cluster", path)
        text = ok(cluster.outrider("plan", "--cluster", path)).stdout
    plain, two, many = plan["answers"]
    assert math.isclose(plain["tokens_per_second"], 1e6 / 1140, rel_tol=1e-6), plain
    assert plain["speedup"] == 1 and not plain["step_is_scaled"]
    # 50 + 40 + 100 + 2 * 500 + 1050 / 2 + 10 * 5 for 1.8 tokens
    assert math.isclose(two["round"]["round_us"], 1765, rel_tol=1e-6), two
    assert math.isclose(two["tokens_per_second"], 1.8e6 / 1765, rel_tol=1e-6), two
    assert two["step_is_scaled"]
    assert math.isclose(two["price_per_million_tokens"], 5e6 / 3600 / two["tokens_per_second"],
                        rel_tol=1e-6)
    busy = many["coordinators"]
    assert busy["needed"] > 1 and busy["engine_busy_ratio"] <= 0.8, many
    assert busy["groups_each"] * busy["needed"] >= 100
    for part in ("a made-up cluster", "Assumed: nothing fails", "measured with T = 1", "  2*"):
        assert part in text, text


def test_times_that_fall_promise_no_more_than_the_tokens_of_a_round(cluster):
    """As a busy machine measures them; a round with guesses is no cheaper than one without."""
    plan = {**PLAN, "step_us": [[1, 14304], [4, 7804], [5, 15474]], "guess_us": [[1, 90], [4, 20]],
            "questions": [{**QUESTION, "k": k} for k in (0, 2, 3, "best")]}
    with Written(plan) as path:
        answers = json_of(cluster, "plan", "--cluster", path)["answers"]
    assert answers[0]["speedup"] == 1
    for answer in answers[1:]:
        assert 1 < answer["speedup"] <= answer["round"]["tokens_per_lane"], answer


def test_more_ranks_than_cores_are_said(cluster):
    """On a host that all share; not where ranks have cores of their own."""
    for is_shared in (True, False):
        two = {**QUESTION, "ranks": 2}
        plan = {**PLAN, "host": {"cores": 2, "is_shared": is_shared},
                "questions": [two, {**two, "groups": 2}, {**QUESTION, "groups": 3}]}
        with Written(plan) as path:
            answers = json_of(cluster, "plan", "--cluster", path)["answers"]
            text = ok(cluster.outrider("plan", "--cluster", path)).stdout
        crowded = [answer["ranks_exceed_cores"] for answer in answers]
        assert crowded == [False, is_shared, False], crowded
        assert ("more ranks than the 2 cores of the host" in text) == is_shared, text


def test_refusals(cluster):
    """Whatever is misspelt, of the wrong type or out of range is named."""
    def changed(**more):
        return {**PLAN, **more}

    def asked(**more):
        return changed(questions=[QUESTION, {**QUESTION, **more}])

    cases = [
        ("{", "line 1"),
        ("[]", "not an object"),
        (changed(guesses=[[1, 2]]), '"guesses" is no key'),
        (changed(wire={"us_per_step": 1, "us_per_row_": 1}), 'wire: "us_per_row_" is no key'),
        (changed(wire={}), 'wire: "us_per_step" is missing'),
        (changed(wire={"us_per_step": -1}), '"us_per_step" is -1'),
        (changed(wire={"us_per_step": "1"}), '"us_per_step" is not a number'),
        (changed(alpha=1.5), '"alpha" is no number of 0 to 1'),
        (changed(alpha=[]), '"alpha" is no number of 0 to 1'),
        (changed(alpha=[0.5] * 17), '"alpha" is no number of 0 to 1'),
        (changed(step_us=[[1, 100], [1, 200]]), '"step_us", pair 2'),
        (changed(step_us=[[0, 100]]), '"step_us", pair 1'),
        (changed(step_us=[]), '"step_us" is no list'),
        (changed(collectives={"per_step": 1, "measured": [{"ranks": 1, "us": 1}]}), '"ranks"'),
        (changed(collectives={"per_step": 1, "measured": [{"ranks": 2}]}), '"us" is missing'),
        (changed(host={"cores": 2, "is_shared": 1}), '"is_shared" is not true or false'),
        (changed(assumptions=["x", 1]), '"assumptions" is no list of strings'),
        (changed(questions=[]), '"questions" is no list of 1 to'),
        (asked(ranks=4), "question 2: what a sum among 4 ranks costs"),
        (asked(k=17), '"k"'),
        (asked(k="most"), '"k"'),
        (asked(clients=0), 'question 2: "clients"'),
        (asked(coordinators=2), "2 coordinators are more than 1 groups"),
        (asked(delay=1), 'question 2: "delay" is no key'),
        ({key: value for key, value in PLAN.items() if key != "step_us"}, '"step_us" is missing'),
    ]
    for plan, sentence in cases:
        with Written(plan) as path:
            refuses(cluster, 1, sentence, "plan", "--cluster", path)
    refuses(cluster, 1, "/nowhere", "plan", "--cluster", "/nowhere")
    with Written(PLAN) as path:
        refuses(cluster, 2, "only --json", "plan", "--cluster", path, "--alpha", "0.5")
    refuses(cluster, 2, "needs --measure", "plan", "--cluster-out", "/tmp/x")


def test_the_page_shows_what_is_printed(cluster):
    """docs/scale.md has the tables of the files in deploy/experiments/plans as they are printed,
    and all of their assumptions."""
    with open(os.path.join(SOURCE, "docs", "scale.md"), encoding="utf-8") as file:
        page = file.read()
    words = re.sub(r"\s+", " ", page)
    plans = os.path.join(SOURCE, "deploy", "experiments", "plans")
    assert len(os.listdir(plans)) >= 2
    for name in os.listdir(plans):
        path = os.path.join(plans, name)
        tables = ok(cluster.outrider("plan", "--cluster", path)).stdout.split("\n\n", 1)[1]
        for row in tables.split("\n\n* ")[0].splitlines():
            assert not row or f"    {row}\n" in page, f"{name}: not in docs/scale.md: {row}"
        for assumption in json_of(cluster, "plan", "--cluster", path)["assumptions"]:
            assert assumption[1:] in words, f"{name}: not in docs/scale.md: {assumption}"


def test_a_running_cluster_fills_a_file(cluster):
    """The prediction for one plain stream is the round that was measured."""
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(cluster.build, n_ranks=2) as fresh:
        path = os.path.join(folder, "cluster.json")
        ok(fresh.outrider("generate", PROMPT, "-n", "120", "-K", "0", *GREEDY))
        ok(fresh.outrider("generate", PROMPT, "-n", "120", "-K", "3", *GREEDY))
        done = ok(fresh.outrider("plan", "--measure", fresh.address, "--cluster-out", path))
        assert done.stdout == ""
        told = json_of(fresh, "describe")["planner"]
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        assert plan["ranks"] == 2 and plan["questions"][0]["ranks"] == 2, plan
        assert math.isclose(plan["alpha"][0], told["alpha_by_position"][0], rel_tol=1e-4)
        rows = [at for at, _ in plan["step_us"]]
        assert rows == sorted(rows) and {1, 4} <= set(rows), plan
        best, = json_of(fresh, "plan", "--cluster", path)["answers"]
        parts = best["round"]
        assert parts["compute_us"] >= 1 and parts["draft_us"] >= 0
        round_us = told["step_us"] + told["rtt_us"]
        if best["k"] == 0:
            assert 0.5 < parts["round_us"] / round_us < 2, (parts, told)
        refuses(fresh, 1, "cannot", "plan", "--measure", fresh.address, "--cluster-out",
                os.path.join(folder, "no/such/folder"))


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", globals()))
