#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""How the page for browsers looks and sounds in Chromium against a real cluster: light, dark and on
a phone, to those who hear it, and to those who want no motion. Screenshots go to BUILD/page. Where
there is no Chromium everything is skipped."""
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from page_test import BrowserTest


def setUpModule():
    BrowserTest.start()


def tearDownModule():
    BrowserTest.stop()


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
NAMED_ROLES = {"button", "textbox", "combobox", "checkbox", "radio", "option", "link", "listbox",
               "spinbutton", "searchbox", "region", "navigation", "image", "complementary"}


class Looks(BrowserTest):
    def test_light_dark_and_phone(self):
        page = self.page
        self.generate(80, "rejection")
        self.ended()
        page.hover("#answer .replacement")
        for scheme in ("light", "dark"):
            page.wish(prefers_color_scheme=scheme)
            self.assertEqual(page.evaluate(CONTRAST), [], scheme)
            self.shot(f"play-{scheme}")
        for view in ("play", "compare", "live"):
            page.resize(1280, 900)
            self.view(view)
            page.resize(360, 780, is_phone=True)
            self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), 360, view)
            self.assertEqual(page.evaluate(CONTRAST), [], view)
            self.shot(f"{view}-phone")

    def test_everything_has_a_name_for_those_who_hear_it(self):
        page = self.page
        self.generate(8)
        self.ended()
        page.click("[name=kind][value=chat] + span")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
        for role in ("banner", "navigation", "main", "complementary", "listbox", "status"):
            self.assertIn(role, roles)
        nameless = [node for node in nodes if not node["ignored"] and
                    node["role"]["value"] in NAMED_ROLES and
                    not node.get("name", {}).get("value", "").strip()]
        self.assertEqual(nameless, [])

    def test_no_motion_for_those_who_want_none(self):
        page = self.page
        moves = "getComputedStyle(document.querySelector('#answer-title'), '::after').animationName"
        page.evaluate("document.querySelector('#play').classList.add('running')")
        self.assertEqual(page.evaluate(moves), "wait")
        page.wish(prefers_reduced_motion="reduce")
        self.assertEqual(page.evaluate(moves), "none")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
