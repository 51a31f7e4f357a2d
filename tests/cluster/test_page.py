#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""The page for browsers: its files as the server gives them, and all that it does in Chromium
against a real cluster: texts that stream with their marks, tokens and rounds by mouse and by
keyboard, two texts side by side, live figures, keys, and a group that is lost. No request may leave
the server and nothing may be complained of. Where there is no Chromium the tests that need one are
skipped. How the page looks is in test_page_looks.py."""
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
import threading
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import skips
from cluster import Cluster, wait_until
from page_test import BUILD, PATIENCE, PROMPT, SECONDS, SEED, BrowserTest

FIRST_PAINT_BYTES = 100_000
COMPARED = 200  # tokens of texts side by side, which are looked at while both grow
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
         "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../coordinator/page")
NAMES = sorted(name for name in os.listdir(FOLDER) if name.rpartition(".")[2] in TYPES)

world = None


def setUpModule():
    global world
    world = BrowserTest.start()


def tearDownModule():
    BrowserTest.stop()


def ask(cluster, path, method="GET", body=None, **headers):
    """Status, headers with names in small letters, and body. Headers are given with _ for -."""
    connection = http.client.HTTPConnection(cluster.http, timeout=SECONDS)
    connection.request(method, path, body,
                       {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    result = answer.status, answer.headers, answer.read()
    connection.close()
    return result


def path_of(name):
    return "/" if name == "index.html" else f"/page/{name}"


def source_of(name):
    with open(os.path.join(FOLDER, name), "rb") as file:
        return file.read()


class Files(unittest.TestCase):
    def test_each_has_its_type_and_policy(self):
        for name in NAMES:
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
        self.assertEqual(named, {name for name in NAMES if name.endswith(".js")})


def text_alone(n_tokens, *more):
    done = world.outrider("generate", PROMPT, "-n", str(n_tokens), "--json", *more)
    return json.loads(done.stdout)["text"]


class Playground(BrowserTest):
    def test_first_paint_is_small(self):
        """All files of the page, and whatever else has come by then."""
        page = self.page
        page.wait("performance.getEntriesByType('paint').length > 1", "something is painted")
        page.evaluate("1")  # and is told
        files = {world.url + path_of(name) for name in NAMES}
        n_bytes = {url: n for url, n, when in page.sizes if url in files or when <= page.painted}
        self.assertGreaterEqual(set(n_bytes), files)
        self.assertGreater(min(n_bytes.values()), 100)  # they are counted at all
        self.assertLessEqual(sum(n_bytes.values()), FIRST_PAINT_BYTES)
        print(f"{sum(n_bytes.values())} bytes for the first paint", file=sys.stderr)

    def test_completion(self):
        page = self.page
        page.evaluate("""window.cameEarly = false;
            new MutationObserver(() => {
                window.cameEarly ||= document.querySelector("#generate").disabled &&
                    document.querySelectorAll("#answer .token").length < 60;
            }).observe(document.querySelector("#answer"), {childList: true, subtree: true}), 0""")
        self.generate()
        self.wait_count("#answer .token", 3)
        self.ended()
        self.assertTrue(page.evaluate("window.cameEarly"), "tokens come while the text is made")
        want = text_alone(60, "--temperature", "0.8", "--seed", SEED)
        self.assertEqual(self.shown_text(), want)
        self.assertIn(f"60 tokens, ended by the limit of tokens: {want}",
                      page.evaluate("document.querySelector('#said').textContent"))
        for mark in (".accepted", ".replacement s", ".bonus"):
            self.assertGreater(self.count(f"#answer {mark}"), 0, mark)
        self.assertEqual(self.count("#answer .token"), 60)
        for mark in (".accepted", ".replacement", ".bonus"):
            self.assertEqual(self.count(f"#rounds .chip{mark}"), self.count(f"#answer {mark}"))
        self.assertEqual(self.count("#rounds .chip.rejected"), self.count("#answer s"))
        self.assertGreater(self.count("#rounds .part.verify"), 0)
        self.assertIn("coupled", page.text("#figures"))
        self.assertIn("Guesses by position", page.text("#summary"))

    def test_p_and_q_of_a_token(self):
        page = self.page
        self.generate(rule="rejection")
        self.ended()
        page.hover("#answer .replacement")
        shown = page.text("#inspected")
        self.assertRegex(shown, r"p, target\s+\d\.\d+")
        self.assertRegex(shown, r"Rejected: [^\n]+\s+p, target\s+\d\S*\s+q, draft\s+\d")
        self.assertEqual(self.count("#inspected .alternatives tbody tr"), 5)
        page.hover("#answer .accepted")
        self.assertRegex(page.text("#inspected"), r"p, target\s+\d\S*\s+q, draft\s+\d")
        label = page.evaluate("document.querySelector('#answer .accepted').ariaLabel")
        self.assertRegex(label, r"accepted guess, p \d\S*, q \d")
        page.hover("#rounds li:nth-child(2)")
        self.assertEqual(self.count("#rounds .shown:nth-child(2)"), 1)
        self.assertGreater(self.count("#answer .in-round"), 0)
        self.assertEqual(page.text("#inspector-title"), "Round 2")
        for part in ("draft", "wire", "verify", "collective", "rest"):
            self.assertRegex(page.text("#inspected"), rf"{part}\s+\d\S* ms")
        self.assertEqual(self.count("#inspected .guesses tbody tr"), 4)
        self.assertRegex(page.text("#inspected"), r"\s0\.\d+\s+\d\S*\s+(stayed|rejected)")

    def test_p_of_a_token_that_was_not_guessed(self):
        page = self.page
        page.fill("#play-form [name=n_draft]", "0")
        page.click("#generate")
        self.ended()
        page.hover("#answer .plain")
        self.assertRegex(page.text("#inspected"), r"p, model\s+\d\.\d+")
        self.assertNotIn("unknown", page.text("#inspected"))

    def test_chat(self):
        page = self.page
        page.click("[name=kind][value=chat] + span")
        self.assertFalse(page.is_shown("#prompt"))
        page.fill("#message-1", "Tell me of a fox.")
        self.generate(24)
        self.ended()
        first = self.shown_text()
        self.assertTrue(first)
        page.click("#continue")
        self.assertEqual(self.count("#messages li"), 3)
        self.assertEqual(page.evaluate("document.querySelector('#message-2').value"), first)
        page.write("And then?")
        page.click("#generate")
        page.wait("!document.querySelector('#generate').disabled", "the second answer", SECONDS)
        self.assertNotEqual(self.shown_text(), first)

    def test_stop_in_mid_stream(self):
        page = self.page
        self.generate(900, k="0")
        self.wait_count("#answer .token", 5)
        page.click("#play-stop")
        self.ended()
        n = self.count("#answer .token")
        self.assertLess(n, 900)
        self.assertIn("stopped", page.evaluate("document.querySelector('#said').textContent"))

        def is_idle():
            load = json.loads(world.outrider("describe", "--json").stdout)["load"]
            return load["running"] + load["waiting"] == 0
        wait_until(is_idle, 10 * PATIENCE, "the server has stopped, too")

    def test_fields_reach_the_server(self):
        page = self.page
        page.fill("#play-form [name=prompt]", PROMPT)
        page.fill("#play-form [name=temperature]", "0")
        page.fill("#play-form [name=stop]", "zzz\nthe")
        self.generate(60)
        self.ended()
        want = text_alone(60, "--temperature", "0", "--stop", "the")
        self.assertEqual(self.shown_text(), want)
        self.assertIn("ended by the model's own end or a stop text",
                      page.evaluate("document.querySelector('#said').textContent"))

    def test_tree_rule(self):
        """The server has no independent chains, so it refuses the rules for them."""
        page = self.page
        names = "[...document.querySelector('[name=tree_rule]').options].map((one) => one.value)"
        self.assertEqual(page.evaluate(names), ["", "auto", "k-sequential", "multi-path"])
        page.evaluate("document.querySelector('[name=tree_rule]').value = 'multi-path'")
        self.generate(rule="rejection")
        page.wait("!document.querySelector('#play-problem').hidden", "the server has refused")
        self.assertIn("--trees chains:KxL", page.text("#play-problem"))
        self.expects_failures = True

    def test_wrong_field_is_named(self):
        page = self.page
        page.fill("#play-form [name=stop]", "\n".join("abcdefghijklmnopq"))
        page.click("#generate")
        page.wait("!document.querySelector('#play-problem').hidden", "the server has refused")
        self.assertIn("stop has 17 texts", page.text("#play-problem"))
        self.assertEqual(page.evaluate("document.activeElement.name"), "stop")
        self.assertEqual(self.count("[aria-invalid]"), 1)
        self.expects_failures = True

    def test_keyboard_alone(self):
        page = self.page
        page.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.className"), "skip")
        page.press("Enter")
        self.assertEqual(page.evaluate("document.activeElement.id"), "main")
        self.tab_to("prompt")
        page.write(" in a wood")
        page.press("Enter", "Control")
        self.ended()
        self.tab_to("answer")
        page.press("ArrowRight", times=3)
        at = page.evaluate("document.activeElement.dataset.at")
        self.assertEqual(at, "3")
        self.assertRegex(page.text("#inspected"), r"p, (target|model)\s+\d")
        self.assertNotEqual(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"),
                            "none")
        page.press("End")
        self.assertEqual(page.evaluate("document.activeElement.nextElementSibling"), None)
        page.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.closest('ol').id"), "rounds")

    def tab_to(self, name):
        """With Tab alone, to the element of this id or one within it."""
        for _ in range(60):
            self.page.press("Tab")
            if self.page.evaluate(f"Boolean(document.activeElement.closest('#{name}'))"):
                return
        self.fail(f"Tab does not reach {name}")


class Busy(threading.Thread):
    """One text after the other, until the end of the block."""

    def __init__(self, *command):
        super().__init__()
        self.command, self.process, self.is_over = command, None, False

    def run(self):
        while not self.is_over:
            self.process = world.popen(*self.command, stdout=subprocess.DEVNULL)
            self.process.wait()

    def __enter__(self):
        self.start()

    def __exit__(self, *failure):
        self.is_over = True
        while self.is_alive():
            if self.process:
                self.process.terminate()
            self.join(0.1)


class Views(BrowserTest):
    def test_side_by_side(self):
        page = self.page
        self.view("compare")
        page.fill("#compare [name=n_draft]", "4")
        page.fill("#compare [name=max_tokens]", str(COMPARED))
        page.click("#compare-run")
        page.wait("[...document.querySelectorAll('.lane .tokens')].every((l) => l.children.length)",
                  "both stream together", SECONDS)
        self.assertEqual(page.text("#verdict"), "")
        page.wait("document.querySelector('#verdict').textContent", "both texts are there", SECONDS)
        self.assertIn(f"The two texts are identical: {COMPARED} tokens", page.text("#verdict"))
        self.shot("compare-light")
        with_guesses, without = (f".lane:nth-child({i}) .tokens" for i in (1, 2))
        self.assertEqual(self.shown_text(with_guesses), self.shown_text(without))
        self.assertEqual(self.shown_text(without),
                         text_alone(COMPARED, "--temperature", "0.8", "--seed", SEED))
        self.assertGreater(self.count(f"{with_guesses} .accepted"), 0)
        self.assertEqual(self.count(f"{without} .plain"), COMPARED)
        for lane in (1, 2):
            self.assertGreater(float(page.text(f".lane:nth-child({lane}) .clock").split()[0]), 0)
        page.click("[name=order][value=turns] + span")
        page.click("#compare-run")
        self.wait_count(f"{with_guesses} .token", 1)
        self.assertEqual(self.count(f"{without} .token"), 0)
        page.click("#compare-stop")
        page.wait("document.querySelector('#verdict').textContent === 'Stopped.'", "it stops")

    def test_live_figures_change(self):
        page = self.page
        self.view("live")
        page.wait("document.querySelectorAll('.figure').length === 7", "there are cards")
        with Busy("generate", PROMPT, "-n", "700", "--ignore-eos", "-K", "4"):
            for card, words in ((1, r"^[1-9]"), (2, "ms"), (3, r"^0\.\d"), (4, r"^[1-4]"),
                                (5, r"^1\.00"), (6, "1 running"), (7, r"^\d.* %")):
                page.wait(f"new RegExp({json.dumps(words)}).test(document.querySelector("
                          f"'.figure:nth-child({card}) .now').textContent)",
                          f"card {card} shows the work", SECONDS)
            self.assertEqual(self.count(".figure .axis"), 7)
            self.assertRegex(page.text(".figure:nth-child(3) .axis"),
                             r"^1\s+(0\.\d\d|1\.00)\s+2\s+(0\.\d\d|1\.00)")
            self.shot("live-light")
            page.wish(prefers_color_scheme="dark")
            self.shot("live-dark")
        page.wait("/^last .+ ms$/.test(document.querySelector('.figure:nth-child(2) .now')"
                  ".textContent)", "an idle server's last value says that it is old", SECONDS)

    def test_metrics_that_are_closed(self):
        page = self.page
        page.answer("metrics", 403, '{"error": {"message": "Only from inside."}}')
        page.go("about:blank")
        page.go(world.url + "/#live")
        page.wait("!document.querySelector('#live-again').hidden", "the view says so", SECONDS)
        self.assertIn("the server refuses /metrics: Only from inside.", page.text("#live-state"))
        self.serving()
        self.view("play")
        self.generate(8)
        self.ended()
        self.assertEqual(self.count("#answer .token"), 8)
        self.expects_failures = True

    def test_group_that_is_lost(self):
        page = self.page
        world.workers.stop()
        page.wait("document.querySelector('#status').dataset.state === 'down'", "it says so",
                  SECONDS)
        self.assertEqual(page.text("#status"), "not serving")
        self.assertRegex(page.text("#outage"), "Not serving. .+ This page waits")
        page.click("#generate")
        page.wait("!document.querySelector('#play-problem').hidden", "the request is refused",
                  SECONDS)
        world.start_workers()
        world.wait_serving()
        self.serving()
        self.assertFalse(page.is_shown("#outage"))
        self.generate(8)
        page.wait("document.querySelectorAll('#answer .token').length === 8", "it goes on", SECONDS)
        self.expects_failures = True

    def test_nothing_from_elsewhere_is_let_in(self):
        """That a violation would be seen."""
        page = self.page
        page.evaluate("new Promise((done) => { const i = new Image(); i.onerror = done;"
                      "i.src = 'http://outside.invalid/x.png'; })")
        page.wait("1", "it is told")
        self.assertIn("Content Security Policy", " ".join(page.problems))
        page.problems.clear()
        page.requests[:] = [url for url in page.requests if "outside.invalid" not in url]
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
        self.check_wrong_key(page)
        page.close()

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
