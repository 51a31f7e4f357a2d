#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""The page for browsers, in Chromium against a real cluster: texts that stream, their guesses on
demand, tokens and rounds by mouse and by keyboard, two texts side by side, live figures, and a
group that is lost. No request may leave the server and nothing may be complained of. Where there is
no Chromium everything is skipped. Files and keys are in test_page_files.py, conversations in
test_page_chat.py, looks in test_page_looks.py."""
import ast
import json
import re
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from cluster import bound, wait_until
from page_test import FILES, PATIENCE, PROMPT, SECONDS, SEED, BrowserTest, path_of

FIRST_PAINT_BYTES = 100_000
COMPARED = 200  # tokens of texts side by side, which are looked at while both grow

world = None


def setUpModule():
    global world
    world = BrowserTest.start()


def tearDownModule():
    BrowserTest.stop()


def text_alone(n_tokens, *more):
    done = world.outrider("generate", PROMPT, "-n", str(n_tokens), "--json", *more)
    return json.loads(done.stdout)["text"]


class Playground(BrowserTest):
    def test_first_paint_is_small(self):
        """All files of the page, and whatever else has come by then."""
        page = self.page
        page.wait("performance.getEntriesByType('paint').length > 1", "something is painted")
        page.evaluate("1")  # and is told
        files = {world.url + path_of(name) for name in FILES}
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
        self.assertIn("coupled", page.evaluate("document.querySelector('#figures').textContent"))
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
        self.assertRegex(page.text("#inspected"), r"\s0\.\d+\s+\d\S*\s+(accepted|rejected)")

    def test_p_of_a_token_that_was_not_guessed(self):
        page = self.page
        self.show_guesses()
        page.fill("#play-form [name=n_draft]", "0")
        page.click("#generate")
        self.ended()
        page.hover("#answer .plain")
        self.assertRegex(page.text("#inspected"), r"p, model\s+\d\.\d+")
        self.assertNotIn("unknown", page.text("#inspected"))

    def test_text_comes_first(self):
        """No mark is seen until somebody asks for them; the choice stays, and so does the form."""
        page = self.page
        page.fill("#prompt", "There was a king")
        page.fill("#play-form [name=max_tokens]", "30")
        page.fill("#play-form [name=seed]", SEED)
        page.fill("#play-form [name=n_draft]", "4")
        page.click("#generate")
        self.ended()
        self.assertRegex(page.text("#line"), r"^30 tokens after a prompt of \d+ in \d+ rounds: "
                         r"[1-5]\.\d\d a round, \S+ tokens/s$")
        self.assertEqual(page.text("#answer"), self.shown_text())
        for hidden in ("#answer s", "#legend", "#inspector", "#rounds li", "#figures"):
            self.assertFalse(page.is_shown(hidden), hidden)
        self.assertEqual(self.count("#answer [role=option]"), 0)
        self.show_guesses()
        self.assertEqual(self.count("#answer [role=option]"), 30)
        for shown in ("#answer s", "#legend", "#rounds li"):
            self.assertTrue(page.is_shown(shown), shown)
        page.go("about:blank")
        page.go(world.url + "/")
        self.serving()
        self.assertEqual(page.evaluate("document.querySelector('#prompt').value"),
                         "There was a king")
        self.assertEqual(page.evaluate("document.querySelector('[name=seed]').value"), SEED)
        self.assertTrue(page.is_shown("#legend"))
        self.assertTrue(page.is_shown("#rounds"))

    def test_copied_request_has_the_same_text(self):
        """As curl, which is run here, and as a program, which is read here; the seed has more
        digits than a number of JavaScript."""
        page, seed = self.page, 2**63 - 2
        prompt = 'He said "it\'s \\n $HOME"\nand 漢字 👩'
        page.evaluate("window.copied = []; Object.defineProperty(navigator, 'clipboard', {value: "
                      "{writeText: async (text) => { copied.push(text); }}})")
        page.evaluate(f"document.querySelector('#prompt').value = {json.dumps(prompt)}")
        page.fill("#play-form [name=max_tokens]", "12")
        page.fill("#play-form [name=seed]", str(seed))
        page.fill("#play-form [name=top_k]", "40")
        page.click("#generate")
        self.ended()
        for i in (2, 3):
            page.click(f"#answer-tools button:nth-child({i})")
            page.wait(f"copied.length === {i - 1}", "it is copied")
        as_curl, as_python = page.evaluate("copied")
        done = subprocess.run(["bash", "-c", as_curl.replace("curl ", "curl -sS ", 1)], check=True,
                              capture_output=True, text=True, timeout=bound(SECONDS))
        self.assertEqual(json.loads(done.stdout)["choices"][0]["text"], self.shown_text())
        call = next(node for node in ast.walk(ast.parse(as_python)) if isinstance(node, ast.Call)
                    and ast.unparse(node.func) == "client.completions.create")
        fields = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
        self.assertEqual(fields, {"model": "target", "prompt": prompt, "max_tokens": 12,
                                  "temperature": 0.8, "seed": seed, "extra_body": {"top_k": 40}})
        self.assertIn(f'OpenAI(base_url="{world.url}/v1", api_key="none")', as_python)

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
        self.show_guesses()
        self.tab_to("answer")
        page.press("ArrowRight", times=3)
        at = page.evaluate("document.activeElement.dataset.at")
        self.assertEqual(at, "3")
        self.assertRegex(page.text("#inspected"), r"p, (target|model)\s+\d")
        self.assertNotEqual(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"),
                            "none")
        page.press("End")
        self.assertEqual(page.evaluate("document.activeElement.nextElementSibling"), None)
        self.tab_to("rounds")

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
        with_guesses, without = (f".lane:nth-child({i}) .tokens" for i in (1, 2))
        page.evaluate(f"""window.states = []; window.early = 0;
            new MutationObserver(() => {{ states.push(document.querySelector('#verdict')
                .textContent); }}).observe(document.querySelector('#verdict'), {{childList: true}});
            new MutationObserver(() => {{
                const n = document.querySelectorAll({json.dumps(with_guesses + " .token")}).length;
                if (n < {COMPARED}) early++;
            }}).observe(document.querySelector({json.dumps(without)}), {{childList: true}}), 0""")
        page.click("#compare-run")
        self.compared()
        self.assertEqual(page.evaluate("early"), 0, "in turns")
        states = [state for state in page.evaluate("states") if state]
        self.assertRegex(states.pop(), f"The two texts are identical: {COMPARED} tokens")
        self.assertEqual(states, ["A warm-up first, which does not count.",
                                  "Now with guesses.", "Now without."])
        self.shot("compare-light")
        self.assertEqual(self.shown_text(with_guesses), self.shown_text(without))
        self.assertEqual(self.shown_text(without),
                         text_alone(COMPARED, "--temperature", "0.8", "--seed", SEED))
        self.assertGreater(self.count(f"{with_guesses} .accepted"), 0)
        self.assertEqual(self.count(f"{without} .plain"), COMPARED)
        n_rounds, n_plain = (int(re.search(r"in (\d+) rounds", page.text(f".lane:nth-child({i})"))
                                 [1]) for i in (1, 2))
        self.assertEqual(n_plain, COMPARED)
        self.assertEqual(page.text("#verdict-rounds"), f"{n_rounds} rounds instead of {n_plain}, "
                         f"{COMPARED / n_rounds:.2f} tokens a round")
        self.assertRegex(page.text("#verdict-clock"), r"^\d+\.\d\d times as fast on this machine")
        for lane in (1, 2):
            self.assertGreater(float(page.text(f".lane:nth-child({lane}) .clock").split()[0]), 0)

    def test_side_by_side_together(self):
        page = self.page
        self.view("compare")
        page.click("[name=order][value=together] + span")
        page.fill("#compare [name=max_tokens]", "900")
        page.click("#compare-run")
        page.wait("[...document.querySelectorAll('.lane .tokens')].every((l) => l.children.length)",
                  "both stream together", SECONDS)
        self.assertEqual(page.text("#verdict"), "Both at once.")
        page.click("#compare-stop")
        page.wait("document.querySelector('#verdict').textContent === 'Stopped.'", "it stops")
        self.assertFalse(page.is_shown("#verdict-box"))

    def test_side_by_side_says_why_nothing_was_guessed(self):
        """One token leaves nothing to guess; the sentence is the server's."""
        page = self.page
        self.view("compare")
        page.fill("#compare [name=max_tokens]", "1")
        page.click("#compare-run")
        self.compared()
        self.assertEqual(page.text("#verdict-why"),
                         "There were no guesses: one token leaves nothing to guess.")
        self.assertEqual(page.text("#verdict-rounds"), "1 round instead of 1, 1.00 tokens a round")

    def test_live_figures_change(self):
        page = self.page
        self.view("live")
        page.wait("document.querySelectorAll('.figure').length === 10", "there are cards")
        with Busy("generate", PROMPT, "-n", "700", "--ignore-eos", "-K", "4"):
            for card, words in ((1, r"^[1-9]"), (2, "ms"), (3, "ms"), (4, r"^0\.\d"),
                                (5, r"^[1-4]"), (6, r"^1\.00"), (7, "1 running"), (8, r"^\d.* %"),
                                (9, "1 of 1 serve"), (10, r"[1-9]\d* tokens")):
                page.wait(f"new RegExp({json.dumps(words)}).test(document.querySelector("
                          f"'.figure:nth-child({card}) .now').textContent)",
                          f"card {card} shows the work", SECONDS)
            self.assertEqual(self.count(".figure .axis"), 8)
            self.assertEqual(self.count(".figure .ticks"), 8)
            # Each as it is while a text is made, which it is not between two.
            for part, words in (
                    ("(1) .plot", r"^[1-9]\d*\s+\d+(\.5)?\s+0\s+30 s ago\s+now$"),
                    ("(2) .ticks", r"^\d+ ms\s+\S+ ms\s+0 ms$"),
                    ("(4) .axis", r"^1\s+(0\.\d\d|1\.00)\s+2\s+(0\.\d\d|1\.00)"),
                    ("(3)", r"\d+ % messages to the ranks and back"),
                    ("(9)", r"group 0\s+serves\s+1\s+0\s+\d+")):
                wait_until(lambda part=part, words=words:
                           re.search(words, page.text(f".figure:nth-child{part}")), SECONDS,
                           f"figure {part} has {words}")
            self.shot("live-light")
            page.wish(prefers_color_scheme="dark")
            self.shot("live-dark")
        page.wait("/^last .+ ms$/.test(document.querySelector('.figure:nth-child(3) .now')"
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
        self.assertRegex(page.text("#outage"), "^The target group .+(waiting for it|by itself)[.]$")
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
