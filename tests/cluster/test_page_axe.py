#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""The page for browsers as axe-core judges it, in Chromium against a real cluster: every view, with
all that it can show, light on a phone and dark on a wide screen, has to have no finding, best
practices included. Where there is no Chromium everything is skipped."""
import importlib.util
import os
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import pypi

pypi.enter(sys.argv[1], "axe.txt", ["--no-deps"])

from page_test import SECONDS, BrowserTest

# Contrasts take most of the time; test_page_looks.py computes them on a phone.
FINDINGS = """axe.run(document, {resultTypes: ["violations"], rules: {"color-contrast": {enabled:
    innerWidth > 500}}}).then((all) => all.violations.map((one) => `${one.id} (${one.impact}): ` +
    one.nodes.map((n) => n.target.join(" ")).join(", ")))"""
# A text with each kind of element that Markdown makes.
MARKDOWN = "\\n\\n".join(["# A", "1. [b](https://example.org)", "> c", "```sh\\nd\\n```",
                         "|e|f|\\n|-|-|\\n|g|h|"])


def setUpModule():
    BrowserTest.start()


def tearDownModule():
    BrowserTest.stop()


def script():
    folder = importlib.util.find_spec("axe_playwright_python").submodule_search_locations[0]
    with open(os.path.join(folder, "axe.min.js"), encoding="utf-8") as file:
        return file.read()


class Axe(BrowserTest):
    def setUp(self):
        super().setUp()
        self.page.evaluate(f"{script()}; 0")

    def check(self, what):
        for width, scheme in ((390, "light"), (1600, "dark")):
            self.page.resize(width, 900, is_phone=width == 390)
            self.page.wish(prefers_color_scheme=scheme)
            self.assertEqual(self.page.evaluate(FINDINGS), [], f"{what}, {width}, {scheme}")
        self.page.resize(1280, 900)

    def test_findings_are_found(self):
        self.page.evaluate("document.querySelector('#prompt').previousElementSibling.remove()")
        self.assertRegex(" ".join(self.page.evaluate(FINDINGS)), r"label \(critical\): #prompt")

    def test_playground(self):
        page = self.page
        self.check("before the first text")
        self.generate(40)
        self.ended()
        page.evaluate("document.querySelector('#figures-box').open = true")
        page.hover("#answer .accepted")
        self.check("guesses")
        page.hover("#rounds li")
        self.check("a round")
        page.click("#play .marks [value=text] + span")
        self.check("the text alone")
        page.evaluate("document.querySelector('#play-problem').hidden = false;"
                      "document.querySelector('#play-problem').textContent = 'No.'")
        self.check("a problem")

    def test_chat(self):
        page = self.page
        self.view("chat")
        self.check("no conversation")
        page.evaluate("document.querySelector('#chat-form [name=max_tokens]').value = '40'")
        page.fill("#message", "Of a fox.")
        page.press("Enter")
        page.wait("document.querySelector('.turn:nth-child(2) .info')?.textContent &&"
                  "!document.querySelector('#send').disabled", "the answer ends", SECONDS)
        page.evaluate("document.querySelector('#chat-options').open = true;"
                      "[...document.querySelectorAll('.turn button')]"
                      ".find((own) => own.textContent === 'Guesses').click()")
        self.check("guesses")
        page.evaluate("document.querySelectorAll('.turn button')[1].click()")
        page.evaluate("[...document.querySelectorAll('.turn:last-child button')]"
                      ".find((own) => own.textContent === 'Edit').click()")
        page.evaluate(f"document.querySelector('.turn:last-child textarea').value = '{MARKDOWN}';"
                      "document.querySelector('.turn:last-child .edit .main').click()")
        self.assertEqual(self.count(".turn:last-child :is(pre, td, blockquote, a)"), 5)
        self.check("Markdown, and a message that is edited")

    def test_side_by_side_and_live(self):
        page = self.page
        self.view("compare")
        page.fill("#compare [name=max_tokens]", "30")
        page.click("#compare-run")
        self.compared()
        self.check("both texts")
        page.click("#compare .marks [value=guesses] + span")
        self.check("both texts with guesses")
        self.view("live")
        page.wait("document.querySelectorAll('.figure').length === 10", "there are cards", SECONDS)
        self.check("live figures")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
