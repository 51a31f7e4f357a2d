#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=180
"""The scripts of deploy/mpirun: everything in one mpirun, and a worker group that is restarted.

Usage: test_mpirun_one.py BUILD_FOLDER
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import (SOURCE, TALES, Program, bound, descendants, free_ports, is_alive,
                     wait_until)

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
SCRIPTS = os.path.join(SOURCE, "deploy", "mpirun")
REFERENCE = os.path.join(SOURCE, "tests", "golden", "tales", "reference_target.json")
START_SECONDS = 60
STOP_SECONDS = 3


def greedy_reference():
    """A prompt, the greedy text that other code computed, and how many tokens that is."""
    with open(REFERENCE, encoding="utf-8") as file:
        first = json.load(file)["prompts"][0]
    return first["text"], first["greedy_text"], len(first["greedy_ids"])


class Fixture(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-")
        self.address = f"unix:{self.folder}/c"
        self.programs = []
        self.everyone = set()

    def tearDown(self):
        for program in self.programs:
            program.stop()
        self.logs = {program.name: program.log() for program in self.programs}
        shutil.rmtree(self.folder, ignore_errors=True)
        left = [pid for pid in self.everyone if is_alive(pid)]
        self.assertEqual(left, [], "processes are left behind")

    def run(self, result=None):
        """As unittest does; a failure shows the logs too."""
        n_bad = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > n_bad:
            for name, text in self.logs.items():
                print(f"---- {name}\n{text[-4000:]}", file=sys.stderr)

    def start(self, name, *command):
        log = os.path.join(self.folder, f"{name}.log")
        self.programs.append(Program(name, list(command), log, {}))
        return self.programs[-1]

    def client(self, *args, timeout=30):
        return subprocess.run([os.path.join(BUILD, "bin", "outrider"), *args], timeout=timeout,
                              env={**os.environ, "OUTRIDER_ADDRESS": self.address},
                              stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")

    def wait_serving(self, program):
        def look():
            self.assertTrue(program.is_alive(), f"{program.name} has ended")
            return self.client("health").returncode == 0
        wait_until(look, START_SECONDS, "it serves")
        self.everyone.update([program.pid, *descendants(program.pid)])

    def ranks(self, program):
        """The pids of outrider-worker below the script."""
        return [pid for pid in descendants(program.pid)
                if self.command_of(pid) == "outrider-worker"]

    @staticmethod
    def command_of(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return os.path.basename(file.read().split(b"\0")[0].decode())
        except OSError:
            return ""

    def assert_all_gone(self, seconds):
        wait_until(lambda: not any(is_alive(pid) for pid in self.everyone), seconds,
                   "every process has ended")

    def assert_greedy_text(self):
        prompt, text, n = greedy_reference()
        done = self.client("generate", prompt, "-n", str(n), "--temperature", "0", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, text)


class One(Fixture):
    def start_one(self):
        one = self.start("one", os.path.join(SCRIPTS, "one"), "--build", BUILD, "-T", "2",
                         "--target", os.path.join(TALES, "target"),
                         "--draft", os.path.join(TALES, "draft"), "--listen", self.address)
        self.wait_serving(one)
        return one

    def test_text_equals_the_greedy_reference_and_sigterm_ends_all(self):
        one = self.start_one()
        self.assertEqual(len(self.ranks(one)), 2)
        self.assert_greedy_text()
        start = time.monotonic()
        one.process.send_signal(signal.SIGTERM)
        one.wait(STOP_SECONDS)
        self.assert_all_gone(STOP_SECONDS - (time.monotonic() - start))

    def test_sigterm_in_mid_generation_ends_all(self):
        one = self.start_one()
        busy = subprocess.Popen([os.path.join(BUILD, "bin", "outrider"), "generate", "-a",
                                 self.address, "Once upon a time", "--ignore-eos"],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL)
        self.assertTrue(busy.stdout.read(16))
        one.process.send_signal(signal.SIGTERM)
        one.wait(STOP_SECONDS)
        self.assert_all_gone(STOP_SECONDS)
        busy.communicate(timeout=bound(10))

    def test_a_killed_worker_ends_the_whole_job(self):
        one = self.start_one()
        os.kill(self.ranks(one)[1], signal.SIGKILL)
        self.assertNotEqual(one.wait(10), 0)
        self.assert_all_gone(2)

    def test_a_killed_script_leaves_nobody(self):
        one = self.start_one()
        one.process.kill()
        self.assert_all_gone(10)

    def test_a_model_that_cannot_be_opened_ends_the_job(self):
        one = self.start("one", os.path.join(SCRIPTS, "one"), "--build", BUILD, "-T", "2",
                         "--target", "/nowhere", "--draft", os.path.join(TALES, "draft"),
                         "--listen", self.address)
        self.check_final(one, "there is no folder /nowhere")

    def check_final(self, one, sentence):
        self.assertEqual(one.wait(20), 78)
        self.assertIn(sentence, one.log())
        self.assertIn("says why no start can succeed", one.log().splitlines()[-1])

    def test_a_draft_that_cannot_be_opened_ends_the_job(self):
        one = self.start("one", os.path.join(SCRIPTS, "one"), "--build", BUILD, "-T", "1",
                         "--target", os.path.join(TALES, "target"), "--draft", "/nowhere",
                         "--listen", self.address)
        self.check_refusal(one, "there is no folder /nowhere")

    def check_refusal(self, one, sentence):
        """Before anything is started."""
        self.assertEqual(one.wait(20), 78)
        self.assertIn(sentence, one.log())
        self.assertEqual(len(one.log().splitlines()), 1, one.log())

    def test_a_head_is_named_to_the_coordinator_together_with_the_target(self):
        for words, sentence in ((["--head", "/nowhere"], "there is no folder /nowhere"),
                                (["--head", os.path.join(TALES, "target")], "no head")):
            one = self.start(os.path.basename(words[1]), os.path.join(SCRIPTS, "one"), "--build",
                             BUILD, "-T", "1", "--target", os.path.join(TALES, "target"), *words,
                             "--listen", self.address)
            self.check_refusal(one, sentence)

    def test_an_address_that_cannot_be_bound_ends_the_job(self):
        one = self.start("one", os.path.join(SCRIPTS, "one"), "--build", BUILD, "-T", "2",
                         "--target", os.path.join(TALES, "target"), "--draft", "none",
                         "--listen", "unix:/nowhere/c")
        self.assertEqual(one.wait(20), 1)
        self.assertIn("/nowhere/c", one.log())


class Group(Fixture):
    def test_a_group_comes_back_after_a_killed_rank(self):
        port = free_ports(2)
        group = self.start("group", os.path.join(SCRIPTS, "group"), "--build", BUILD, "-T", "2",
                           "--model", os.path.join(TALES, "target"), "--port", str(port))
        target = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
        coordinator = self.start("coordinator", os.path.join(BUILD, "bin", "outrider-coordinator"),
                                 "--target", target, "--draft", os.path.join(TALES, "draft"),
                                 "--listen", self.address)
        self.wait_serving(coordinator)
        self.assertIn(f"--target {target}", group.log())
        before = self.ranks(group)
        self.everyone.update([group.pid, *descendants(group.pid)])
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(set(self.ranks(group)) - set(before)) == 2, START_SECONDS,
                   "two new ranks run")
        self.wait_serving(coordinator)
        self.everyone.update([group.pid, *descendants(group.pid)])
        self.assert_greedy_text()
        group.process.send_signal(signal.SIGTERM)
        group.wait(STOP_SECONDS)
        coordinator.process.send_signal(signal.SIGTERM)
        coordinator.wait(STOP_SECONDS)

    @staticmethod
    def memory_of(script):
        """The folders of a script's ranks for shared memory; other tests have ranks, too."""
        return {name for name in os.listdir("/dev/shm")
                if name.startswith(f"outrider-mpirun.{script.pid}.")}

    @staticmethod
    def segments_of(pid):
        """The names below /dev/shm of what a rank shares with others."""
        with open(f"/proc/{pid}/maps", encoding="ascii") as file:
            return set(re.findall(r"/dev/shm/(\S*vader_segment)", file.read()))

    def test_a_killed_mpirun_leaves_no_files(self):
        """Neither its session's nor the ranks' shared memory; and what a script left that was
        killed itself is removed by the next one."""
        files = os.path.join(self.folder, "files")
        old = os.path.join(files, "outrider-mpirun.1.1.s")
        os.makedirs(old)
        os.utime(old, (0, 0))
        group = self.start("group", "env", f"TMPDIR={files}", f"RUNTIME_DIRECTORY={self.folder}",
                           os.path.join(SCRIPTS, "group"), "--build", BUILD, "-T", "2", "--model",
                           os.path.join(TALES, "target"))
        ranks_at = [f"unix:{self.folder}/worker.{rank}" for rank in range(2)]
        for _ in range(2):
            wait_until(lambda: self.memory_of(group) and len(self.ranks(group)) == 2 and
                       all(self.client("health", "-a", address).returncode == 0
                           for address in ranks_at), START_SECONDS, "the group serves")
            self.assertIn("--target " + ",".join(ranks_at), group.log())
            ranks = self.ranks(group)
            self.everyone.update([group.pid, *descendants(group.pid)])
            self.assertFalse(os.path.exists(old))
            self.assertEqual(len(os.listdir(files)), 1)
            [memory] = self.memory_of(group)
            for pid in ranks:
                self.assertEqual({os.path.dirname(name) for name in self.segments_of(pid)},
                                 {memory})
            mpirun = [pid for pid in descendants(group.pid) if self.command_of(pid) == "mpirun"]
            os.kill(mpirun[0], signal.SIGKILL)
            wait_until(lambda: not any(is_alive(pid) for pid in ranks), 20, "the ranks end")
            wait_until(lambda: "ended with status" in group.log(), 20, "the group has ended")
        group.process.send_signal(signal.SIGTERM)
        group.wait(10)
        self.assertEqual(os.listdir(files), [])
        self.assertEqual(self.memory_of(group), set())

    def test_a_group_that_cannot_start_gives_up_when_told_so(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            group = self.start("group", os.path.join(SCRIPTS, "group"), "--build", BUILD, "-T", "1",
                               "--model", os.path.join(TALES, "target"), "--port",
                               str(taken.getsockname()[1]), "--restarts", "1")
            self.assertNotEqual(group.wait(START_SECONDS), 0)
        self.assertEqual(group.log().count("group: ended with status"), 1)

    def test_a_group_whose_model_is_missing_is_not_started_again(self):
        group = self.start("group", os.path.join(SCRIPTS, "group"), "--build", BUILD, "-T", "2",
                           "--model", "/nowhere", "--port", str(free_ports(2)))
        self.assertEqual(group.wait(START_SECONDS), 78)
        self.assertNotIn("start number", group.log())

    def test_a_model_of_several_hosts_is_looked_at_where_it_is_here(self):
        """Before any host is called; nobody.invalid is none."""
        hosts = os.path.join(self.folder, "hosts")
        with open(hosts, "w", encoding="utf-8") as file:
            file.write("nobody.invalid slots=3\n")
        broken = os.path.join(self.folder, "broken")
        os.mkdir(broken)
        with open(os.path.join(broken, "config.json"), "w", encoding="utf-8") as file:
            file.write('{"model_type": "mystery"}')
        for model, status, sentence in (
                (broken, 78, "mystery"), ("synthetic:nothing,seed=1", 78, "nothing"),
                (os.path.join(TALES, "target"), 78, "3 ranks cannot share this model"),
                ("/nowhere", 1, "nobody.invalid cannot be reached by ssh")):
            with self.subTest(model):
                done = subprocess.run([os.path.join(SCRIPTS, "group"), "--build", BUILD, "--hosts",
                                       hosts, "--model", model, "--insecure", "--restarts", "0"],
                                      capture_output=True, encoding="utf-8", timeout=START_SECONDS,
                                      check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(sentence, done.stderr.splitlines()[-1])

    def test_a_wrong_option_is_not_tried_again(self):
        group = self.start("group", os.path.join(SCRIPTS, "group"), "--build", BUILD, "-T", "1",
                           "--model", "/nowhere", "--no-such-option")
        self.assertEqual(group.wait(START_SECONDS), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
