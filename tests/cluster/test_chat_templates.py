#!/usr/bin/env python3
# ctest: labels=quick,slow libs=jinja timeout=120
"""Chat templates print the same bytes with model/jinja as with Python's jinja2 in the settings of
transformers, or both refuse: the templates of tests/golden/templates over conversations of every
kind, and random ones. Skipped (77) where jinja2 is not installed.

Usage: test_chat_templates.py BUILD_FOLDER [unittest options]

CHAT_TEMPLATES_SEED and CHAT_TEMPLATES_RANDOM set the seed and the number of random templates."""
import json
import os
import random
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import random_templates
from cluster import SOURCE
from jinja_reference import Reference

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else os.path.join(SOURCE, "build", "release")
TEMPLATES = os.path.join(SOURCE, "tests", "golden", "templates")
NOW_S = 1700000000
TURNS = [turn for i in range(10) for turn in (
    {"role": "user", "content": f"Question {i}: " + "why is it so? " * 20},
    {"role": "assistant", "content": f"Answer {i}:\n\n" + "- because\n" * 30})]
CALL = {"id": "call12345", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Köln", "days": [1, 2.5, None, True]}}}
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a <city>, \"now\"",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "its name", "enum": ["Köln", "Rom"]},
        "days": {"type": "array", "items": {"type": "number"}}}}}}
CONVERSATIONS = {
    "one turn": [{"role": "user", "content": "Hello, how are you?"}],
    "three turns": [{"role": "user", "content": " Hello "}, {"role": "assistant", "content": "Hi!"},
                    {"role": "user", "content": "What now?  \n"}],
    "system": [{"role": "system", "content": " You are \"kind\". "},
               {"role": "user", "content": "Who's there? <b>"}],
    "assistant last": [{"role": "user", "content": "Say it"},
                       {"role": "assistant", "content": "It is\n"}],
    "empty": [{"role": "system", "content": ""}, {"role": "user", "content": ""},
              {"role": "assistant", "content": ""}],
    "unicode": [{"role": "user", "content": "äöü ß \u3000你好\u00a0\u2028 \U0001f600 e\u0301\x7f"}],
    "tools": [{"role": "user", "content": "weather?"},
              {"role": "assistant", "content": "", "tool_calls": [CALL]},
              {"role": "tool", "tool_call_id": "call12345", "name": "get_weather",
               "content": "{\"t\": 21}"},
              {"role": "assistant", "content": "21 degrees"},
              {"role": "user", "content": "Thanks"}],
    "call without content": [{"role": "user", "content": "weather?"},
                             {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
                             {"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "What is"},
                                           {"type": "text", "text": " this?"}]},
              {"role": "assistant", "content": [{"type": "text", "text": "That."}]}],
    "picture": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}],
    "thinking": [{"role": "user", "content": "q"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer"},
                 {"role": "user", "content": "again"},
                 {"role": "assistant", "content": "answer", "reasoning_content": "hm"}],
    "long": [{"role": "system", "content": "Be brief."}, *TURNS,
             {"role": "user", "content": "So?"}],
    "two users": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "odd roles": [{"role": "assistant", "content": "first"}, {"role": "critic", "content": "x"}],
    "nothing": [],
}
MORE = [{}, {"tools": [TOOL]}, {"enable_thinking": False, "thinking": True}]


def families():
    for name in sorted(os.listdir(TEMPLATES)):
        if name.endswith(".jinja"):
            with open(os.path.join(TEMPLATES, name), encoding="utf-8", newline="") as file:
                yield name[:-len(".jinja")], file.read()


def conversations():
    """(name, values) of each conversation in each way in which it is given."""
    for name, messages in CONVERSATIONS.items():
        for with_prompt in (True, False):
            for more in MORE:
                yield f"{name}, prompt {with_prompt}, {sorted(more)}", {
                    "messages": messages, "add_generation_prompt": with_prompt, "tools": None,
                    "documents": None, "bos_token": "<s>", "eos_token": "</s>", **more}


def ours(requests):
    """The answers of prog_chat_template to (template, values) pairs."""
    lines = [json.dumps({"template": template, "values": values, "now_s": NOW_S})
             for template, values in requests]
    done = subprocess.run([os.path.join(BUILD, "tests", "prog_chat_template")],
                          input="\n".join(lines) + "\n", stdout=subprocess.PIPE, encoding="utf-8",
                          timeout=300, check=False)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if done.returncode or len(answers) != len(lines):
        asked = lines[len(answers)] if len(answers) < len(lines) else ""
        raise AssertionError(f"status {done.returncode} after {len(answers)} answers: {asked}")
    return answers


class SameBytes(unittest.TestCase):
    def compare(self, names, requests):
        """The numbers of equal texts and of what both refuse."""
        reference = Reference(NOW_S)
        texts = refusals = 0
        differences = []
        for name, (template, values), got in zip(names, requests, ours(requests), strict=True):
            want = reference.answer(template, values)
            texts += "text" in want
            refusals += "refused" in want
            is_same = got.get("text") == want.get("text") and ("refused" in got) == (
                "refused" in want)
            if not is_same:
                differences.append(f"{name}\n  jinja2 {want}\n  ours   {got}")
        self.assertFalse(differences, f"{len(differences)} differ, the first of them:\n" +
                         "\n".join(differences[:5]))
        return texts, refusals

    def test_templates_of_families_print_the_same(self):
        names, requests = [], []
        for family, template in families():
            for name, values in conversations():
                names.append(f"{family}: {name}")
                requests.append((template, values))
        texts, refusals = self.compare(names, requests)
        print(f"families: {texts} texts are equal, {refusals} are refused by both")
        self.assertGreater(texts, len(requests) / 2)

    def test_every_family_prints_most_conversations(self):
        """None of the equalities above is only that both refuse."""
        plain = ("one turn", "three turns", "system", "unicode", "long", "assistant last")
        found = dict(families())
        self.assertGreaterEqual(len(found), 25)
        for family, template in found.items():
            requests = [(template, values) for name, values in conversations()
                        if name.startswith(plain)]
            n_texts = sum("text" in answer for answer in ours(requests))
            self.assertGreaterEqual(n_texts, len(requests) / 2, family)

    def test_random_templates_print_the_same(self):
        seed = int(os.environ.get("CHAT_TEMPLATES_SEED", "11"))
        n_templates = int(os.environ.get("CHAT_TEMPLATES_RANDOM", "1500"))
        print(f"{n_templates} random templates, seed {seed}")
        writer = random_templates.Writer(random.Random(seed))
        templates = [writer.statements(2) if i % 2 else f"{{{{ {writer.expression(3)} }}}}"
                     for i in range(n_templates)]
        requests = [(template, random_templates.VALUES) for template in templates]
        texts, refusals = self.compare([repr(template) for template in templates], requests)
        print(f"random: {texts} texts are equal, {refusals} are refused by both")
        self.assertGreater(texts, n_templates / 5)


if __name__ == "__main__":
    unittest.main()
