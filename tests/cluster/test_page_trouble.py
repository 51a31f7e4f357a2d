#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""The page for browsers when something is wrong or out of the ordinary, in Chromium: a server that
dies in mid-stream, a queue that is full, prompts that are too long, a clipboard that is closed,
texts that look like markup, and texts of thousands of tokens. Where there is no Chromium everything
is skipped."""
import json
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from page_test import SECONDS, BrowserTest


def setUpModule():
    BrowserTest.start()


def tearDownModule():
    BrowserTest.stop()


class Refusals(BrowserTest):
    def test_server_that_dies_in_mid_stream(self):
        page, world = self.page, self.world
        self.generate(900, k="0")
        self.wait_count("#answer .token", 5)
        world.coordinator.process.kill()
        world.coordinator.wait(SECONDS)
        self.ended()
        self.assertEqual(page.text("#play-problem"),
                         "The connection broke before the answer was complete.")
        self.assertGreaterEqual(self.count("#answer .token"), 5)
        world.start_coordinator()
        world.wait_serving()
        self.serving()
        self.expects_failures = True

    def test_outage_is_read_out_once(self):
        page = self.page
        page.answer("ready", 503, '{"error": {"message": "No group."}}')
        page.wait("!document.querySelector('#outage').hidden", "it says so", SECONDS)
        page.evaluate("window.n_told = 0; new MutationObserver((all) => { n_told += all.length; })"
                      ".observe(document.querySelector('#outage'), {childList: true})")
        n_asked = len(page.requests)
        while sum(url.endswith("/ready") for url in page.requests[n_asked:]) < 2:
            page.evaluate("new Promise((done) => setTimeout(done, 100))")
        self.assertEqual(page.evaluate("n_told"), 0)
        self.expects_failures = True

    def test_refusals_are_told_in_words(self):
        page = self.page
        for status, words in ((429, "The queue is full."), (503, "The server drains.")):
            page.answer("v1/completions", status, json.dumps({"error": {"message": words}}))
            page.click("#generate")
            page.wait(f"document.querySelector('#play-problem').textContent === '{words}'",
                      "the page says so", SECONDS)
            self.assertFalse(page.evaluate("document.querySelector('#generate').disabled"))
        page.answers.clear()
        page.fill("#prompt", "word " * 3000)
        page.click("#generate")
        page.wait("/leaves no room/.test(document.querySelector('#play-problem').textContent)",
                  "the page says so", SECONDS)
        self.assertEqual(page.evaluate("document.activeElement.id"), "prompt")
        self.expects_failures = True


def answer_of(n_rounds, piece):
    """A stream of rounds in which a guess stays and another one is replaced, all with this text."""
    chunks = []
    for _ in range(n_rounds):
        text, n_bytes = piece * 2, len(piece.encode())
        chunks.append({"choices": [{"index": 0, "text": text, "finish_reason": None, "logprobs": {
            "tokens": [piece] * 2, "token_logprobs": [-0.5] * 2,
            "top_logprobs": [{piece: -0.5, " a": -1.5}] * 2, "text_offset": [0] * 2}}],
            "outrider": {"rejected": True, "tokens": [
                {"id": 1, "origin": "accepted", "p": 0.6, "text_end": n_bytes},
                {"id": 1, "origin": "replacement", "p": 0.6, "text_end": 2 * n_bytes}],
                "round": {"guesses": [{"text": piece, "p": 0.6, "q": 0.5}] * 3, "kept": 1,
                          "time_us": {"draft": 100, "wire": 20, "verify": 900, "collective": 0,
                                      "total": 1100}}}})
    chunks.append({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


class Texts(BrowserTest):
    def take(self, n_rounds, piece):
        """Has the page read such an answer, all at once."""
        self.page.answer("v1/completions", 200, answer_of(n_rounds, piece))
        self.show_guesses()
        self.page.click("#generate")
        self.wait_count("#answer .token", 2 * n_rounds)
        self.ended()

    def n_layouts(self):
        metrics = self.page.call("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "LayoutCount")

    def test_thousands_of_tokens(self):
        """The work for a frame must not grow with the rounds that it brings times those before."""
        page = self.page
        page.call("Performance.enable")
        before = self.n_layouts()
        self.take(1000, " word")
        self.assertLess(self.n_layouts() - before, 500)
        for selector in ("#answer", "#rounds"):
            left = page.evaluate(f"(() => {{ const l = document.querySelector('{selector}');"
                                 "return l.scrollHeight - l.scrollTop - l.clientHeight; })()")
            self.assertLess(left, 2, f"{selector} shows its end")
        page.evaluate("document.querySelector('#answer .token').focus()")
        page.press("End")
        self.assertEqual(page.evaluate("document.activeElement.dataset.at"), "1999")

    def test_markup_is_text(self):
        page = self.page
        piece = "<img src=x onerror=alert(1)><script>document.title = 'taken'</script>"
        self.take(3, piece)
        self.assertEqual(self.shown_text(), piece * 6)
        page.hover("#answer .replacement")
        self.assertIn("<script>", page.text("#inspected"))
        self.assertEqual(self.count("main img, main script"), 0)
        self.assertEqual(page.evaluate("document.title"), "Outrider")
        self.assertEqual([url for url in page.requests if url.endswith("/x")], [])

    def test_characters_of_several_bytes(self):
        for piece in (" 漢字", "👩\u200d🚀", " e\u0301", " \u05e9\u05dc"):
            self.take(2, piece)
            self.assertEqual(self.shown_text(), piece * 4)
            self.page.answers.clear()

    def test_copy(self):
        """Also where the browser has no clipboard for the page, as without TLS."""
        page = self.page
        self.generate(8)
        self.ended()
        page.evaluate("window.n_copied = 0; addEventListener('copy', () => { n_copied++; });"
                      "Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        page.click("#copy")
        page.wait("document.querySelector('#copy').textContent === 'Copied'", "it is copied")
        self.assertEqual(page.evaluate("n_copied"), 1)
        self.assertEqual(page.evaluate("document.activeElement.id"), "copy")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
