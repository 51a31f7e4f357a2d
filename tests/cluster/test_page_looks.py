#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""How the page for browsers looks and sounds in Chromium against a real cluster: light, dark and on
a phone, to those who hear it, and to those who want no motion. Screenshots go to BUILD/page. Where
there is no Chromium everything is skipped."""
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from page_test import CONTRAST, SECONDS, SHOTS, BrowserTest


def setUpModule():
    BrowserTest.start()


def tearDownModule():
    BrowserTest.stop()


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
        page.evaluate("document.querySelector('#figures-box').open = true")
        for view in ("chat", "compare", "live", "play"):
            page.resize(1280, 900)
            self.view(view)
            if view == "chat":
                self.talk()
            for width in (360, 1280, 1920):
                page.resize(width, 780, is_phone=width == 360)
                self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), width, view)
                self.assertEqual(page.evaluate(CONTRAST), [], view)
                self.shot(f"{view}-{width}")

    def talk(self):
        page = self.page
        page.evaluate("document.querySelector('#chat-form [name=max_tokens]').value = '40'")
        page.fill("#message", "Tell me of a fox.")
        page.press("Enter")
        page.wait("document.querySelector('.turn:nth-child(2) .info')?.textContent &&"
                  "!document.querySelector('#send').disabled", "the answer ends", SECONDS)

    def test_everything_has_a_name_for_those_who_hear_it(self):
        page = self.page
        self.generate(8)
        self.ended()
        page.evaluate("document.querySelector('#figures-box').open = true")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
        for role in ("banner", "navigation", "main", "region", "listbox", "status"):
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


class Phone(BrowserTest):
    """A browser that is narrow from the beginning, with a finger in place of a mouse."""

    def setUp(self):
        super().setUp()
        self.page.resize(390, 844, is_phone=True)
        self.page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.page.go("about:blank")
        self.page.go(self.world.url + "/")
        self.serving()

    def touch(self, selector, *, moved=0):
        """A tap, or a finger that is moved upwards by so many pixels."""
        x, y = self.page.evaluate(
            f"(() => {{ const b = document.querySelector('{selector}').getClientRects()[0];"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        call = self.page.call
        call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        for step in range(1, 6 if moved else 1):
            call("Input.dispatchTouchEvent", type="touchMove",
                 touchPoints=[{"x": x, "y": y - moved * step / 5}])
        call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def edge(self, selector, name):
        return self.page.evaluate(
            f"document.querySelector('{selector}').getBoundingClientRect().{name}")

    def test_text_is_seen_below_the_button(self):
        page = self.page
        self.assertFalse(page.is_shown("[name=max_tokens]"), "the options are folded up")
        page.click("#generate")
        self.wait_count("#answer .token", 1)
        self.assertLess(self.edge("#answer .token", "bottom"), 844)
        self.assertGreater(self.edge("#play-stop", "top"), self.edge(".top", "bottom"))
        self.shot("play-phone-streams")
        self.ended()

    def test_panel_leaves_its_token_free(self):
        page = self.page
        self.show_guesses()
        page.click("#generate")
        self.ended()
        page.evaluate("scrollTo(0, 0); document.querySelector('#answer').scrollTop = 0")
        page.evaluate("document.querySelector('#answer').scrollIntoView({block: 'end'})")
        low = page.evaluate(
            "[...document.querySelectorAll('#answer .token')].findLast((one) => one."
            "getClientRects()[0].bottom < document.querySelector('#answer')."
            "getBoundingClientRect().bottom - 12).dataset.at")
        self.touch(f'#answer [data-at="{low}"]')
        page.wait("document.querySelector('#inspector').checkVisibility()", "a tap points")
        self.assertRegex(page.text("#inspected"), r"p, (target|model)\s+\d")
        chosen = "#answer [aria-selected=true]"
        self.assertLessEqual(self.edge(chosen, "bottom"), self.edge("#inspector", "top"))
        page.screenshot(f"{SHOTS}/token-phone.png", whole=False)
        page.press("Escape")
        self.assertFalse(page.is_shown("#inspector"))

    def test_finger_that_scrolls_points_at_nothing(self):
        page = self.page
        self.show_guesses()
        page.click("#generate")
        self.ended()
        page.evaluate("document.querySelector('#answer').scrollIntoView({block: 'end'});"
                      "document.querySelector('#answer').scrollTop = 0")
        self.touch('#answer [data-at="9"]', moved=60)
        page.wait("document.querySelector('#answer').scrollTop > 0 || scrollY > 0", "it scrolls")
        self.assertFalse(page.is_shown("#inspector"))

    def test_wrong_field_is_unfolded(self):
        page = self.page
        page.evaluate("document.querySelector('#play-form [name=seed]').value = 'x'")
        page.click("#generate")
        self.assertTrue(page.is_shown("#play-form [name=seed]"))
        self.assertEqual(page.evaluate("document.activeElement.name"), "seed")

    def test_both_clocks_are_seen(self):
        self.view("compare")
        self.page.click("[name=order][value=together] + span")
        self.page.click("#compare-run")
        for lane in (1, 2):
            self.wait_count(f".lane:nth-child({lane}) .token", 1)
            self.assertLess(self.edge(f".lane:nth-child({lane}) .token", "bottom"), 844)
            self.assertGreater(self.edge(f".lane:nth-child({lane}) .clock", "top"), 80)
        self.page.screenshot(f"{SHOTS}/compare-phone-streams.png", whole=False)
        self.page.click("#compare-stop")


class Widths(BrowserTest):
    def test_panel_can_be_closed_wherever_it_lies_over_something(self):
        page = self.page
        self.generate(8)
        self.ended()
        for width in (390, 800, 1100):
            page.resize(width, 800)
            page.evaluate("scrollTo(0, 0)")
            page.hover("#answer .token:nth-child(2)")
            self.assertTrue(page.is_shown("#inspector"), width)
            page.click("#close-token")
            self.assertFalse(page.is_shown("#inspector"), width)

    def test_closed_panel_leaves_the_keyboard_where_it_was(self):
        page = self.page
        self.generate(8)
        self.ended()
        page.evaluate("document.querySelector('#answer .token').focus()")
        page.press("ArrowRight", times=2)
        page.press("Escape")
        self.assertIn("Point at a token", page.text("#inspected"))
        page.press("ArrowRight")
        self.assertEqual(page.evaluate("document.activeElement.dataset.at"), "3")
        self.assertRegex(page.text("#inspected"), r"p, (target|model)\s+\d")

    def test_head_covers_nothing_that_has_the_focus(self):
        page = self.page
        page.resize(800, 500)
        page.evaluate("scrollTo(0, 1e6); document.querySelector('[name=temperature]').focus()")
        self.assertGreater(
            page.evaluate("document.activeElement.getBoundingClientRect().top -"
                          "document.querySelector('.top').getBoundingClientRect().bottom"), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
