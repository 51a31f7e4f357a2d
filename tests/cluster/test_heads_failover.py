#!/usr/bin/env python3
# ctest: labels=full libs=coordinator beside=yes cores=2 timeout=300
"""A group is lost while a head guesses. The texts that run end with one sentence, as with a draft
model, and those that had lost their place before go on with another group as if nothing had
happened. For a group that comes back the head guesses what it would have guessed anyway: from KV
that it has read with features of the lost group, and with features that the one has projected and
the other has not. Usage: test_heads_failover.py BUILD_FOLDER [TEST...]"""
import json
import os
import shutil
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import TALES, bound, wait_until
from far_cluster import FarRanks
from fault_util import (BUILD, PATIENCE, PROMPT, SLOW_STEPS, FaultTest, Stream, World,
                        main)
from fleet import Fleet
from safetensors_file import read_tensors, write_tensors

TARGET, HEAD = os.path.join(TALES, "target"), os.path.join(TALES, "head")
WITH_HEAD = ["--head", HEAD, "--head-unchecked", "--tokenizer", TARGET]
PROMPTS = [PROMPT, "In a dark wood there lived an old",
           "The old woman said to her", "A poor miller had three sons, and"]
SHORT, LONG, CONTEXT = 60, 800, 1024
GREEDY = ["--ignore-eos", "--temperature", "0", "-K", "4", "--json"]
DECISIONS = ("rounds", "drafted", "accepted", "rejections", "accepted_per_position")
BLOCK = 16


def as_option(ids):
    return ["--prompt-ids", ",".join(map(str, ids))]


