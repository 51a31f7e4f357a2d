#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=600
"""outrider serve: one command from a model to answers, which survives its programs, says in one
sentence what cannot be, and leaves no process.

Usage: test_serve.py BUILD_FOLDER"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import tales_gguf
from cluster import TALES, bound, is_alive, wait_until
from served import Served
from terminal import Terminal

BUILD = os.path.abspath(sys.argv.pop(1))
TARGET = os.path.join(TALES, "target")
DRAFT = os.path.join(TALES, "draft")
HEAD = os.path.join(TALES, "head")
LINES_MOST = 6  # between the command and the address


def serve(*options):
    return Served(BUILD, *options)


def refused(*options, environment=None):
    """Status and output of a start that cannot be."""
    with tempfile.TemporaryDirectory(prefix="serve-") as folder:
        done = subprocess.run(
            [os.path.join(BUILD, "bin", "outrider"), "serve", *options], stdin=subprocess.DEVNULL,
            capture_output=True, encoding="utf-8", timeout=bound(60), check=False,
            env={**os.environ, "TMPDIR": folder, "HOME": folder, **(environment or {})})
        left = os.listdir(folder)
    return done, left


def keys_that_differ(folder):
    """Options with which the coordinator never gets to the workers."""
    options = []
    for name in ("worker", "coordinator"):
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(name * 8)
        options += [f"--{name}-group-key", path]
    return options


class Serving(unittest.TestCase):
    def check_greeting(self, served, n_ranks=1):
        out, err = served.read("out"), served.read("err")
        self.assertNotRegex(out + err, r"[\x00-\x09\x0b-\x1f]")
        first, curl, client, chat = out.splitlines()
        self.assertEqual(first, f"target is served at {served.url}/ (Ctrl-C ends it)")
        self.assertIn(f'base_url="{served.url}/v1"', client)
        self.assertEqual(chat.split(), ["outrider", "chat", "--address", served.address])
        self.assertLessEqual(len(err.splitlines()), LINES_MOST)
        self.assertEqual(err.splitlines()[:2], [f"loading {TARGET} ...",
                                                f"packing the weights of {TARGET} ..."])
        self.assertEqual(len(served.pids("outrider-worker")), n_ranks)
        return curl

    def check_end(self, served, status=0, number=signal.SIGINT):
        self.assertEqual(served.end(number), status, served.read("err"))
        served.wait_gone()
        left = [name for name in os.listdir(served.folder) if name not in ("out", "err")]
        self.assertEqual(left, [])

    def test_a_folder_is_served_and_ctrl_c_ends_all(self):
        with serve(TARGET, "--draft", DRAFT) as served:
            served.wait()
            curl = self.check_greeting(served)
            over_grpc = subprocess.run(
                [served.program, "generate", "Once upon a time", "-n", "24", "--temperature", "0",
                 "--json"], env=served.environment, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=bound(60), check=True).stdout
            self.assertEqual(served.text(), json.loads(over_grpc)["text"])
            if shutil.which("curl"):
                asked = subprocess.run(["sh", "-c", curl], capture_output=True, timeout=bound(60),
                                       check=True).stdout
                self.assertTrue(json.loads(asked)["choices"][0]["text"])
            self.check_end(served)

    def test_two_ranks_write_the_text_of_one_and_of_a_gguf_file(self):
        with serve(TARGET) as one:
            one.wait()
            want = one.text()
        with tempfile.TemporaryDirectory(prefix="gguf-") as folder:
            path, = tales_gguf.write(TARGET, folder, "tales-bf16")
            with serve(path, "-T", "2", "--draft", DRAFT, "-K", "3") as two:
                two.wait()
                self.assertEqual(len(two.pids("outrider-worker")), 2)
                self.assertEqual(two.text(), want)
                self.check_end(two, number=signal.SIGTERM)

    def test_a_head_drafts(self):
        with serve(TARGET, "--head", HEAD, "--head-unchecked") as served:
            served.wait()
            self.assertTrue(served.text())

    def test_a_killed_rank_and_a_killed_coordinator_are_started_again(self):
        with serve(TARGET, "-T", "2", "--draft", DRAFT) as served:
            served.wait()
            want = served.text()
            os.kill(served.pids("outrider-worker")[1], signal.SIGKILL)
            served.wait_said("serving again")
            self.assertRegex(served.read("err"), r"the workers ended \(.*; starting them again in")
            self.assertEqual(served.text(), want)
            coordinator, = served.pids("outrider-coordinator")
            os.kill(coordinator, signal.SIGKILL)
            served.wait_said("serving again", 2)
            self.assertIn("the coordinator ended (signal 9); starting it again in 1 s",
                          served.read("err"))
            self.assertEqual(served.text(), want)
            self.check_end(served)

    def test_a_killed_outrider_group_leaves_no_rank_and_is_started_again(self):
        """The next start but one removes the folders of mpirun (launch/scratch.h)."""
        with serve(TARGET, "-T", "2") as served:
            served.wait()
            group, = served.pids("outrider-group")
            before = served.pids("outrider-worker")
            os.kill(group, signal.SIGKILL)
            served.wait_said("serving again")
            wait_until(lambda: not any(is_alive(pid) for pid in before), 15, "the ranks have ended")
            self.assertTrue(served.text())
            self.assertEqual(served.end(), 0)
            served.wait_gone()

    def test_what_keeps_the_two_apart_is_said(self):
        with tempfile.TemporaryDirectory(prefix="keys-") as folder:
            with serve(TARGET, *keys_that_differ(folder)) as served:
                served.wait_said("not serving yet: this group serves those who have its key")
                self.assertEqual(served.read("out"), "")
                self.check_end(served)

    def test_a_group_whose_model_is_gone_is_not_started_again(self):
        with tempfile.TemporaryDirectory(prefix="model-") as folder:
            model = os.path.join(folder, "tales")
            shutil.copytree(TARGET, model)
            with serve(model) as served:
                served.wait()
                os.rename(model, model + ".away")
                os.kill(served.pids("outrider-worker")[0], signal.SIGKILL)
                self.assertEqual(served.process.wait(bound(60)), 78)
                self.assertIn(f"there is no folder {model}", served.read("err").splitlines()[-1])
                served.wait_gone()

    def test_nobody_is_left_when_it_is_killed(self):
        for n_ranks in (1, 2):
            with serve(TARGET, "-T", str(n_ranks), "--draft", DRAFT) as served:
                served.wait()
                everyone = served.family()
                self.assertGreaterEqual(len(everyone), n_ranks + 1)
                served.process.kill()
                served.wait_gone()

    def test_a_text_is_finished_before_the_end(self):
        with serve(TARGET, "--draft", DRAFT, "--drain-timeout", "300") as served:
            served.wait()
            body = {"prompt": "Once upon a time", "max_tokens": 900, "temperature": 0,
                    "stream": True, "ignore_eos": True, "outrider": {"n_draft": 0}}
            request = urllib.request.Request(served.url + "/v1/completions",
                                             json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=bound(300)) as answer:
                self.assertTrue(answer.readline().startswith(b"data: "))
                served.family()
                served.process.send_signal(signal.SIGTERM)
                rest = answer.read().decode()
            self.assertTrue(rest.endswith("data: [DONE]\n\n"), rest[-200:])
            self.assertEqual(served.process.wait(bound(30)), 0)
            served.wait_gone()

    def test_it_can_be_ended_while_it_starts(self):
        """Its two halves would never meet, so that it has not started before it is ended."""
        with tempfile.TemporaryDirectory(prefix="keys-") as folder:
            keys = keys_that_differ(folder)
            with serve(TARGET, "-T", "2", "--draft", DRAFT, *keys) as served:
                served.wait_said("loading ")
                self.check_end(served, number=signal.SIGTERM)
                self.assertEqual(served.read("out"), "")


class Options(unittest.TestCase):
    def test_what_cannot_be_is_said_in_a_sentence(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            for options, status, text in (
                    ([], 2, "no model: name a folder"),
                    (["/nowhere"], 78, "there is no folder /nowhere"),
                    (["org/nope"], 78, "hf download org/nope"),
                    ([TARGET, TARGET], 2,
                     "is too much: give one MODEL; --draft names a draft model"),
                    ([TARGET, "-T", "3"], 78, "-T must be one of 1 2 4 8"),
                    ([TARGET, "--kv-tokenz", "4"], 2, "do you mean --kv-tokens?"),
                    ([TARGET, "--kv-tokens", "4"], 2, "--kv-tokens: '4' is not a whole number"),
                    ([TARGET, "--lookup", "memory"], 2, "--lookup memory: 'memory' is not known"),
                    ([TARGET, "--coordinator-threads", "x"], 2, "--threads: 'x' is not"),
                    ([TARGET, "--draft", "/nowhere", "--port", "0", "--listen", "127.0.0.1:0"], 78,
                     "there is no folder /nowhere"),
                    ([TARGET, "--host", "0.0.0.0"], 2, "or say --insecure"),
                    ([TARGET, "--port", port], 1, f"127.0.0.1:{port} is in use"),
                    ([TARGET, "--port", "0", "--listen", f"127.0.0.1:{port}"], 1, "--listen"),
                    ([TARGET, "--log", "/nowhere/log", "--port", "0", "--listen", "127.0.0.1:0"], 1,
                     "--log /nowhere/log cannot be written")):
                with self.subTest(options=options):
                    done, left = refused(*options)
                    self.assertEqual(done.returncode, status, done.stderr)
                    self.assertIn(text, done.stderr.splitlines()[-1])
                    self.assertTrue(done.stderr.splitlines()[-1].startswith("outrider: "))
                    self.assertEqual((done.stdout, left), ("", []))

    def test_more_ranks_need_mpirun(self):
        with tempfile.TemporaryDirectory(prefix="path-") as folder:
            done, _ = refused(TARGET, "-T", "2", environment={"PATH": folder})
        self.assertEqual(done.returncode, 1)
        self.assertIn("-T 2 needs mpirun", done.stderr)

    def test_the_help_needs_no_other_program_and_a_start_says_which_is_missing(self):
        with tempfile.TemporaryDirectory(prefix="bin-") as folder:
            program = os.path.join(folder, "outrider")
            shutil.copy(os.path.join(BUILD, "bin", "outrider"), program)
            shown = subprocess.run([program, "serve", "--help"], capture_output=True, check=True,
                                   encoding="utf-8", timeout=bound(30)).stdout
            self.assertIn("--draft=MODEL", shown)
            done = subprocess.run([program, "serve", TARGET], capture_output=True, check=False,
                                  encoding="utf-8", timeout=bound(30))
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{folder}/outrider-worker is not there", done.stderr)

    def test_check_starts_nothing(self):
        done, left = refused(TARGET, "--draft", DRAFT, "--check")
        self.assertEqual((done.returncode, done.stdout, left), (0, "ranks 1 2 4 8\n", []))

    def test_the_command_line_goes_before_the_environment_and_that_before_the_file(self):
        names = ("of-file", "of-environment", "of-command-line")
        with tempfile.TemporaryDirectory(prefix="config-") as folder:
            path = os.path.join(folder, "serve.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"model: {TARGET}\nserved-name: {names[0]}\nmetrics-vllm: true\n"
                           "client-weight: [alice=2, bob=3]\nranks: 1\n")
            for n, environment, options in (
                    (0, {}, []),
                    (1, {"OUTRIDER_COORDINATOR_SERVED_NAME": names[1]}, []),
                    (1, {"OUTRIDER_SERVE_SERVED_NAME": names[1]}, []),
                    (2, {"OUTRIDER_SERVE_SERVED_NAME": names[1]}, ["--served-name", names[2]])):
                with Served(BUILD, "--config", path, *options, environment=environment) as served:
                    served.wait()
                    self.assertEqual(served.get("/v1/models")["data"][0]["id"], names[n])
                    self.assertTrue(served.read("out").startswith(f"{names[n]} is served at "))

    def test_wrong_files_are_refused(self):
        with tempfile.TemporaryDirectory(prefix="config-") as folder:
            path = os.path.join(folder, "serve.yaml")
            for content, text in (
                    ("kv-tokns: 4\n", "line 1: 'kv-tokns' is not an option; do you mean kv-tok"),
                    ("port: 8000\nqueue: many\n", "--queue: 'many' is not"),
                    ("port: many\n", "line 1: port: 'many' is not a whole number"),
                    ("port:\n", "line 1: port has no value"),
                    ("check: maybe\n", "line 1: check: 'maybe'"),
                    ("metrics-vllm: maybe\n", "line 1: metrics-vllm: 'maybe' is not on or off"),
                    ("port: {a: 1}\n", "line 1: the value of port is to be a word"),
                    ("config: x\n", "line 1: a file cannot name another one"),
                    ("- port\n", "expected lines of options"),
                    ("port: [\n", "not YAML")):
                with self.subTest(content=content):
                    with open(path, "w", encoding="utf-8") as file:
                        file.write(content)
                    done, _ = refused(TARGET, "--config", path)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(text, done.stderr)
            done, _ = refused(TARGET, "--config", path + ".not")
            self.assertIn("cannot be read: No such file", done.stderr)

    def test_log_has_the_lines_of_all_programs(self):
        with tempfile.TemporaryDirectory(prefix="log-") as folder:
            path = os.path.join(folder, "log")
            for form in ("text", "json"):
                with serve(TARGET, "--log", path, "--log-format", form) as served:
                    served.wait()
                    served.end()
            with open(path, encoding="utf-8") as file:
                log = file.read()
        for program in ("outrider-worker", "outrider-coordinator"):
            self.assertRegex(log, rf"(?m)^\S+ info {program}\[\d+\] ready ")
            self.assertRegex(log, rf'"program":"{program}","pid":\d+,"event":"ready"')


def screen_of(text):
    """The lines that a terminal shows of a text with carriage returns and ESC [ K."""
    lines = []
    for row in text.split("\n"):
        shown = ""
        for part in re.split(r"\r", row):
            part, erased, rest = part.partition("\x1b[K")
            shown = part + rest if erased else part + shown[len(part):]
        lines.append(shown)
    return lines


class OnATerminal(unittest.TestCase):
    def test_one_line_changes_and_goes_away(self):
        with Terminal() as terminal:
            with Served(BUILD, TARGET, "--draft", DRAFT, output=terminal.side,
                        environment={"TERM": "xterm"}) as served:
                wait_until(lambda: b"outrider chat" in terminal.read, 60, "it serves")
                self.assertEqual(served.end(), 0)
                text = terminal.shown()
                url = served.url
        self.assertIn("\rloading " + TARGET + " ... 0 s\x1b[K", text)
        self.assertEqual(screen_of(text), [
            f"target is served at {url}/ (Ctrl-C ends it)",
            f"  curl {url}/v1/completions -H 'Content-Type: application/json' "
            "-d '{\"prompt\": \"Once upon a time\"}'",
            f'  openai.OpenAI(base_url="{url}/v1", api_key="none")',
            f"  outrider chat --address {served.address}", ""])

    def test_a_dumb_terminal_gets_plain_lines(self):
        with Terminal() as terminal:
            with Served(BUILD, TARGET, output=terminal.side,
                        environment={"TERM": "dumb"}) as served:
                wait_until(lambda: b"outrider chat" in terminal.read, 60, "it serves")
                self.assertEqual(served.end(), 0)
            self.assertNotIn("\x1b", terminal.shown())


class List(unittest.TestCase):
    def listed(self, *words, environment=None):
        done = subprocess.run([os.path.join(BUILD, "bin", "outrider"), "list", *words],
                              stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                              env={**os.environ, **(environment or {})}, timeout=bound(60),
                              check=True)
        return done.stdout

    def test_folders_heads_and_files_are_listed(self):
        with tempfile.TemporaryDirectory(prefix="list-") as folder:
            for name in ("target", "head"):
                shutil.copytree(os.path.join(TALES, name), os.path.join(folder, name))
            tales_gguf.write(TARGET, folder, "tales-bf16", n_files=2)
            os.mkdir(os.path.join(folder, "broken"))
            with open(os.path.join(folder, "broken", "config.json"), "w") as file:
                file.write('{"architectures": ["Nobody"]}')
            os.mkdir(os.path.join(folder, "else"))
            models = json.loads(self.listed(folder, "--json"))["models"]
            self.assertEqual(
                [(os.path.relpath(m["name"], folder), m["kind"], m.get("family")) for m in models],
                [("broken", "not read", None), ("head", "head", "LlamaForCausalLM"),
                 ("tales-bf16-00001-of-00002.gguf", "GGUF", "LlamaForCausalLM"),
                 ("target", "folder", "LlamaForCausalLM")])
            self.assertIn("Nobody", models[0]["why"])
            self.assertEqual(models[3]["parameters"], 5770496)
            table = self.listed(folder).splitlines()
            self.assertRegex(table[-1], rf"^folder +11\.5 MB +LlamaForCausalLM +{folder}/target$")

    def test_the_cache_is_listed_by_names_that_serve_takes(self):
        with tempfile.TemporaryDirectory(prefix="hub-") as cache:
            top = os.path.join(cache, "models--acme--tales")
            shutil.copytree(TARGET, os.path.join(top, "snapshots", "abc"))
            os.mkdir(os.path.join(top, "refs"))
            with open(os.path.join(top, "refs", "main"), "w") as file:
                file.write("abc")
            environment = {"HF_HUB_CACHE": cache}
            models = json.loads(self.listed("--json", environment=environment))["models"]
            self.assertEqual([(m["name"], m["kind"]) for m in models], [("acme/tales", "folder")])
            with Served(BUILD, "acme/tales", environment=environment) as served:
                served.wait()
                self.assertEqual(served.get("/v1/models")["data"][0]["id"], "acme/tales")
                self.assertTrue(served.read("out").startswith("acme/tales is served at "))


if __name__ == "__main__":
    unittest.main()
