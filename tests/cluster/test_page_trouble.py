#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""What the page for browsers does when something is wrong or out of the ordinary, in Chromium: a
server that dies in mid-stream, a queue that is full, prompts that are too long, a clipboard that is
closed, texts that look like markup, and texts of thousands of tokens. Where there is no Chromium
everything is skipped."""
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
        self.generate(900)
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


class Texts(BrowserTest):
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