def write_other_target(folder):
    """The tales target, but for its last layer's MLP, which adds nothing."""
    shutil.copytree(TARGET, folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = read_tensors(path)
    name = "model.layers.5.mlp.down_proj.weight"
    dtype, shape, data = tensors[name]
    write_tensors(path, {**tensors, name: (dtype, shape, bytes(len(data)))})
    return folder


class FarWorld(FarRanks, World):
    """A text of a thousand tokens takes at least 15 s."""
    delay_s = 0.02


class Heads(FaultTest):
    def take(self, status, output, errors):
        """(ids, decisions, counters) of a text that has been made."""
        self.assertEqual(status, 0, errors)
        told = json.loads(output)
        counters = told["counters"]
        self.assertTrue(0 < counters["accepted"] < counters["drafted"])
        return told["token_ids"], {key: counters[key] for key in DECISIONS}, counters

    def make(self, n_tokens, *prompt):
        done = self.world.outrider("generate", *prompt, "-n", str(n_tokens), *GREEDY)
        return self.take(done.returncode, done.stdout, done.stderr)

    def lines(self, event, part=""):
        return [line for line in self.world.logs()["coordinator.log"].splitlines()
                if f" {event} " in line and part in line]

    def line_after(self, n, event, part=""):
        """The line after the first n of these: it may be written a little later than what it tells
        is seen."""
        return wait_until(lambda: self.lines(event, part)[n:], 15 * PATIENCE,
                          f"{event} is logged")[0]

    def test_text_ends_and_the_next_group_gets_the_same_guesses(self):
        self.world = world = FarWorld(n_ranks=2, draft=None, coordinator_flags=WITH_HEAD)
        self.addCleanup(world.leave)
        world.start()
        prompt = [int(word) for word in
                  world.outrider("tokenize", "-m", TARGET, "--ids", PROMPT).stdout.split(",")]
        first, decisions, _ = self.make(SHORT, *as_option(prompt))
        # Ends in a block, so that the head has to read some of it with features.
        middle = len(prompt) + SHORT // 2
        longer = (prompt + first)[:middle + (middle % BLOCK == 0)]
        rest, later_decisions, _ = self.make(SHORT, *as_option(longer))
        self.assertEqual(rest[:20], first[len(longer) - len(prompt):][:20])
        for n_lost, (features, flags) in enumerate((("projected", ["--head", HEAD]),
                                                    ("plain", []))):
            stream = Stream(world, "-n", str(CONTEXT - len(prompt)), *GREEDY[:-1])
            stream.process.stdout.read(100) # characters, which take rounds with guesses
            world.kill_rank(1)
            world.wait_not_serving(PATIENCE)
            self.check_failure(*stream.end(6), "lost rank")
            self.assertRegex(self.line_after(n_lost, "job_end", 'end="unavailable"'),
                             " k_mean=[1-4]")
            world.worker_flags = flags
            n_ready = len(self.lines("target_ready"))
            world.restart_workers()
            self.assertIn(f" features={features} ", self.line_after(n_ready, "target_ready"))
            for ids, wanted in ((longer, (rest, later_decisions)), (prompt, (first, decisions))):
                *found, counters = self.make(SHORT, *as_option(ids))
                self.assertEqual(tuple(found), wanted)
                if ids == longer: # the first text of the new group
                    self.assertEqual(counters["target_reused"], 0)
                    self.assertGreaterEqual(counters["draft_reused"], 2 * BLOCK)
        self.check_another_model(longer)
        self.check_logs(world)

    def check_another_model(self, prompt):
        """KV that the head has made of features of one model is not used with another's."""
        world = self.world
        world.target = write_other_target(os.path.join(world.folder, "other"))
        world.kill_rank(1)
        world.wait_not_serving(PATIENCE)
        world.restart_workers()
        *found, counters = self.make(SHORT, *as_option(prompt))
        self.assertEqual(counters["draft_reused"], 0)
        world.coordinator.stop()
        world.start_coordinator()
        world.wait_serving()
        *anew, _ = self.make(SHORT, *as_option(prompt))
        self.assertEqual(found, anew)

    def test_texts_that_have_lost_their_place_go_on_with_another_group(self):
        """The coordinator uses one of two groups at a time, and its KV is too little for all."""
        self.world = fleet = Fleet(BUILD, (1, 1), draft=None,
                                   worker_flags=[*SLOW_STEPS, "--kv-tokens", str(CONTEXT)],
                                   coordinator_flags=[*WITH_HEAD, "--groups", "1"])
        self.addCleanup(fleet._leave, False)
        for group in fleet.groups:
            group.start()
        fleet.start_coordinator()
        fleet.wait_groups(1, 60 * PATIENCE)
        fleet.wait_measured()
        wanted = [self.make(LONG, prompt)[:2] for prompt in PROMPTS]
        n_ended = fleet.described()["load"]["ends"]["length"]
        clients = [fleet.popen("generate", prompt, "-n", str(LONG), *GREEDY,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, encoding="utf-8") for prompt in PROMPTS]
        for client in clients:
            self.addCleanup(client.kill)
        wait_until(lambda: self.waiting_again(fleet) > 0, 60 * PATIENCE, "a text loses its place")
        [lost] = [group for group in fleet.groups if fleet.serves(group)]
        self.assertEqual(fleet.described()["load"]["ends"]["length"], n_ended)
        lost.kill()
        n_moved = 0
        for client, (ids, decisions) in zip(clients, wanted):
            output, errors = client.communicate(timeout=bound(60 * PATIENCE))
            if client.returncode:
                self.check_failure(client.returncode, errors, "lost rank")
                continue
            found, found_decisions, counters = self.take(client.returncode, output, errors)
            self.assertEqual((found, found_decisions), (ids, decisions))
            self.assertGreater(counters["preemptions"], 0)
            n_moved += 1
        self.assertTrue(0 < n_moved < len(clients), f"{n_moved} texts go on")
        self.assertFalse(fleet.serves(lost))
        self.check_logs(fleet)

    @staticmethod
    def waiting_again(fleet):
        with urllib.request.urlopen(fleet.url + "/metrics", timeout=bound(10)) as page:
            lines = page.read().decode().splitlines()
        [value] = [line.rpartition(" ")[2] for line in lines
                   if line.startswith("outrider_sequences_waiting_again")]
        return float(value)


if __name__ == "__main__":
    main()
