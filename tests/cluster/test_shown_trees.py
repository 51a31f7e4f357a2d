#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=300
"""Texts whose rounds are shown have trees of guesses as all others: showing changes no text, what
is listed is what was counted, the marks add up to the text, and HTTP and /metrics agree with gRPC.
The ranks are far away, so that trees pay on every machine.

Usage: test_shown_trees.py BUILD_FOLDER
"""
import itertools
import json
import re
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from cluster import wait_until
from far_cluster import FarCluster
from terminal import Terminal

BUILD = sys.argv[1]
PROMPTS = ("Once upon a time", "Once upon a time there was a king who", "The fox said")
N_TOKENS = "120"
WAYS = {"greedy": ["--temperature", "0"], "coupled": ["--temperature", "0.9", "--seed", "7"],
        "rejection": ["--temperature", "0.9", "--rule", "rejection"],
        "block": ["--temperature", "0.9", "--rule", "block"]}
DRAWN = ("rejection", "block")  # guesses are drawn from the draft's q
# Trees as the planner chooses them, where few guesses may follow siblings, and with 3, 9 and 9
# guesses for the places, as q says.
SHAPES = ((), ("--strategy", "fixed", "-K", "3"))
PATIENCE_S = 60
BRANCH = 4  # the "sibling" of the guesses of a second chain
GROWN = 5  # from here on: after siblings, a guess and its siblings

world = None


class Far(FarCluster):
    delay_s = 0.004


def setUpModule():
    global world
    world = Far(BUILD, http=True, worker_flags=["--threads", "1"],
                coordinator_flags=["--trees", "dynamic:3,3,1"])
    world.__enter__()
    # The planner has to learn first that siblings pay.
    wait_until(lambda: generate(PROMPTS[0], "greedy")["counters"]["siblings"] > 0, PATIENCE_S,
               "there are trees")


def tearDownModule():
    world.__exit__(None, None, None)


