"""A model that `outrider serve` serves, for tests.

    with Served(BUILD, TARGET, "--draft", DRAFT) as served:
        served.wait()                       # until it has printed where it serves
        served.post("/v1/completions", {...})

Its ports, its folder for temporary files and what it prints are its own. No process outlives it.
"""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request

from cluster import bound, descendants, free_ports, is_alive, wait_until


class Served:
    def __init__(self, build, *options, environment=None, output=None, ports=True):
        self.folder = tempfile.mkdtemp(prefix="serve-")
        self.program = os.path.join(build, "bin", "outrider")
        self.port = free_ports(1)
        self.address = f"unix:{self.folder}/c"
        self.url = f"http://127.0.0.1:{self.port}"
        own = ["--port", str(self.port), "--listen", self.address] if ports else []
        self.command = [self.program, "serve", *options, *own]
        self.environment = {**os.environ, "TMPDIR": self.folder, "OUTRIDER_ADDRESS": self.address,
                            **(environment or {})}
        self.output = output
        self.seen = set()

    def __enter__(self):
        with open(self.path("out"), "w") as out, open(self.path("err"), "w") as err:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=self.output or out,
                stderr=self.output or err, env=self.environment, start_new_session=True)
        return self

    def __exit__(self, kind, *_):
        self.family()
        if kind:
            print(self.read("out"), self.read("err"))
        self.process.kill()
        self.process.wait()
        for pid in self.seen:
            if is_alive(pid) and self.is_ours(pid):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def is_ours(self, pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return f"TMPDIR={self.folder}".encode() in file.read().split(b"\0")
        except OSError:
            return False

    def family(self):
        """The processes below it, and those that were below it before."""
        self.seen |= set(descendants(self.process.pid))
        return self.seen

    def pids(self, name):
        """Its living processes of a program, "outrider-worker"."""
        found = []
        for pid in sorted(self.family()):
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                    if file.read().strip() == name[:15] and is_alive(pid):
                        found.append(pid)
            except OSError:
                pass
        return found

    def wait(self):
        def look():
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.read('err')}")
            return "Ctrl-C ends it" in self.read("out")
        wait_until(look, 60, "it says where it serves")
        self.family()

    def wait_said(self, text, times=1):
        wait_until(lambda: self.read("err").count(text) >= times, 60, f"it has said {text!r}")
        self.family()

    def wait_gone(self):
        wait_until(lambda: not [pid for pid in self.seen if is_alive(pid)], 15, "all have ended")

    def end(self, number=signal.SIGINT):
        """Returns the exit status."""
        self.family()
        self.process.send_signal(number)
        return self.process.wait(bound(30))

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=bound(60)) as answer:
            return json.load(answer)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=bound(30)) as answer:
            return json.load(answer)

    def text(self, prompt="Once upon a time", n=24):
        """A greedy text, over HTTP."""
        body = {"prompt": prompt, "max_tokens": n, "temperature": 0}
        return self.post("/v1/completions", body)["choices"][0]["text"]
