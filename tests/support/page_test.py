"""Helpers that the tests of the page share: a cluster, a browser, and a test case that has the page
open.

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
from cluster import SOURCE, Cluster, is_sanitized
from devtools import Browser, Missing
from far_cluster import FarRanks

BUILD = sys.argv[1]
PATIENCE = 4 if is_sanitized(BUILD) else 1
SECONDS = 30 * PATIENCE
PROMPT = "Once upon a time"
SEED = "7"
SHOTS = os.path.join(BUILD, "page")
FOLDER = os.path.join(SOURCE, "coordinator", "page")
FILES = sorted(name for name in os.listdir(FOLDER)
               if name.rpartition(".")[2] in ("html", "css", "js", "svg"))

# The contrast of each text that is seen, by WCAG's formula; below 4.5 are returned. Colours are
# painted to learn what they come to.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const paint = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => colour.slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const grounds = (element) => element
    ? [...grounds(element.parentElement), getComputedStyle(element).backgroundColor] : [];
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const has_text = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!has_text || !element.checkVisibility() || element.matches(":disabled, .mark")) continue;
    const below = light(paint(grounds(element)));
    const own = light(paint([...grounds(element), getComputedStyle(element).color]));
    const ratio = (Math.max(own, below) + 0.05) / (Math.min(own, below) + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)} ` +
      element.textContent.slice(0, 20));
  }
  return poor;
})()"""


def path_of(name):
    """Where the server has a file of the page."""
    return "/" if name == "index.html" else f"/page/{name}"


def source_of(name):
    with open(os.path.join(FOLDER, name), "rb") as file:
        return file.read()


class Far(FarRanks, Cluster):
    """A text of 900 tokens without guesses takes 18 s or more, so that a slow browser can stop it,
    too."""
    delay_s = 0.01


@unittest.skipUnless(skips.has("chromium", "chromium"), "chromium is not installed")
class BrowserTest(unittest.TestCase):
    """Afterwards nothing may have been complained of, and no request may have left the server.
    world: the cluster; browser: None where there is no Chromium."""
    world = None
    browser = None

    @staticmethod
    def start(world=None):
        """The cluster, serving; world: in place of the usual one."""
        os.makedirs(SHOTS, exist_ok=True)
        world = BrowserTest.world = world or Far(BUILD, http=True)
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

    def show_guesses(self):
        """In the text, and the rounds below it; both are folded up at first."""
        self.page.click("#play .marks [value=guesses] + span")
        self.page.evaluate("document.querySelector('#rounds-box').open = true")

    def generate(self, n_tokens=60, rule="", k="4"):
        """With the guesses shown. k "": as many guesses as are planned."""
        page = self.page
        self.show_guesses()
        page.fill("#play-form [name=max_tokens]", str(n_tokens))
        page.fill("#play-form [name=seed]", SEED)
        page.fill("#play-form [name=n_draft]", k)
        page.evaluate(f"document.querySelector('[name=rule]').value = '{rule}'")
        page.click("#generate")

    def compared(self):
        self.page.wait("/identical|differ/.test(document.querySelector('#verdict').textContent)",
                       "both texts are there", SECONDS)

    def view(self, name):
        self.page.click(f"[data-view={name}]")
        self.page.wait(f"!document.querySelector('#{name}').hidden", f"{name} is shown")

    def shot(self, name):
        self.page.screenshot(os.path.join(SHOTS, f"{name}.png"))
