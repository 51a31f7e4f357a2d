#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes cores=2 timeout=600
"""`outrider jobs`: a file of requests in, JSON lines out, whatever breaks in between; watching,
listing and cancelling."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import bound, wait_until
from fault_util import PATIENCE, SLOW_STEPS, FaultTest, World, main, program, run

CLIENT = program("outrider")


def order(prompt="Once upon a time", n=16, **more):
    """A line of the file: greedy and plain."""
    return {"prompt": prompt, "max_tokens": n, "temperature": 0, "draft_tokens": 0,
            "ignore_eos": True, **more}


class JobsTest(FaultTest):
    flags = []

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def tearDown(self):
        self.check_logs(self.world)

    def file(self, *lines, name="in.jsonl"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            for line in lines:
                file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
        return path

    def jobs(self, *arguments, timeout=120, stdin=None):
        """(status, objects, errors)"""
        done = subprocess.run([CLIENT, "jobs", *arguments, "-a", self.world.address],
                              capture_output=True, encoding="utf-8", check=False, input=stdin,
                              timeout=bound(timeout * PATIENCE))
        self.check_sanitizers(done.stderr)
        return done.returncode, done.stdout, done.stderr

    def submit(self, *arguments, **options):
        """The results of a run that must succeed, by line."""
        status, output, errors = self.jobs("submit", *arguments, **options)
        self.assertEqual(status, 0, errors)
        return self.by_line(output)

    def by_line(self, output):
        results = [json.loads(line) for line in output.splitlines()]
        self.assertEqual(len({r["line"] for r in results}), len(results))
        return {r["line"]: r for r in results}

    def listed(self, *arguments):
        status, output, errors = self.jobs("list", "--json", *arguments)
        self.assertEqual(status, 0, errors)
        return [json.loads(line) for line in output.splitlines()]

    def start_submit(self, *arguments):
        """Its results are read with written(), as they come."""
        self.results = os.path.join(self.folder, "results.jsonl")
        with open(self.results, "w", encoding="utf-8") as results:
            return subprocess.Popen(
                [CLIENT, "jobs", "submit", *arguments, "-a", self.world.address],
                stdout=results, stderr=subprocess.PIPE, encoding="utf-8")

    def written(self):
        with open(self.results, encoding="utf-8") as results:
            return results.read()

    def wait_first_result(self):
        wait_until(lambda: "\n" in self.written(), 30 * PATIENCE, "there is a result")
        return json.loads(self.written().splitlines()[0])


class Submit(JobsTest):
    @classmethod
    def setUpClass(cls):
        cls.world = World(coordinator_flags=["--queue", "8"])
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()

    def test_answers_equal_those_of_generate(self):
        prompts = [f"Once upon a time there were {i} " for i in range(20)]
        path = self.file(*[order(p, n=5 + i, custom_id=f"c{i}") for i, p in enumerate(prompts)])
        results = self.submit(path, "-c", "20")
        self.assertEqual(len(results), 20)
        for i, prompt in enumerate(prompts):
            result = results[i + 1]
            done = self.world.outrider("generate", prompt, "-n", str(5 + i), "--temperature", "0",
                                       "-K", "0", "--ignore-eos", "--json")
            alone = json.loads(done.stdout)
            choice = result["choices"][0]
            self.assertEqual((choice["text"], choice["token_ids"]),
                             (alone["text"], alone["token_ids"]))
            self.assertEqual((result["custom_id"], result["end"]), (f"c{i}", "length"))
            self.assertEqual(result["usage"]["completion_tokens"], 5 + i)
            self.assertNotIn("existed", result)

    def test_the_same_file_again_computes_nothing(self):
        path = self.file(order("Seed", temperature=1, n=8), order("Seed", temperature=1, n=8),
                         order("Mine", key="my-key"))
        first = self.submit(path)
        self.assertNotEqual(first[1]["key"], first[2]["key"])
        self.assertEqual(first[3]["key"], "my-key")
        n_before = len(self.listed())
        again = self.submit(path)
        self.assertEqual(len(self.listed()), n_before)
        for line, result in again.items():
            self.assertTrue(result.pop("existed"))
            self.assertEqual(result, first[line])
        other = self.submit(path, "--run", "second")
        self.assertNotIn("existed", other[1])
        self.assertIn("existed", other[3])

    def test_every_field(self):
        lines = [order(stop=["zzz", "q"], top_k=5, top_p=0.5, min_p=0.1, temperature=0.5,
                       seed="18446744073709551615", rule="coupled", strategy="planned",
                       request_id="mine"),
                 {"prompt_ids": [5, 6, 7], "max_tokens": 2, "stop": "x", "seed": 7}]
        results = self.submit(self.file(*lines))
        self.assertEqual(results[2]["usage"]["prompt_tokens"], 3)
        several = self.submit(self.file({**order(), "n": 3, "user": "me", "priority": "high"}))
        self.assertEqual(len(several[1]["choices"]), 3, several)
        echoed = self.submit(self.file({"prompt_ids": [5, 6, 7], "max_tokens": 2, "echo": True,
                                        "logprobs": 1}))[1]
        self.assertEqual([token["id"] for token in echoed["prompt"]], [5, 6, 7])
        self.assertEqual([token["logprob"] is not None for token in echoed["prompt"]],
                         [False, True, True])
        chosen = echoed["choices"][0]
        self.assertEqual([token["id"] for token in chosen["logprobs"]], chosen["token_ids"])
        self.assertEqual("".join(token["text"] for token in chosen["logprobs"]), chosen["text"])
        _, lines, _ = self.jobs("watch", echoed["id"], "--json")
        messages = [json.loads(line) for line in lines.splitlines()]
        self.assertEqual([t for m in messages for t in m.get("prompt", [])], echoed["prompt"])
        self.assertEqual([t for m in messages for t in m.get("logprobs", [])],
                         chosen["logprobs"])
        stopped = self.submit(self.file(order()))[1]["choices"][0]["token_ids"]
        for field, value in (("min_tokens", 2), ("repetition_penalty", 2),
                             ("presence_penalty", 1), ("frequency_penalty", 1),
                             ("logit_bias", {str(stopped[0]): -100}),
                             ("bad_words", [[stopped[0]]]), ("stop_token_ids", [stopped[1]])):
            with self.subTest(field):
                done = self.submit(self.file({**order(), field: value}))[1]
                ids = done["choices"][0]["token_ids"]
                if field in ("logit_bias", "bad_words"):
                    self.assertNotIn(stopped[0], ids)
                if field == "stop_token_ids":
                    self.assertEqual(ids, stopped[:2])
        status, output, _ = self.jobs("submit", self.file({**order(), "timeout_ms": 1}))
        self.assertEqual(status, 1)
        self.assertEqual(json.loads(output)["end"], "deadline", output)

    BAD = (("{", "line 2 is not JSON"), ("[]", "line 2 is not a JSON object"),
           ('{"max_tokens": 3}', 'line 2: give either "prompt" or "prompt_ids"'),
           ('{"prompt": "a", "prompt_ids": [1]}', 'line 2: give either'),
           ('{"prompt": 3}', 'line 2: "prompt" is not a string'),
           ('{"prompt_ids": []}', 'line 2: "prompt_ids" is not a list of token ids'),
           ('{"prompt_ids": [1, -1]}', 'line 2: "prompt_ids" is not a list of token ids'),
           ('{"prompt": "a", "max_token": 3}', 'line 2: there is no field "max_token"'),
           ('{"prompt": "a", "max_tokens": "3"}', 'line 2: "max_tokens" is not an integer'),
           ('{"prompt": "a", "max_tokens": 0}', 'line 2: "max_tokens" is 0'),
           ('{"prompt": "a", "temperature": "hot"}', 'line 2: "temperature"'),
           ('{"prompt": "a", "seed": -1}', 'line 2: "seed" is not an integer from 0 on'),
           ('{"prompt": "a", "stop": [3]}', 'line 2: "stop" is not a string'),
           ('{"prompt": "a", "n": 65}', 'line 2: "n" is 65'),
           ('{"prompt": "a", "priority": "urgent"}', "line 2: \"priority\" is 'urgent'"),
           ('{"prompt": "a", "logit_bias": {"x": 1}}', 'line 2: "logit_bias" is not an object'),
           ('{"prompt": "a", "bad_words": [7]}', 'line 2: "bad_words" is not a list'),
           ('{"prompt": "a", "key": "%s"}' % ("k" * 129), 'line 2: "key" has 129 bytes'))

    def test_bad_lines_are_named_and_the_others_go_on(self):
        for number, (line, words) in enumerate(self.BAD):
            with self.subTest(line):
                path = self.file(order(f"good {number}", n=1), line, "", order("also", n=1))
                status, output, errors = self.jobs("submit", path)
                self.assertEqual(status, 1)
                self.assertEqual(sorted(self.by_line(output)), [1, 4])
                lines = errors.splitlines()
                self.assertEqual(len(lines), 2, errors)
                self.assertIn(words, lines[0])
                self.assertIn("1 of 3 requests did not end well", lines[1])

    def test_strict_submits_nothing(self):
        before = len(self.listed())
        for line, words in self.BAD:
            status, output, errors = self.jobs("submit", "--strict",
                                               self.file(order("good", n=1), line))
            self.assertEqual((status, output), (1, ""), errors)
            self.assertIn(words, errors)
            self.assertEqual(len(errors.splitlines()), 1)
        self.assertEqual(len(self.listed()), before)

    def test_what_the_service_refuses_is_a_result(self):
        path = self.file(order("", n=1), order("fine", n=1), order("hot", temperature=101))
        status, output, errors = self.jobs("submit", path)
        self.assertEqual(status, 1)
        results = self.by_line(output)
        self.assertIn("the prompt is empty", results[1]["error"])
        self.assertEqual([results[i]["end"] for i in (1, 2, 3)], ["refused", "length", "refused"])
        self.assertIn("temperature is 101", results[3]["error"])
        self.assertIn("2 of 3 requests did not end well", errors)

    def test_a_key_of_another_request(self):
        self.submit(self.file(order("One", key="taken", n=1)))
        status, output, _ = self.jobs("submit", self.file(order("Two", key="taken", n=1)))
        self.assertEqual(status, 1)
        self.assertIn("key 'taken' belongs to", json.loads(output)["error"])

    def test_files(self):
        status, output, errors = self.jobs("submit", os.path.join(self.folder, "none"))
        self.check_failure(status, errors, "none")
        status, output, errors = self.jobs("submit", self.file("", "  "))
        self.check_failure(status, errors, "has no line with a request")
        status, output, errors = self.jobs("submit", "-", stdin=json.dumps(order("In", n=1)))
        self.assertEqual((status, len(output.splitlines())), (0, 1), errors)

    def test_command_lines(self):
        for arguments, word in {
                (): "no command", ("run",): "'run'", ("submit",): "no file",
                ("submit", "a", "b"): "b", ("submit", "-c", "0", "a"): "0",
                ("submit", "--retry", "x", "a"): "x", ("watch",): "no job",
                ("watch", "--from", "-1", "a"): "-1", ("list", "x"): "x",
                ("list", "--state", "done"): "done", ("cancel",): "no job"}.items():
            with self.subTest(arguments):
                self.check_usage(*run(CLIENT, "jobs", *arguments, stdin=b""), word)
        status, output = run(CLIENT, "jobs", "--help")
        self.assertEqual(status, 0)
        self.assertIn("submit", output)


class Breaks(JobsTest):
    """Long texts, so that something can happen in between."""

    @classmethod
    def setUpClass(cls):
        cls.world = World(worker_flags=SLOW_STEPS)
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()

    def expect(self, path):
        """Returns the answers of a run that nothing disturbs, of jobs of their own."""
        return {line: r["choices"] for line, r in self.submit(path, "--run", "calm").items()}

    def wait_running(self, n=1):
        wait_until(lambda: len(self.listed("--state", "running")) >= n, 30 * PATIENCE, "it runs")

    def test_a_killed_client_goes_on_where_it_was(self):
        path = self.file(*[order(f"Kill {i}", n=150) for i in range(6)])
        before = len(self.listed())
        client = self.start_submit(path, "-c", "6")
        first = self.wait_first_result()
        client.kill()
        client.communicate()
        results = self.submit(path, "-c", "6")
        self.assertEqual(len(self.listed()), before + 6)
        self.assertTrue(all(r["existed"] for r in results.values()))
        self.assertEqual(results[first["line"]]["choices"], first["choices"])
        self.assertEqual({n: r["choices"] for n, r in results.items()}, self.expect(path))

    def test_an_interrupted_client_leaves_its_jobs(self):
        path = self.file(order("Interrupt", n=900))
        client = self.start_submit(path)
        self.wait_running()
        client.send_signal(signal.SIGINT)
        _, errors = client.communicate(timeout=bound(10 * PATIENCE))
        self.assertEqual(client.returncode, 130, errors)
        self.assertIn("existed", self.submit(path)[1])

    def test_a_coordinator_that_is_started_anew(self):
        """It has forgotten its jobs; they are submitted again, and every line has its answer."""
        path = self.file(*[order(f"Anew {i}", n=150) for i in range(4)])
        expected = self.expect(path)
        client = self.start_submit(path, "-c", "4")
        self.wait_first_result()
        self.world.coordinator.process.kill()
        self.world.coordinator.wait(5)
        time.sleep(0.5)
        self.world.start_coordinator()
        self.world.wait_serving()
        _, errors = client.communicate(timeout=bound(120 * PATIENCE))
        self.assertEqual(client.returncode, 0, errors)
        results = self.by_line(self.written())
        self.assertEqual({n: r["choices"] for n, r in results.items()}, expected)

    def test_a_group_that_is_lost(self):
        """Jobs that the service could not serve are submitted again."""
        path = self.file(*[order(f"Lost {i}", n=600) for i in range(3)],
                         {**order("Lost 3", n=600), "key": "k" * 128})
        expected = self.expect(path)
        client = self.start_submit(path, "-c", "4")
        self.wait_running()
        self.world.restart_workers()
        _, errors = client.communicate(timeout=bound(120 * PATIENCE))
        self.assertEqual(client.returncode, 0, errors)
        results = self.by_line(self.written())
        self.assertEqual({n: r["choices"] for n, r in results.items()}, expected)

    def test_a_group_that_is_away_for_a_while(self):
        """Trying meanwhile makes no jobs and uses up no attempts."""
        path = self.file(*[order(f"Away {i}", n=300) for i in range(6)])
        expected = self.expect(path)
        n_before = len(self.listed())
        client = self.start_submit(path, "-c", "2")
        self.addCleanup(client.kill)
        self.wait_running(2)
        self.world.workers.stop()
        try:
            self.world.wait_not_serving()
            wait_until(lambda: not self.listed("--state", "running"), 10 * PATIENCE, "all ended")
            n_jobs = len(self.listed())
            n_lost = sum(job["end"] == "unavailable" for job in self.listed()[:n_jobs - n_before])
            self.assertGreater(n_lost, 0)
            time.sleep(2.5)
            self.assertEqual(len(self.listed()), n_jobs)
        finally:
            self.world.start_workers()
        _, errors = client.communicate(timeout=bound(120 * PATIENCE))
        self.assertEqual(client.returncode, 0, errors)
        results = self.by_line(self.written())
        self.assertEqual({n: r["choices"] for n, r in results.items()}, expected)
        # Jobs that were running were submitted twice.
        self.assertEqual(len(self.listed()), n_before + 6 + n_lost)

    def test_nobody_there_for_too_long(self):
        world = World(worker_flags=SLOW_STEPS)
        self.addCleanup(world.leave)
        world.start()
        client = subprocess.Popen([CLIENT, "jobs", "submit", self.file(order(n=900)), "--retry",
                                   "2", "-a", world.address], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, encoding="utf-8")
        wait_until(lambda: json.loads(world.outrider("describe", "--json").stdout)["load"]
                   ["running"], 20 * PATIENCE, "the job runs")
        world.coordinator.process.kill()
        world.coordinator.wait(5)
        _, errors = client.communicate(timeout=bound(30 * PATIENCE))
        self.check_failure(client.returncode, errors, "nothing has come for 2 s",
                           "the same command takes their answers up")

    def test_watch_list_and_cancel(self):
        path = self.file(order("Watch me", n=250, key="watched"), order("No", n=900, key="gone"),
                         order("Waits", n=900, key="waits"))
        client = self.start_submit(path, "-c", "3")
        self.wait_running()
        wait_until(lambda: len(self.listed("-n", "3")) == 3, 10 * PATIENCE, "three jobs are there")
        ids = {job["key"]: job["id"] for job in self.listed("-n", "3")}
        self.assertEqual(sorted(ids), ["gone", "waits", "watched"])
        status, output, errors = self.jobs("cancel", ids["gone"], "job-none", ids["waits"])
        self.assertEqual(status, 1)
        self.assertIn("there is no job 'job-none'", errors)
        self.assertEqual(len(output.splitlines()), 2)
        status, table, errors = self.jobs("list")
        self.assertEqual(status, 0, errors)
        self.assertIn("watched", table)
        status, text, errors = self.jobs("watch", ids["watched"])
        self.assertEqual(status, 0, errors)
        self.assertIn("250", errors)
        status, rest, errors = self.jobs("watch", ids["watched"], "--from", "100", "-q")
        self.assertEqual((status, errors), (0, ""))
        self.assertTrue(rest and text.endswith(rest) and len(rest) < len(text))
        status, lines, errors = self.jobs("watch", ids["watched"], "--json", "--from", "240")
        messages = [json.loads(line) for line in lines.splitlines()]
        self.assertEqual(sum(len(m.get("token_ids", [])) for m in messages), 10)
        client.communicate(timeout=bound(30 * PATIENCE))
        self.assertEqual(client.returncode, 1)
        results = self.by_line(self.written())
        self.assertEqual([results[i]["end"] for i in (1, 2, 3)],
                         ["length", "cancelled", "cancelled"])
        self.assertEqual(results[1]["choices"][0]["text"], text)
        self.assertIn("the job was cancelled", results[2]["error"])
        status, output, errors = self.jobs("cancel", ids["gone"])
        self.assertEqual(status, 0, errors)
        self.assertIn("had ended already: cancelled", output)
        status, output, errors = self.jobs("watch", ids["gone"])
        self.check_failure(status, errors, "the job was cancelled")

    def test_the_progress_line_is_for_terminals(self):
        path = self.file(*[order(f"Show {i}", n=60) for i in range(3)])
        command = f"{CLIENT} jobs submit {path} -a {self.world.address} > {self.folder}/out"
        done = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True,
                              timeout=60 * PATIENCE, check=False)
        shown = done.stdout.decode()
        self.assertRegex(shown, r"\d of 3 done, 0 failed, \d under way, [\d.]+ tokens/s")
        with open(f"{self.folder}/out", encoding="utf-8") as file:
            self.assertEqual(len([json.loads(line) for line in file]), 3)
        self.assertEqual(self.jobs("submit", path)[2], "")


class Bounds(JobsTest):
    def test_many_more_lines_than_the_coordinator_keeps(self):
        self.world = World(coordinator_flags=["--jobs-kept", "10", "--jobs-bytes", "200000",
                                              "--queue", "4"])
        self.addCleanup(self.world.leave)
        self.world.start()
        path = self.file(*[order(f"Line {i}", n=4) for i in range(150)])
        results = self.submit(path, "-c", "30")
        self.assertEqual(len(results), 150)
        self.assertTrue(all(r["end"] == "length" for r in results.values()))
        self.assertLessEqual(len(self.listed()), 10)


if __name__ == "__main__":
    main()
