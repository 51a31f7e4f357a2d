"""What the tests of the page share: a cluster, a browser, and a test case that has the page open.

    def setUpModule():
        BrowserTest.start()

    def tearDownModule():
        BrowserTest.stop()

The build folder is the first argument of the command line. Screenshots go to BUILD/page.
"""
import json
import os
import sys
import unittest

import skips
from cluster import Cluster, is_sanitized
from devtools import Browser, Missing

BUILD = sys.argv[1]
PATIENCE = 4 if is_sanitized(BUILD) else 1
SECONDS = 30 * PATIENCE
PROMPT = "Once upon a time"
SEED = "7"
SHOTS = os.path.join(BUILD, "page")
# At an eighth of the speed, so that a text can be stopped while it is made.
SLOW = ["--kernels", "plain"]


@unittest.skipUnless(skips.has("chromium", "chromium"), "chromium is not installed")
class BrowserTest(unittest.TestCase):
    """Afterwards nothing may have been complained of, and no request may have left the server.
    world: the cluster; browser: None where there is no Chromium."""
    world = None
    browser = None

    @staticmethod
    def start():
        """The cluster, serving."""
        os.makedirs(SHOTS, exist_ok=True)
        world = BrowserTest.world = Cluster(BUILD, http=True, worker_flags=SLOW)
        world.__enter__()
        try:
            BrowserTest.browser = Browser()
        except Missing as error:
            print(f"{error}: what needs a browser is skipped", file=sys.stderr)
        return world

    @staticmethod
    def stop():
        if BrowserTest.browser:
            BrowserTest.browser.close()
        BrowserTest.world.__exit__(None, None, None)

    def setUp(self):
        self.expects_failures = False
        self.page = self.browser.open(self.world.url + "/")
        self.serving()

    def tearDown(self):
        page = self.page
        page.evaluate("1")  # what has been said meanwhile is taken
        self.assertEqual(page.problems, [])
        if not self.expects_failures:
            self.assertEqual(page.failures, [])
        outside = [url for url in page.requests
                   if not url.startswith((self.world.url + "/", "data:", "about:"))]
        self.assertEqual(outside, [])
        page.close()

    def serving(self):
        self.page.wait("document.querySelector('#status').textContent === 'serving'",
                       "the page has met the server", SECONDS)

    def count(self, selector):
        return self.page.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")

    def wait_count(self, selector, least):
        self.page.wait(f"document.querySelectorAll({json.dumps(selector)}).length >= {least}",
                       f"there are {least} of {selector}", SECONDS)

    def ended(self):
        self.page.wait("document.querySelector('#said').textContent && "
                       "!document.querySelector('#generate').disabled", "the text ends", SECONDS)

    def shown_text(self, tokens="#answer"):
        """Without the guesses that were rejected and the marks of line breaks."""
        return self.page.evaluate(
            f"[...document.querySelectorAll('{tokens} > .token')].map((token) => {{"
            "const copy = token.cloneNode(true);"
            "copy.querySelectorAll('s, .mark').forEach((part) => part.remove());"
            "return copy.textContent; }).join('')")

    def generate(self, n_tokens=60, rule=""):
        page = self.page
        page.fill("#play-form [name=max_tokens]", str(n_tokens))
        page.fill("#play-form [name=seed]", SEED)
        page.fill("#play-form [name=n_draft]", "4")
        page.evaluate(f"document.querySelector('[name=rule]').value = '{rule}'")
        page.click("#generate")

    def view(self, name):
        self.page.click(f"[data-view={name}]")
        self.page.wait(f"!document.querySelector('#{name}').hidden", f"{name} is shown")

    def shot(self, name):
        self.page.screenshot(os.path.join(SHOTS, f"{name}.png"))