def run(prompt, way, *more):
    done = world.outrider("generate", prompt, "-n", N_TOKENS, "--ignore-eos", "-q", *WAYS[way],
                          *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def generate(prompt, way, *more):
    return json.loads(run(prompt, way, "--json", *more))


def guesses_of(steps):
    """Returns the guesses of all rounds, with what became of each in "stayed"."""
    return [{**guess, "stayed": i < step["round"]["kept"]}
            for step in steps for i, guess in enumerate(step["round"]["guesses"])]


def count(guesses, is_sibling, stayed=(True, False)):
    return sum((guess["sibling"] > 0) == is_sibling and guess["stayed"] in stayed
               for guess in guesses)


class Rounds(unittest.TestCase):
    def check_grown(self, told, place, is_drawn):
        """Checks guesses after siblings for a place. The message names the parents of those that
        were tried: that is the guess before that was accepted. is_drawn: from q, without
        replacement."""
        guesses, kept = told["guesses"], told["kept"]
        own = [guess for guess in guesses
               if guess["place"] == place and guess["sibling"] >= GROWN]
        numbers = [guess["sibling"] for guess in own]
        n_with = [numbers.count(number) for number in range(GROWN, GROWN + BRANCH)]
        self.assertEqual(sum(n_with), len(own), numbers)
        self.assertEqual(n_with, sorted(n_with, reverse=True), "none without those before it")
        parents = [guess for guess in guesses if guess["place"] == place - 1 and
                   guess["sibling"] not in (0, BRANCH)]
        self.assertLessEqual(n_with[0], len(parents), "each first guess has a parent of its own")
        for guess in own:
            self.assertTrue(0 < guess["q"] <= 1 or not is_drawn and guess["sibling"] > GROWN, guess)
        self.assertLessEqual(sum(guess["q"] for guess in own), n_with[0] + 1e-4, own)
        tried = [guess for guess in own if "untried" not in guess]
        if tried:
            self.assertLessEqual(place, kept)
            self.assertNotIn(guesses[place - 1]["sibling"], (0, BRANCH))
        if kept > place and guesses[place]["sibling"] >= GROWN:
            self.assertIn(guesses[place], tried)
        for siblings in (tried, own if n_with[0] == 1 else []):
            self.assertEqual(sorted(guess["sibling"] for guess in siblings),
                             list(range(GROWN, GROWN + len(siblings))))
            ids = [guess["id"] for guess in siblings]
            self.assertEqual(len(set(ids)), len(ids), "siblings differ")
            self.assertLessEqual(sum(guess["q"] for guess in siblings), 1 + 1e-4, siblings)
            self.assertLessEqual(sum(guess.get("p", 0) for guess in siblings), 1 + 1e-4, siblings)
        return len(own)

    def check_tree(self, told):
        """A chain whose guesses have siblings, listed as the protocol says."""
        guesses, kept = told["guesses"], told["kept"]
        where = [(guess["place"], guess["sibling"]) for guess in guesses]
        self.assertEqual([place for place, _ in where[:kept]], list(range(kept)))
        path = [sibling for _, sibling in where[:kept]]
        n_chain = sum(sibling == 0 for sibling in path)
        self.assertFalse(any(path[:n_chain]), "the chain comes first")
        behind = path[n_chain + 1:]
        self.assertTrue(all(sibling == BRANCH for sibling in behind) or
                        path[n_chain] < BRANCH and all(sibling >= GROWN for sibling in behind),
                        "a second chain or the draft's guesses go on behind a sibling")
        self.assertFalse({BRANCH, GROWN} <= {sibling for _, sibling in where},
                         "where siblings go on there is no second chain")
        self.assertEqual(where[kept:], sorted(where[kept:]))
        chain = [place for place, sibling in where if sibling == 0]
        self.assertEqual(sorted(chain), list(range(len(chain))))
        for place in chain:
            own = [guess for guess in guesses
                   if guess["place"] == place and guess["sibling"] < BRANCH]
            self.assertEqual(sorted(guess["sibling"] for guess in own), list(range(len(own))))
            ids = [guess["id"] for guess in own]
            self.assertEqual(len(set(ids)), len(ids), "siblings differ")
        for guess in guesses:
            self.assertTrue(0 <= guess["q"] <= 1 and 0 <= guess.get("p", 0) <= 1, guess)
            self.assertTrue(guess["sibling"] < GROWN or guess["place"] > 0, "behind a sibling")

    def check_counts(self, made):
        """The guesses that are listed are those that were counted."""
        counters, guesses = made["counters"], guesses_of(made["steps"])
        for key, is_sibling, stayed in (("drafted", False, (True, False)),
                                        ("accepted", False, (True,)),
                                        ("siblings", True, (True, False)),
                                        ("siblings_accepted", True, (True,))):
            self.assertEqual(count(guesses, is_sibling, stayed), counters[key], key)

    def test_showing_changes_no_text(self):
        n_siblings = n_accepted = 0
        for way in ("greedy", "coupled"):
            for prompt in PROMPTS:
                plain = generate(prompt, way, "-K", "0")
                for more in ((), ("--show-drafts",)):
                    made = generate(prompt, way, *more)
                    self.assertEqual(made["token_ids"], plain["token_ids"], (way, prompt, more))
                self.check_counts(made)
                n_siblings += made["counters"]["siblings"]
                n_accepted += made["counters"]["siblings_accepted"]
        print(f"{n_siblings} siblings were shown, of which {n_accepted} stayed", file=sys.stderr)
        self.assertGreater(n_siblings, n_accepted)
        self.assertGreater(n_accepted, 0)

    def test_rounds_are_trees_under_every_rule(self):
        n_grown = 0
        for way in WAYS:
            n_siblings = 0
            for prompt, shape in itertools.product(PROMPTS, SHAPES):
                made = generate(prompt, way, *shape, "--show-drafts")
                self.check_counts(made)
                n_siblings += made["counters"]["siblings"]
                ids = []
                for step in made["steps"]:
                    told = step["round"]
                    self.check_tree(told)
                    n_grown += sum(self.check_grown(told, place, way in DRAWN)
                                   for place in {guess["place"] for guess in told["guesses"]})
                    tokens = [token["id"] for token in step["tokens"]]
                    kept = [guess["id"] for guess in told["guesses"][:told["kept"]]]
                    self.assertEqual(tokens[:len(kept)], kept[:len(tokens)])
                    ids += tokens
                self.assertEqual(ids, made["token_ids"])
            self.assertGreater(n_siblings, 0, way)
        print(f"{n_grown} guesses behind siblings were shown", file=sys.stderr)
        self.assertGreater(n_grown, 100)

    def test_p_and_q_of_siblings(self):
        """Under rejection the draft's guesses for a place are drawn from one q without replacement,
        and p is known where somebody has tried a guess. What is found has a q of 1."""
        n = 0
        for prompt, shape in itertools.product(PROMPTS, SHAPES):
            for step in generate(prompt, "rejection", *shape, "--show-drafts")["steps"]:
                guesses, kept = step["round"]["guesses"], step["round"]["kept"]
                end = sum(guess["sibling"] == 0 for guess in guesses[:kept])
                for guess in guesses:
                    self.assertEqual("p" in guess, "untried" not in guess, guess)
                    if guess["sibling"] < BRANCH:
                        self.assertEqual("p" in guess, guess["place"] <= end, guess)
                    if guess["sibling"] >= GROWN and "p" in guess:
                        self.assertTrue(end < guess["place"] <= kept, guess)
                for place in {guess["place"] for guess in guesses}:
                    own = [guess for guess in guesses
                           if guess["place"] == place and guess["sibling"] < BRANCH]
                    self.assertTrue(all(guess["q"] > 0 for guess in own), own)
                    is_drawn = step["round"]["drafter"] == "model"
                    self.assertLessEqual(sum(guess["q"] for guess in own),
                                         1 + 1e-4 if is_drawn else len(own))
                    n += len(own) > 1
        self.assertGreater(n, 0)


class Marks(unittest.TestCase):
    def test_they_add_up_to_the_text(self):
        n_siblings = 0
        for prompt in PROMPTS:
            shown = run(prompt, "coupled", "--show-drafts")
            made = generate(prompt, "coupled", "--show-drafts")
            self.assertNotRegex(made["text"], r"[\[\]{}<>|]", "the text has no marks of its own")
            text = re.sub(r"\{-.*?-\}", "", shown)
            text = re.sub(r"\{\+(.*?)\+\}", r"\1", text, flags=re.S)
            self.assertEqual(re.sub(r"[\[\]<>|]", "", text), made["text"])
            # The sibling that is accepted comes after the guess that was rejected, and is followed
            # by the guesses that are accepted after it.
            self.assertNotIn("[|", re.sub(r"(?<=-\})(\[\|[^\]]*\])+", "", shown))
            n_siblings += shown.count("[|")
        self.assertGreater(n_siblings, 0)

    def test_colours(self):
        plain = run(PROMPTS[0], "coupled")
        command = world.command("generate", PROMPTS[0], "-n", N_TOKENS, "--ignore-eos", "-q",
                                "--no-echo", "--show-drafts", *WAYS["coupled"])
        with Terminal() as terminal:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=terminal.side,
                           stderr=subprocess.DEVNULL, check=True, timeout=PATIENCE_S,
                           env=world.client_environment(TERM="xterm"))
            shown = terminal.shown()
        self.assertIn("\033[32;4m", shown)
        text = re.sub(r"\033\[(31;9|2)m.*?\033\[0m", "", shown)
        self.assertEqual(re.sub(r"\033\[[\d;]+m", "", text), plain + "\n")


