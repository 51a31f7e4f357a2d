#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""Trees of guesses on the page for browsers, in Chromium against a real cluster, whose first guess
of each round has two siblings: in the text, in the rounds, for a token and for a round, by
mouse, by keyboard and for those who hear it, side by side and in the live figures. Screenshots
go to BUILD/page. Where there is no Chromium everything is skipped."""
import json
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import skips
from cluster import Cluster
from page_test import BUILD, CONTRAST, PROMPT, SECONDS, SEED, BrowserTest

N_TOKENS = 150
K = "4"
TEXTS = "[...document.querySelectorAll('%s')].map((e) => e.textContent)"

world = None


def ask(*more):
    done = world.outrider("generate", PROMPT, "-n", str(N_TOKENS), "--temperature", "0.8",
                          "--seed", SEED, "--json", *more)
    return json.loads(done.stdout)


def setUpModule():
    global world
    if not skips.has("chromium", "chromium"):
        return
    world = BrowserTest.start(Cluster(BUILD, http=True, worker_flags=["--threads", "1"],
                                      coordinator_flags=["--trees", "3"]))


def tearDownModule():
    if world:
        BrowserTest.stop()


class Trees(BrowserTest):
    def make(self, rule="", wanted="#answer .sibling"):
        """Makes a text that has what the test looks at."""
        self.generate(N_TOKENS, rule, k=K)
        self.ended()
        self.assertGreater(self.count(wanted), 0, wanted)

    def point(self, selector):
        """The rounds scroll in a box of their own."""
        self.page.evaluate(f"document.querySelector('{selector}').scrollIntoView()")
        self.page.hover(selector)

    def summary(self):
        """Siblings that were checked, and that stayed, as the server counts them."""
        numbers = self.page.evaluate(
            "/([\\d,]+) siblings? of guesses (?:was|were) checked, too; ([\\d,]+) were accepted/"
            ".exec(document.querySelector('#summary .note').textContent).slice(1)")
        return [int(number.replace(",", "")) for number in numbers]

    def test_text_has_the_siblings_that_stayed(self):
        page = self.page
        self.make()
        self.assertEqual(self.shown_text(), ask("-K", "0")["text"])
        n_siblings, n_stayed = self.summary()
        self.assertGreater(n_siblings, n_stayed)
        self.assertGreater(n_stayed, 0)
        stayed = self.count("#answer .sibling")
        self.assertIn(stayed, (n_stayed - 1, n_stayed), "the text may end before the last one")
        self.assertEqual(self.count("#answer .sibling s:first-child"), stayed)
        self.assertEqual(self.count("#answer .sibling:not(.accepted)"), 0)
        self.assertRegex(page.evaluate("document.querySelector('#answer .sibling').ariaLabel"),
                         r", accepted sibling, instead of .+, p 1\.000")

    def test_rounds_stack_siblings_below_their_guess(self):
        page = self.page
        self.make()
        n_siblings, n_stayed = self.summary()
        self.assertEqual(self.count("#rounds .place .chip:not(:first-child)"), n_siblings)
        self.assertEqual(self.count("#rounds .place .accepted:not(:first-child)"), n_stayed)
        self.assertEqual(self.count("#rounds .place .accepted + .accepted"), 0)
        self.assertEqual(self.count("#rounds .chip.rejected"), self.count("#answer s"))
        below = page.evaluate(
            "[...document.querySelectorAll('#rounds .place .chip + .chip')].every((chip) => {"
            "const own = chip.getBoundingClientRect();"
            "const other = chip.previousSibling.getBoundingClientRect();"
            "return own.top >= other.bottom && own.left === other.left; })")
        self.assertTrue(below, "each sibling is below the guess before it")
        label = page.evaluate("document.querySelector('#rounds li:has(.place)').ariaLabel")
        self.assertRegex(label, r"^Round \d+: \d+ guess(es)?, \d+ accepted, \d+ siblings?, \d+ acc")

    def test_round_in_the_inspector(self):
        page = self.page
        self.make("rejection")
        self.point("#rounds li:has(.place)")
        rows = "#inspected .guesses tbody tr"
        self.assertGreater(self.count(f"{rows}.sibling"), 0)
        self.assertEqual(self.count(f"{rows}:first-child.sibling"), 0)
        for row in page.evaluate(TEXTS % f"{rows}.sibling"):
            self.assertRegex(row, r"^sibling of guess \d+: ")
        self.assertRegex(page.text("#inspected"),
                         r"\d+ of \d+ guess(es)? accepted, and [01] of \d+ siblings?; \d+ token")
        self.shot("trees-round")
        n_rows, n_chips = self.count(rows), self.count("#rounds .shown .chip")
        self.assertIn(n_chips, (n_rows, n_rows + 1), "every guess has a row")
        self.assertGreater(
            page.evaluate(f"document.querySelector('{rows}.sibling .chip')"
                          ".getBoundingClientRect().left"),
            page.evaluate(f"document.querySelector('{rows} .chip').getBoundingClientRect().left"))

    def test_token_in_the_inspector(self):
        page = self.page
        behind = "#answer .sibling + .bonus"
        self.make("rejection", behind)
        self.point("#answer .sibling")
        shown = page.text("#inspected")
        self.assertRegex(shown, r"Sibling [123] of guess \d+ in round \d+; it was accepted ")
        self.assertRegex(shown, r"p, target\s+\d\S*\s+q, draft\s+\d\S*\s+Rejected: \S+\s+"
                         r"p, target\s+\d\S*\s+q, draft\s+\d")
        self.assertEqual(self.count("#inspected .was"),
                         self.count("#answer [aria-selected=true] s"))
        for scheme in ("light", "dark"):
            page.wish(prefers_color_scheme=scheme)
            self.assertEqual(page.evaluate(CONTRAST), [], scheme)
            self.shot(f"trees-{scheme}")
        self.point(behind)
        self.assertRegex(page.text("#inspected"), r"A sibling of guess \d+ of round \d+ was acc")
        page.resize(360, 780, is_phone=True)
        self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), 360)
        self.shot("trees-phone")

    def test_figures_are_those_of_the_chain(self):
        page = self.page
        self.make()
        figures = dict(page.evaluate("[...document.querySelectorAll('#figures div')].map((d) => "
                                     "[...d.children].map((part) => part.textContent))"))
        tested, stayed = page.evaluate(
            "[2, 3].map((i) => [...document.querySelectorAll(`#summary table:last-of-type tbody "
            "td:nth-child(${i})`)].reduce((sum, e) => sum + Number(e.textContent), 0))")
        self.assertAlmostEqual(float(figures["Alpha"]), stayed / tested, delta=0.006)
        n_chain = self.count("#rounds .chips > .chip:is(.accepted, .rejected, .unseen), "
                             "#rounds .place > .chip:first-child")
        self.assertAlmostEqual(float(figures["Mean K"]), n_chain / self.count("#rounds li"),
                               delta=0.06)

    def test_keyboard(self):
        page = self.page
        self.make()
        page.evaluate("document.querySelector('#answer .sibling').focus()")
        self.assertIn("it was accepted in place of that guess", page.text("#inspected"))
        page.press("ArrowRight")
        self.assertEqual(page.evaluate("document.activeElement.previousElementSibling.className"),
                         "token accepted sibling in-round")
        page.evaluate("document.querySelector('#rounds li').focus()")
        page.press("ArrowDown")
        self.assertEqual(page.text("#inspector-title"), "Round 2")

    def test_side_by_side_is_identical(self):
        page = self.page
        self.view("compare")
        page.fill("#compare [name=max_tokens]", str(N_TOKENS))
        page.fill("#compare [name=n_draft]", K)
        page.click("#compare-run")
        self.compared()
        self.assertIn(f"The two texts are identical: {N_TOKENS} tokens", page.text("#verdict"))
        self.assertGreater(self.count(".lane:nth-child(1) .sibling"), 0)
        self.assertEqual(self.count(".lane:nth-child(2) .sibling"), 0)

    def test_live_figures_tell_of_siblings(self):
        page = self.page
        self.view("live")
        page.wait("document.querySelectorAll('.figure').length === 10", "there are cards")
        ask("-K", K)
        page.wait("/Besides, [\\d,]+ siblings?: [\\d,]+ accepted/.test("
                  "document.querySelector('.figure:nth-child(4)').textContent)",
                  "the card of alpha tells of siblings", SECONDS)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, warnings="ignore")
