#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""Conversations on the page for browsers, in Chromium against a real cluster: several of them,
kept over a reload, edited, asked again, stopped, copied as requests, saved and opened; Markdown
that a model writes, and a model without a chat template. Where there is no Chromium everything is
skipped."""
import ast
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from cluster import bound, wait_until
from page_test import SECONDS, SEED, BrowserTest

TEXT = """# Sorting

Use **`sorted`**, not *bubble* sort, 2 * 3 * 4, snake_case_names:

```python
first = sorted(xs)[0]  # <b>**no markup**</b>
```

1. stable
2. fast:
   - it takes [n log n](https://example.org/a_(b))
   - and \\*no\\* [more](javascript:alert(1))

> quoted
> twice

| a | b |
|---|---|
| 1 | `x|y` |

<script>document.title = 'taken'</script> ![picture](https://example.org/x.png)
"""


def setUpModule():
    BrowserTest.start()


def tearDownModule():
    BrowserTest.stop()


def stream_of(text):
    """Such an answer as chunks of a few characters each."""
    chunks = [{"choices": [{"index": 0, "delta": {"content": text[i:i + 9]}}]}
              for i in range(0, len(text), 9)]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7,
                                            "total_tokens": 12}})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


class Chat(BrowserTest):
    def setUp(self):
        super().setUp()
        self.view("chat")
        self.set(max_tokens="16", seed=SEED, n_draft="4")

    def set(self, **fields):
        for name, value in fields.items():
            self.page.evaluate(
                f"(() => {{ const f = document.querySelector('#chat-form [name={name}]');"
                f"f.value = {json.dumps(value)}; for (const kind of ['input', 'change'])"
                "f.dispatchEvent(new Event(kind, {bubbles: true})); })()")

    def answered(self, n_messages):
        self.page.wait(f"document.querySelectorAll('.turn').length === {n_messages} &&"
                       "!document.querySelector('#send').disabled", "the answer ends", SECONDS)

    def ask(self, text, n_messages):
        """By Enter; then there are so many messages."""
        self.page.evaluate("document.querySelector('#message').focus()")
        self.page.write(text)
        self.page.press("Enter")
        self.answered(n_messages)

    def texts(self):
        return self.page.evaluate("[...document.querySelectorAll('.turn .body')].map("
                                  "(body) => body.textContent)")

    def kept(self):
        """The conversation as it is kept, the newest of all."""
        return self.page.evaluate(
            "Object.entries(localStorage).filter(([name]) => name.startsWith('outrider.talk.'))"
            ".map(([, text]) => JSON.parse(text)).sort((a, b) => b.changed - a.changed)[0]")

    def contents(self):
        return [(one["role"], one["content"]) for one in self.kept()["messages"]]

    def served(self, messages):
        """The answer to these messages as the API gives it."""
        body = {"messages": messages, "max_tokens": 16, "seed": int(SEED), "temperature": 0.8}
        done = subprocess.run(["curl", "-sS", f"{self.world.url}/v1/chat/completions", "-d",
                               json.dumps(body)], check=True, capture_output=True, text=True,
                              timeout=bound(SECONDS))
        return json.loads(done.stdout)["choices"][0]["message"]["content"]

    def tool(self, turn, name):
        """Clicks what can be done with a message."""
        self.page.evaluate(f"[...document.querySelectorAll('.turn:nth-child({turn}) button')]"
                           f".find((own) => own.textContent === '{name}').click()")

    def test_conversation(self):
        """Two questions, the second by the field's keys; a system prompt; all kept on reload."""
        page = self.page
        self.set(system="Tell a tale.")
        page.evaluate("document.querySelector('#message').focus()")
        page.write("Of a fox.")
        page.press("Enter", "Shift")
        self.assertEqual(self.count(".turn"), 0)
        page.write("And a hen.")
        page.press("Enter")
        self.answered(2)
        asked = [{"role": "system", "content": "Tell a tale."},
                 {"role": "user", "content": "Of a fox.\nAnd a hen."}]
        first = self.served(asked)
        self.assertEqual(self.contents(), [("user", "Of a fox.\nAnd a hen."), ("assistant", first)])
        self.assertRegex(page.text(".turn:nth-child(2) .info"),
                         r"^16 tokens · \d+ rounds · [1-5]\.\d\d a round · \S+ tokens/s · "
                         r"prompt \d+ tokens · cut off at the limit of tokens$")
        self.assertRegex(page.text("#talk-usage"), r"^\d+ of 1,024 tokens of context$")
        self.ask("And then?", 4)
        second = self.served(asked + [{"role": "assistant", "content": first},
                                      {"role": "user", "content": "And then?"}])
        self.assertEqual(self.contents()[3], ("assistant", second))
        page.go("about:blank")
        page.go(self.world.url + "/#chat")
        self.serving()
        self.assertEqual(self.count(".turn"), 4)
        self.assertEqual(page.text("#talk-title"), "Of a fox.")
        self.assertRegex(page.text("#talk-usage"), r"^\d+ of 1,024 tokens of context$")
        self.assertEqual(page.evaluate("document.querySelector('#chat-form [name=system]').value"),
                         "Tell a tale.")

    def test_edit_and_regenerate(self):
        page = self.page
        self.ask("One.", 2)
        self.ask("Two.", 4)
        before = self.contents()
        self.set(seed="8")
        self.tool(4, "Regenerate")
        self.answered(4)
        self.assertEqual(self.contents()[:3], before[:3])
        self.assertNotEqual(self.contents()[3], before[3])
        self.set(seed=SEED)
        self.tool(1, "Edit")
        page.evaluate("document.querySelector('.turn textarea').select()")
        page.write("Three.")
        self.tool(1, "Send again")
        self.answered(2)
        self.assertEqual(self.contents(), [
            ("user", "Three."),
            ("assistant", self.served([{"role": "user", "content": "Three."}]))])
        self.tool(2, "Edit")
        page.evaluate("document.querySelector('.turn textarea').select()")
        page.write("My **own** answer.")
        self.tool(2, "Save")
        self.assertEqual(self.texts()[1], "My own answer.")
        self.assertEqual(self.contents()[1], ("assistant", "My **own** answer."))
        self.tool(2, "Edit")
        page.press("Escape")
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "Edit")

    def test_guesses_of_an_answer(self):
        page = self.page
        self.ask("Of a fox.", 2)
        text = self.texts()[1]
        self.tool(2, "Guesses")
        self.assertEqual(self.count(".turn .tokens .token"), 16)
        self.assertTrue(page.is_shown(".turn .tokens .replacement s"))
        self.assertEqual(self.shown_text(".turn .tokens").split(), text.split())
        self.tool(2, "Guesses")
        self.assertEqual(self.count(".turn .tokens"), 0)
        self.assertTrue(page.is_shown(".turn:nth-child(2) .body"))
        self.tool(2, "Guesses")
        self.tool(2, "Edit")
        self.tool(2, "Cancel")
        self.assertEqual(page.evaluate("document.querySelector('[aria-pressed]').ariaPressed"),
                         "false")
        self.tool(2, "Guesses")
        self.assertEqual(self.count(".turn .tokens .token"), 16)

    def test_stop(self):
        page = self.page
        self.set(max_tokens="900", n_draft="0")
        page.evaluate("document.querySelector('#message').focus()")
        page.write("A long one.")
        page.press("Enter")
        page.wait("document.querySelector('.turn:nth-child(2) .body')?.textContent.length > 9",
                  "it is on its way", SECONDS)
        page.click("#chat-stop")
        self.answered(2)
        self.assertRegex(page.text(".turn:nth-child(2) .info"), r" · stopped$")
        self.assertTrue(self.contents()[1][1])

    def test_several(self):
        """Each keeps its own; one that is deleted can be had back."""
        page = self.page
        self.ask("Of a fox.", 2)
        page.click("#new-talk")
        self.assertEqual(self.count(".turn"), 0)
        self.ask("Of a hen.", 2)
        titles = "[...document.querySelectorAll('#talks button')].map((own) => own.textContent)"
        self.assertEqual(page.evaluate(titles), ["Of a hen.", "Of a fox."])
        page.click("#talks li:nth-child(2) button")
        self.assertEqual(self.texts()[0], "Of a fox.")
        page.click("#talk-tools button:last-child")
        self.assertEqual(page.evaluate(titles), ["Of a hen."])
        page.click("#undo-delete")
        self.assertEqual(sorted(page.evaluate(titles)), ["Of a fox.", "Of a hen."])
        self.assertEqual(self.texts()[0], "Of a fox.")
        self.ask("And then?", 4)
        self.assertEqual([one[1] for one in self.contents()][2:], ["And then?", self.served(
            [{"role": role, "content": text} for role, text in self.contents()[:3]])])

    def test_two_tabs(self):
        """A conversation that goes on in one tab does so in the other one, too."""
        page = self.page
        self.ask("Of a fox.", 2)
        page.evaluate("""(() => {
            const name = Object.keys(localStorage).find((one) => one.startsWith("outrider.talk."));
            const frame = document.createElement("iframe");
            document.body.append(frame);
            const other = frame.contentWindow.localStorage, talk = JSON.parse(other.getItem(name));
            talk.messages.push({role: "user", content: "From elsewhere."});
            other.setItem(name, JSON.stringify(talk));
        })()""")
        page.wait("document.querySelectorAll('.turn').length === 3", "it is shown")
        self.assertEqual(self.texts()[2], "From elsewhere.")

    def test_saved_and_opened(self):
        page = self.page
        page.answer("v1/chat/completions", 200, stream_of(TEXT))
        self.ask("How?", 2)
        folder = os.path.join(self.world.folder, "saved")
        self.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder,
                          browserContextId=page.context)
        for i, name in ((3, "How.md"), (4, "How.json")):
            page.click(f"#talk-tools button:nth-child({i})")
            wait_until(lambda path=os.path.join(folder, name): os.path.exists(path), SECONDS,
                       f"{name} is saved")
        with open(os.path.join(folder, "How.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(),
                             f"# How?\n\n## You\n\nHow?\n\n## Answer\n\n{TEXT.strip()}\n")
        page.click("#talk-tools button:last-child")
        self.assertEqual(self.count(".turn"), 0)
        for name, n_turns, is_taken in (("How.md", 0, "false"), ("How.json", 2, "true")):
            node = page.call("DOM.getDocument")["root"]["nodeId"]
            field = page.call("DOM.querySelector", nodeId=node, selector="#open-file")["nodeId"]
            page.call("DOM.setFileInputFiles", nodeId=field, files=[os.path.join(folder, name)])
            page.wait(f"document.querySelectorAll('.turn').length === {n_turns} && "
                      f"document.querySelector('#chat-problem').hidden === {is_taken}",
                      f"{name} is opened or refused")
        self.assertEqual(self.contents(), [("user", "How?"), ("assistant", TEXT)])

    def test_copied_request(self):
        """The next message as a command, which has the answer that the page gets."""
        page = self.page
        page.evaluate("window.copied = []; Object.defineProperty(navigator, 'clipboard', {value: "
                      "{writeText: async (text) => { copied.push(text); }}})")
        self.ask("It's a fox.", 2)
        for i in (1, 2):
            page.click(f"#talk-tools button:nth-child({i})")
            page.wait(f"copied.length === {i}", "it is copied")
        as_curl, as_python = page.evaluate("copied")
        done = subprocess.run(["bash", "-c", as_curl.replace("curl ", "curl -sS ", 1)], check=True,
                              capture_output=True, text=True, timeout=bound(SECONDS))
        self.assertEqual(json.loads(done.stdout)["choices"][0]["message"]["content"],
                         self.contents()[1][1])
        call = next(node for node in ast.walk(ast.parse(as_python)) if isinstance(node, ast.Call)
                    and ast.unparse(node.func) == "client.chat.completions.create")
        fields = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
        self.assertEqual(fields["messages"], [{"role": "user", "content": "It's a fox."}])
        self.assertEqual(fields["extra_body"], {"outrider": {"n_draft": 4}})

    def test_markdown(self):
        """As elements where it is markup of Markdown, as text where it is markup of HTML."""
        page = self.page
        page.answer("v1/chat/completions", 200, stream_of(TEXT))
        self.ask("How?", 2)
        of = ".turn:nth-child(2) .body "
        for selector, text in (
                ("[role=heading][aria-level='3']", "Sorting"), ("p strong code", "sorted"),
                ("p em", "bubble"), ("pre code", "first = sorted(xs)[0]  # <b>**no markup**</b>"),
                (".code .bar span", "python"), ("ol > li:first-child", "stable"),
                ("ol ul li:first-child a", "n log n"), ("ol ul li:last-child", "and *no* more"),
                ("blockquote p", "quoted\ntwice"), ("table th:last-child", "b"),
                ("table td:first-child", "1"), ("p a", "picture")):
            self.assertEqual(page.evaluate(f"document.querySelector({json.dumps(of + selector)})"
                                           "?.textContent"), text, selector)
        self.assertEqual(page.evaluate(f"[...document.querySelectorAll('{of} a')].map((a) => "
                                       "[a.href, a.rel, a.target])"),
                         [["https://example.org/a_(b)", "noopener noreferrer nofollow", "_blank"],
                          ["https://example.org/x.png", "noopener noreferrer nofollow", "_blank"]])
        self.assertEqual(self.count(of + ":is(script, img, b)"), 0)
        self.assertIn("2 * 3 * 4, snake_case_names:", page.text(of + "p:nth-child(2)"))
        self.assertIn("<script>document.title = 'taken'</script>", page.text(of))
        self.assertEqual(page.evaluate("document.title"), "Outrider")
        self.shot("chat-markdown")

    def test_markdown_that_never_ends(self):
        """Texts made to be read slowly, or to be too deep, are shown to their end."""
        page = self.page
        for text in ("> " * 400, "- " * 400, "**a " * 9000, "a" + "`" * 9001, "[a](" * 9000,
                     "# " + " a" * 9000, "| - " * 9000 + "\n" + "| - " * 9000, "*_" * 9000,
                     "https://a" + "." * 9000, "```" + "a " * 9000 + "`"):
            page.answer("v1/chat/completions", 200, stream_of(f"{text} end"))
            page.click("#new-talk")
            self.ask("How?", 2)
            self.assertRegex(self.texts()[1], r"end\s*$", text[:9])

    def test_model_without_a_template(self):
        page = self.page
        version = subprocess.run(["curl", "-sS", f"{self.world.url}/version"], check=True,
                                 capture_output=True, text=True, timeout=bound(SECONDS)).stdout
        told = json.loads(version)
        told["features"]["chat"] = False
        page.answer("version", 200, json.dumps(told))
        page.go("about:blank")
        page.go(self.world.url + "/#chat")
        self.serving()
        self.assertIn("This model has no chat template", page.text("#chat-kind"))
        self.set(max_tokens="16", seed=SEED, system="Tell a tale.")
        self.ask("Of a fox.", 2)
        prompt = "System: Tell a tale.\nUser: Of a fox.\nAssistant:"
        done = self.world.outrider("generate", prompt, "-n", "16", "--temperature", "0.8", "--seed",
                                   SEED, "--stop", "\nUser:", "--stop", "\nSystem:", "--json")
        self.assertEqual(self.contents()[1][1], json.loads(done.stdout)["text"].lstrip())

    def test_refused_message_stays(self):
        page = self.page
        page.answer("v1/chat/completions", 429, '{"error": {"message": "The queue is full."}}')
        self.ask("Of a fox.", 1)
        self.assertEqual(page.text("#chat-problem"), "The queue is full. Your message is kept: "
                         "send again with Enter in the empty field.")
        page.answers.clear()
        page.press("Enter")
        self.answered(2)
        self.assertEqual(self.texts()[0], "Of a fox.")
        self.assertFalse(page.is_shown("#chat-problem"))
        self.expects_failures = True


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