class Http(unittest.TestCase):
    def chunks(self, prompt):
        body = {"prompt": prompt, "max_tokens": int(N_TOKENS), "temperature": 0.9, "seed": 7,
                "stream": True, "ignore_eos": True, "outrider": {"show_drafts": True}}
        request = urllib.request.Request(f"{world.url}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    def test_stream_tells_what_grpc_tells(self):
        n_siblings = 0
        for prompt in PROMPTS:
            chunks = self.chunks(prompt)
            text = "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"])
            self.assertEqual(text, generate(prompt, "coupled")["text"])
            told = [chunk["outrider"] for chunk in chunks if "outrider" in chunk]
            guesses = guesses_of([one for one in told if "round" in one])
            summary = next(one for one in told if "siblings" in one)
            self.assertEqual(count(guesses, True), summary["siblings"])
            self.assertEqual(count(guesses, True, (True,)), summary["siblings_accepted"])
            self.assertEqual(count(guesses, False), summary["drafted"])
            self.assertEqual(count(guesses, False, (True,)), summary["accepted"])
            self.assertEqual(len(summary["tested_per_position"]) > 0, summary["drafted"] > 0)
            n_siblings += summary["siblings"]
        self.assertGreater(n_siblings, 0)


class Metrics(unittest.TestCase):
    NAMES = {"sibling_tokens_total": "siblings",
             "sibling_accepted_tokens_total": "siblings_accepted",
             "spec_decode_num_draft_tokens_total": "drafted",
             "spec_decode_num_accepted_tokens_total": "accepted",
             "spec_decode_num_accepted_tokens_per_pos_total": "accepted"}

    def totals(self):
        with urllib.request.urlopen(f"{world.url}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        return {name: sum(float(value) for value in
                          re.findall(rf"^outrider_{name}\{{.*\}} (\S+)$", page, re.M))
                for name in self.NAMES}

    def test_siblings_are_counted_beside_the_chain(self):
        before = self.totals()
        made = [generate(prompt, way)["counters"] for prompt in PROMPTS for way in WAYS]
        after = self.totals()
        self.assertGreater(sum(counters["siblings_accepted"] for counters in made), 0)
        for name, key in self.NAMES.items():
            self.assertEqual(after[name] - before[name], sum(counters[key] for counters in made),
                             name)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, warnings="ignore")
