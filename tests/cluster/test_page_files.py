#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""The files of the page for browsers as the server gives them, and to whom: types, policy, packing,
tags, sizes, and keys as passwords; and in Chromium, where there is one, what it says to somebody
without a key or while there is no target group."""
import base64
import gzip
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import skips
from cluster import Cluster, bound
from page_test import BUILD, FILES, PROMPT, SECONDS, BrowserTest, path_of, source_of

FILES_BYTES = 150_000  # as they are; packed, a third of it
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
         "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}

world = None


def setUpModule():
    global world
    world = BrowserTest.start(Cluster(BUILD, http=True))


def tearDownModule():
    BrowserTest.stop()


def ask(cluster, path, method="GET", body=None, **headers):
    """Status, headers with names in small letters, and body. Headers are given with _ for -."""
    connection = http.client.HTTPConnection(cluster.http, timeout=bound(SECONDS))
    connection.request(method, path, body,
                       {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    result = answer.status, answer.headers, answer.read()
    connection.close()
    return result


class Files(unittest.TestCase):
    def test_each_has_its_type_and_policy(self):
        for name in FILES:
            status, headers, body = ask(world, path_of(name))
            self.assertEqual((status, body), (200, source_of(name)), name)
            self.assertEqual(headers["Content-Type"], TYPES[name.rpartition(".")[2]])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Referrer-Policy"], "no-referrer")
            self.assertEqual(headers["Cache-Control"], "no-cache")
            policy = headers["Content-Security-Policy"]
            for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'",
                         "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
                         "form-action 'none'"):
                self.assertIn(part, policy)
            self.assertNotIn("unsafe", policy)

    def test_all_are_small(self):
        self.assertLessEqual(sum(len(source_of(name)) for name in FILES), FILES_BYTES)

    def test_packed_if_the_browser_takes_it(self):
        for accepted, is_packed in ((None, False), ("gzip", True), ("br, gzip;q=0.5", True),
                                    ("deflate,GZIP ", True), ("gzip;q=0", False),
                                    ("gzip; q=0.000, br", False), ("gzipped", False), ("", False),
                                    (",,;q=,=", False)):
            more = {} if accepted is None else {"Accept_Encoding": accepted}
            status, headers, body = ask(world, "/page/style.css", **more)
            self.assertEqual((status, headers["Content-Encoding"]),
                             (200, "gzip" if is_packed else None), accepted)
            self.assertEqual(headers["Vary"], "Accept-Encoding")
            text = gzip.decompress(body) if is_packed else body
            self.assertEqual(text, source_of("style.css"))

    def test_what_the_browser_has_is_not_sent_again(self):
        tags = set()
        for more in ({}, {"Accept_Encoding": "gzip"}):
            tag = ask(world, "/page/app.js", **more)[1]["ETag"]
            tags.add(tag)
            status, headers, body = ask(world, "/page/app.js", If_None_Match=f'"a", {tag}', **more)
            self.assertEqual((status, body, headers["ETag"]), (304, b"", tag))
            status, _, body = ask(world, "/page/app.js", If_None_Match='"another"', **more)
            self.assertEqual((status, bool(body)), (200, True))
        self.assertEqual(len(tags), 2)

    def test_head(self):
        _, whole, body = ask(world, "/")
        status, headers, nothing = ask(world, "/", "HEAD")
        self.assertEqual((status, nothing), (200, b""))
        self.assertEqual(int(headers["Content-Length"]), len(body))
        self.assertEqual(headers["ETag"], whole["ETag"])

    def test_other_names_are_not_there(self):
        for path in ("/page/", "/page", "/page/none.js", "/page/index.html", "/index.html",
                     "/page/../page/app.js", "/page/%2e%2e/app.js", "/page/app.js/", "/page/app"):
            status, _, body = ask(world, path)
            self.assertEqual((status, path), (404, path))
            self.assertIn("There is no", json.loads(body)["error"]["message"])
        status, headers, _ = ask(world, "/", "POST")
        self.assertEqual((status, headers["Allow"]), (405, "GET"))

    def test_all_scripts_are_asked_for_at_once(self):
        """A script that only another one names would come a round trip later."""
        text = source_of("index.html").decode()
        named = set(re.findall(r'(?:href|src)="page/(\w+\.js)"', text))
        self.assertEqual(named, {name for name in FILES if name.endswith(".js")})


class Outage(BrowserTest):
    def test_group_that_is_gone(self):
        """In a sentence of its own, as long as it lasts."""
        page = self.page
        world.workers.stop()
        page.wait("/refuses/.test(document.querySelector('#outage').textContent)", "it says why",
                  SECONDS)
        self.assertEqual(page.text("#outage"), "The target group at "
                         f"{world.worker_addresses[0]} refuses connections; waiting for it.")
        world.start_workers()
        world.wait_serving()
        self.serving()
        self.assertFalse(page.is_shown("#outage"))
        self.expects_failures = True


class Keys(unittest.TestCase):
    """A coordinator that serves only those who have a key."""
    KEY = "correct horse: battery"  # a colon belongs to the password

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="outrider-page-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        path = os.path.join(cls.folder, "keys")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"alice {hashlib.sha256(cls.KEY.encode()).hexdigest()}\n")
        cls.world = Cluster(BUILD, http=True, coordinator_flags=["--keys", path])
        cls.world.__enter__()
        cls.addClassCleanup(cls.world.__exit__, None, None, None)

    def basic(self, text):
        return "Basic " + base64.b64encode(text.encode()).decode()

    def test_browsers_are_asked_for_a_password(self):
        for path in ("/", "/page/app.js", "/page/none"):
            status, headers, _ = ask(self.world, path)
            self.assertEqual(status, 401)
            self.assertEqual(sorted(headers.get_all("WWW-Authenticate")),
                             ['Basic realm="outrider", charset="UTF-8"', "Bearer"])
        for path in ("/v1/models", "/metrics", "/none"):
            status, headers, _ = ask(self.world, path)
            self.assertEqual((status, headers.get_all("WWW-Authenticate")), (401, ["Bearer"]))

    def test_password_is_the_key(self):
        for user in ("", "alice", "somebody else", "ü"):
            for path in ("/", "/page/app.js", "/v1/models", "/metrics", "/version"):
                status, _, _ = ask(self.world, path,
                                   Authorization=self.basic(f"{user}:{self.KEY}"))
                self.assertEqual(status, 200, path)

    def test_what_is_no_password(self):
        right = self.basic(f":{self.KEY}")
        for wrong in (self.basic(":wrong"), self.basic(self.KEY.replace(":", "")), self.basic(""),
                      right[:-1], right + "=", right.replace("Basic ", "Basic  "), "Basic",
                      "Basic ", "Basic ****", "Basic " + "A" * 5000,
                      self.basic("a" * 2000 + f":{self.KEY}"), right.replace("Basic", "Digest")):
            status, headers, body = ask(self.world, "/", Authorization=wrong)
            self.assertEqual((status, wrong), (401, wrong))
            self.assertTrue(any(value.startswith("Basic ")
                                for value in headers.get_all("WWW-Authenticate")))
            self.assertEqual(json.loads(body)["error"]["code"], "invalid_api_key")

    def test_other_sites_cannot_post_with_it(self):
        body = json.dumps({"prompt": PROMPT, "max_tokens": 2})
        basic, bearer = self.basic(f":{self.KEY}"), f"Bearer {self.KEY}"
        for authorization, content_type, want in (
                (basic, "application/json", 200), (basic, "Application/JSON; charset=utf-8", 200),
                (basic, "text/plain", 415), (basic, "application/x-www-form-urlencoded", 415),
                (bearer, "text/plain", 200)):
            status, _, answer = ask(self.world, "/v1/completions", "POST", body,
                                    Authorization=authorization, Content_Type=content_type)
            self.assertEqual((status, content_type), (want, content_type), answer)
        status, _, answer = ask(self.world, "/v1/jobs/1/cancel", "POST", Authorization=basic)
        self.assertEqual(status, 415)
        self.assertIn("Content-Type: application/json", json.loads(answer)["error"]["message"])

    @unittest.skipUnless(skips.has("chromium", "chromium"), "chromium is not installed")
    def test_browser_opens_the_page(self):
        page = BrowserTest.browser.open("about:blank")
        page.log_in("me", self.KEY)
        page.go(self.world.url + "/")
        page.wait("document.querySelector('#status').textContent === 'serving'", "it serves",
                  SECONDS)
        page.fill("#play-form [name=max_tokens]", "8")
        page.click("#generate")
        page.wait("document.querySelectorAll('#answer .token').length === 8", "a text", SECONDS)
        self.assertEqual(page.problems, [])
        self.assertEqual([what for what in page.failures if what[1] != 401], [])
        self.check_copied_request(page)
        self.check_wrong_key(page)
        page.close()

    def check_copied_request(self, page):
        """A copied command reads a key from the environment, though the page has a password."""
        page.evaluate("window.copied = []; Object.defineProperty(navigator, 'clipboard', {value: "
                      "{writeText: async (text) => { copied.push(text); }}})")
        for i in (1, 2):
            page.evaluate("[...document.querySelectorAll('#answer-tools button')].find((own) => "
                          f"own.textContent === 'Copy as {('curl', 'Python')[i - 1]}').click()")
            page.wait(f"copied.length === {i}", "it is copied")
        as_curl, as_python = page.evaluate("copied")
        done = subprocess.run(["bash", "-c", as_curl.replace("curl ", "curl -sS ", 1)], check=True,
                              capture_output=True, text=True, timeout=SECONDS,
                              env={**os.environ, "OUTRIDER_API_KEY": self.KEY})
        self.assertEqual(json.loads(done.stdout)["usage"]["completion_tokens"], 8)
        self.assertIn('api_key=os.environ["OUTRIDER_API_KEY"]', as_python)

    def check_wrong_key(self, page):
        """A key that is entered at the top is taken in place of the password."""
        page.click("#key-box summary")
        page.wait("document.activeElement.id === 'key'", "the key can be entered")
        page.write("wrong")
        page.press("Enter")
        page.wait("document.querySelector('#status').textContent === 'needs another key'",
                  "it is refused", SECONDS)
        page.click("#generate")
        page.wait("!document.querySelector('#play-problem').hidden", "it says so", SECONDS)
        self.assertIn("not known here. Enter an API key at the top", page.text("#play-problem"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
