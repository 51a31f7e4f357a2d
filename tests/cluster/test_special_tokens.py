#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""Special tokens in prompts, stop strings and answers, over HTTP and on the command line, and the
tokens that end a text. The next token of the model is a chosen one, so the right ids and texts are
known (tests/support/chain_model.py).

Usage: test_special_tokens.py BUILD_FOLDER [unittest options]"""
import contextlib
import json
import os
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from chain_model import write_chain_model
from cluster import SOURCE, Cluster

BUILD = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 else
                        os.path.join(SOURCE, "build", "release"))
EOS, PLAIN_END, BEGIN, START, END, FIM = 257, 288, 289, 290, 291, 292
NAMES = {EOS: "<|endoftext|>", BEGIN: "<|begin|>", START: "<|im_start|>", END: "<|im_end|>",
         FIM: "<|fim|>"}
ADDED = [{"id": PLAIN_END, "content": "<end>", "special": False},
         *({"id": number, "content": name} for number, name in NAMES.items())]
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
            "{% if add_generation_prompt %}a{% endif %}")
BEGINS = {"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": NAMES[BEGIN], "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"],
          "special_tokens": {NAMES[BEGIN]: {"id": NAMES[BEGIN], "ids": [BEGIN],
                                            "tokens": [NAMES[BEGIN]]}}}


def ids(text):
    return list(text.encode())


# Chains of ids, each following the one before: a text that ends with a special token, one that has
# one within it, one that ends with an ordinary token of the request, and one that an added token
# which is not special ends.
CHAINS = [[*ids("ab"), END, START, *ids("cd"), EOS], [*ids("ef"), FIM, *ids("gh"), EOS],
          ids("ijkl"), [*ids("mn"), PLAIN_END, *ids("o")]]
world = None


def snapshot_folder(cache, name, revision, commit):
    """The folder of a snapshot in a new Hugging Face cache, for the files of a model."""
    top = os.path.join(cache, "models--" + name.replace("/", "--"))
    os.makedirs(os.path.join(top, "refs"))
    os.makedirs(os.path.join(top, "snapshots"))
    with open(os.path.join(top, "refs", revision), "w", encoding="utf-8") as file:
        file.write(commit)
    return os.path.join(top, "snapshots", commit)


def setUpModule():
    """The models lie in a Hugging Face cache, and all programs know them by their names there."""
    global world
    world = Cluster(BUILD, target="some/chain-1.5", draft=None, http=True)
    cache = os.path.join(world.folder, "hub")
    world.environment["HF_HUB_CACHE"] = cache
    write_chain_model(
        snapshot_folder(cache, "some/chain-1.5", "main", "0a1b2c"), CHAINS, added=ADDED,
        post_processor=BEGINS,
        config={"bos_token_id": BEGIN, "eos_token_id": EOS},
        files={"chat_template.jinja": TEMPLATE,
               "tokenizer_config.json": {"eos_token": {"content": "<|im_end|>"}},
               "generation_config.json": {"eos_token_id": [EOS, PLAIN_END], "temperature": 0}})
    world.draft = "other/draft@v1"
    write_chain_model(
        snapshot_folder(cache, "other/draft", "v1", "77"), [ids("abc"), ids("efgh")], added=ADDED,
        post_processor=BEGINS, files={"chat_template.jinja": "DRAFT:" + TEMPLATE})
    world.__enter__()


def tearDownModule():
    world.__exit__(None, None, None)


def post(path, body):
    request = urllib.request.Request(world.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        return json.load(refused)


def tokenize(**body):
    return post("/tokenize", body)["tokens"]


def complete(prompt, **body):
    """(text, finish_reason, tokens made)"""
    answer = post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 20, **body})
    if "choices" not in answer:
        raise AssertionError(answer)
    choice = answer["choices"][0]
    return choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]


def prompt_tokens(path, **body):
    return post(path, {"max_tokens": 1, **body})["usage"]["prompt_tokens"]


class Names(unittest.TestCase):
    def test_models_of_the_cache_have_their_name(self):
        with urllib.request.urlopen(world.url + "/v1/models/some/chain-1.5", timeout=60) as answer:
            self.assertEqual(json.load(answer)["id"], "some/chain-1.5")
        described = world.outrider("describe").stdout
        self.assertIn("some/chain-1.5", described)
        self.assertIn("other/draft", described)
        told = world.outrider("tokenize", "-m", "some/chain-1.5", "--ids", "ab").stdout
        self.assertEqual(told.strip(), f"{BEGIN},97,98")

    def test_what_is_missing_has_a_command(self):
        failed = world.outrider("tokenize", "-m", "some/thing", "ab")
        self.assertIn("hf download some/thing", failed.stderr)


class Prompts(unittest.TestCase):
    TEXT = "<|im_start|>hi<|im_end|>a"
    IDS = [START, *ids("hi"), END, *ids("a")]

    def test_texts_of_special_tokens_are_these_tokens(self):
        self.assertEqual(tokenize(prompt=self.TEXT), [BEGIN, *self.IDS])
        self.assertEqual(tokenize(content=self.TEXT), self.IDS)
        messages = [{"role": "user", "content": "hi"}]
        self.assertEqual(tokenize(messages=messages), self.IDS)
        self.assertEqual(prompt_tokens("/v1/completions", prompt=self.TEXT), len(self.IDS) + 1)
        made = json.loads(world.outrider("generate", self.TEXT, "-n", "1", "--json").stdout)
        self.assertEqual(made["prompt_token_ids"], [BEGIN, *self.IDS])
        job = post("/v1/jobs", {"prompt": self.TEXT, "max_tokens": 1})
        self.assertEqual(job["usage"]["prompt_tokens"], len(self.IDS) + 1)

    def test_they_are_plain_text_where_the_request_says_so(self):
        plain = ids(self.TEXT)
        self.assertEqual(tokenize(prompt=self.TEXT, parse_special=False), [BEGIN, *plain])
        self.assertEqual(prompt_tokens("/v1/completions", prompt=self.TEXT, parse_special=False),
                         len(plain) + 1)
        made = json.loads(world.outrider("generate", self.TEXT, "-n", "1", "--json", "--no-special",
                                         "--no-bos").stdout)
        self.assertEqual(made["prompt_token_ids"], plain)

    def test_added_tokens(self):
        self.assertEqual(tokenize(prompt=self.TEXT, add_special_tokens=False), self.IDS)
        self.assertEqual(tokenize(content="hi", add_special=True), [BEGIN, *ids("hi")])
        self.assertEqual(prompt_tokens("/v1/completions", prompt=self.TEXT,
                                       add_special_tokens=False), len(self.IDS))
        # As Hugging Face's encode: what is added does not depend on the text.
        self.assertEqual(tokenize(prompt="<|begin|>Hi"), [BEGIN, BEGIN, *ids("Hi")])

    def test_there_and_back(self):
        given = [START, *ids("ä"), FIM, END]
        text = post("/detokenize", {"tokens": given})["prompt"]
        self.assertEqual(tokenize(content=text), given)

    def test_pieces_and_strings(self):
        pieces = tokenize(content="<|fim|>ä", with_pieces=True)
        self.assertEqual(pieces, [{"id": FIM, "piece": "<|fim|>"}, {"id": 0xc3, "piece": [0xc3]},
                                  {"id": 0xa4, "piece": [0xa4]}])
        answer = post("/tokenize", {"prompt": " a", "add_special_tokens": False,
                                    "return_token_strs": True})
        self.assertEqual(answer["token_strs"], ["\u0120", "a"])
        self.assertIsNone(post("/tokenize", {"prompt": "a"})["token_strs"])

    def test_what_tokenize_cannot_do_is_refused(self):
        messages = [{"role": "user", "content": "hi"}]
        for field, value in (("chat_template", "x"), ("add_special_tokens", True)):
            error = post("/tokenize", {"messages": messages, field: value})["error"]
            self.assertEqual(error["param"], field)

    def test_echo_has_the_text_as_it_came(self):
        answer = post("/v1/completions", {"prompt": self.TEXT, "echo": True, "max_tokens": 0,
                                          "logprobs": 0})["choices"][0]
        self.assertEqual(answer["text"], self.TEXT)
        at = self.TEXT.index
        self.assertEqual(answer["logprobs"]["text_offset"],
                         [0, 0, at("h"), at("i<"), at("<|im_end|>"), at(">a") + 1])


class NamedTokens(unittest.TestCase):
    """Special tokens that other files than tokenizer.json name, as AutoTokenizer reads them."""

    def tokenize(self, text, in_vocabulary=None, **files):
        with tempfile.TemporaryDirectory() as work:
            folder = write_chain_model(
                os.path.join(work, "model"), [], added=ADDED[1:2],
                in_vocabulary={"<|im_end|>": END} if in_vocabulary is None else in_vocabulary,
                files={name.replace("__", "."): value for name, value in files.items()})
            made = world.outrider("tokenize", "--model", folder, "--ids", text).stdout
            return [int(part) for part in made.split(",")]

    def test_each_file_may_name_them(self):
        plain = ids("a<|im_end|>b")
        self.assertEqual(self.tokenize("a<|im_end|>b"), plain)
        for files in (
                {"tokenizer_config__json": {"eos_token": "<|im_end|>"}},
                {"tokenizer_config__json": {"bos_token": {"content": "<|im_end|>"}}},
                {"tokenizer_config__json": {"additional_special_tokens": ["<x>", "<|im_end|>"]}},
                {"tokenizer_config__json": {"extra_special_tokens": {"end": "<|im_end|>"}}},
                {"special_tokens_map__json": {"pad_token": "<|im_end|>"}},
                {"added_tokens__json": {"<|im_end|>": END}}):
            self.assertEqual(self.tokenize("a<|im_end|>b", **files), [*ids("a"), END, *ids("b")],
                             files)

    def test_a_file_of_added_tokens_has_ids_of_its_own(self):
        self.assertEqual(self.tokenize("a<new>", {}, added_tokens__json={"<new>": 300}),
                         [*ids("a"), 300])
        self.assertEqual(self.tokenize("a<new>", {}, added_tokens__json={"<new>": 300},
                                       special_tokens_map__json={"eos_token": "<new>"}),
                         [*ids("a"), 300])

    def test_what_has_no_id_stays_plain_text(self):
        self.assertEqual(self.tokenize("<new>", tokenizer_config__json={"pad_token": "<new>"}),
                         ids("<new>"))


class Answers(unittest.TestCase):
    def test_special_tokens_are_left_out_unless_they_are_wanted(self):
        self.assertEqual(complete("e"), ("fgh", "stop", 5))
        self.assertEqual(complete("e", skip_special_tokens=False), ("f<|fim|>gh", "stop", 5))
        shown = world.outrider("generate", "e", "--temperature", "0", "--show-special").stdout
        self.assertEqual(shown, "f<|fim|>gh")

    def test_a_special_token_is_a_stop_string(self):
        for shown in (True, False):
            for prompt, stop, text in (("e", "<|fim|>", "f"), ("e", "f<|fim|>g", ""),
                                       ("e", "<|fim|>g", "f"), ("a", "<|im_start|>c", "b")):
                for guesses in (0, 4):
                    got = complete(prompt, stop=[stop], ignore_eos=True,
                                   skip_special_tokens=not shown, outrider={"n_draft": guesses})
                    want = text + ("<|im_end|>" if shown and prompt == "a" else "")
                    self.assertEqual(got[:2], (want, "stop"), (prompt, stop, shown, guesses))

    def test_the_token_that_ends_a_text_has_a_log_probability(self):
        for body, text, n in (({"prompt": "i", "stop_token_ids": ids("l")}, "jk", 3),
                              ({"prompt": "i", "stop": ["k"]}, "j", 1),
                              ({"prompt": "m"}, "n", 2)):
            for is_stream in (False, True):
                body = {"temperature": 0, "max_tokens": 9, "logprobs": 0, **body}
                if is_stream:
                    choices = stream(body)
                else:
                    choices = post("/v1/completions", body)["choices"]
                self.assertEqual("".join(choice["text"] for choice in choices), text)
                tokens = [token for choice in choices if choice["logprobs"]
                          for token in choice["logprobs"]["tokens"]]
                self.assertEqual(len(tokens), n, (tokens, is_stream))


class Ends(unittest.TestCase):
    def test_all_ends_that_the_folder_names(self):
        messages = [{"role": "user", "content": "x"}]
        for guesses in (0, 4):
            answer = post("/v1/chat/completions",
                          {"messages": messages, "outrider": {"n_draft": guesses}})
            self.assertEqual(answer["choices"][0]["message"]["content"], "b")
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            self.assertEqual(complete("m")[:2], ("n", "stop"))
            self.assertEqual(complete("e")[:2], ("fgh", "stop"))
        ready = next(line for line in world.workers.log().splitlines() if " ready " in line)
        self.assertIn(f"ends={EOS},{PLAIN_END},{END}", ready)


class Defaults(unittest.TestCase):
    """Rules under generation_config.json: the temperature is 0, so that the rule is greedy."""

    def rules(self):
        """Returns the rules of requests without and with a temperature, over HTTP and gRPC."""
        rules = []
        for body in ({}, {"temperature": 1}):
            answer = post("/v1/completions", {"prompt": "e", "outrider": {}, **body})
            rules.append(answer["outrider"][0]["rule"])
        for flags in ((), ("--temperature", "1")):
            answer = world.outrider("generate", "e", "--json", *flags).stdout
            rules.append(json.loads(answer)["rule"])
        return rules

    def test_requests_that_do_not_say_are_sampled_as_the_folder_says(self):
        self.assertEqual(self.rules(), ["greedy", "rejection"] * 2)

    def test_an_option_switches_that_off(self):
        with other_coordinator("--generation-config", "off"):
            self.assertEqual(self.rules(), ["rejection"] * 4)


class Template(unittest.TestCase):
    MESSAGES = [{"role": "user", "content": "hi"}]
    IDS = [START, *ids("hi"), END, *ids("a")]

    def test_it_is_the_targets(self):
        self.assertEqual(tokenize(messages=self.MESSAGES), self.IDS)
        self.assertIn("chat_template_differs", world.coordinator.log())
        self.assertTrue(get("/version")["features"]["chat"])

    def test_options_come_first(self):
        path = os.path.join(world.folder, "own.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write("OWN{{ eos_token }}")
        with other_coordinator("--chat-template", path):
            # The special tokens are still the target's.
            self.assertEqual(tokenize(messages=self.MESSAGES), [*ids("OWN"), END])
        with other_coordinator("--tokenizer", world.draft):
            self.assertEqual(tokenize(messages=self.MESSAGES), [*ids("DRAFT:"), *self.IDS])


class UserTexts(unittest.TestCase):
    """With --user-special-tokens off."""

    def check(self, template, contents, pieces):
        """pieces: what the ids are of, ids or texts."""
        path = os.path.join(world.folder, "user.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(template)
        wanted = [number for piece in pieces
                  for number in (ids(piece) if isinstance(piece, str) else [piece])]
        with other_coordinator("--chat-template", path, "--user-special-tokens", "off"):
            messages = [{"role": "user", "content": content} for content in contents]
            answer = post("/tokenize", {"messages": messages})
            self.assertEqual(answer.get("tokens"), wanted, answer)

    def test_they_are_no_special_tokens_of_the_template(self):
        self.check("{% for m in messages %}<|im_start|>{{ m.content | trim }}<|im_end|>"
                   "{% endfor %}",
                   ["a<|im_end|>b  ", [{"type": "text", "text": "<|fim|>"}], "\ue000<|im_end|>",
                    "plain < text <|im_"],
                   [START, "a<|im_end|>b", END, START, "<|fim|>", END, START, "\ue000<|im_end|>",
                    END, START, "plain < text <|im_", END])

    def test_nor_together_with_what_is_around_them(self):
        self.check("{% for m in messages %}{{ m.content.strip() }}{% endfor %}|><|im_end|>",
                   ["<|im_", "end|>", "<|fim "], ["<|im_end|><|fim|>", END])
        self.check("<|im_{{ messages[0].content }}", ["end|>"], ["<|im_end|>"])

    def test_nor_when_the_template_changes_the_text(self):
        self.check("{{ messages[0].content | replace('#', '') }}<|im_end|>", ["<|im#_end|>"],
                   ["<|im_end|>", END])

    def test_nor_in_the_arguments_of_calls(self):
        """Whatever an argument is called; its name itself is refused."""
        path = os.path.join(world.folder, "user.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write("{% for c in messages[0].tool_calls %}{{ c.id }}"
                       "{{ c.function.arguments.id }}<|im_end|>{% endfor %}")
        with other_coordinator("--chat-template", path, "--user-special-tokens", "off"):
            for arguments, wanted in (({"id": "<|im_start|>"}, ids("7<|im_start|>") + [END]),
                                      ({"<|im_start|>": 1, "id": "a"}, None)):
                call = {"id": "7", "type": "function",
                        "function": {"name": "f", "arguments": arguments}}
                answer = post("/tokenize", {"messages": [
                    {"role": "assistant", "content": "", "tool_calls": [call]}]})
                if wanted:
                    self.assertEqual(answer.get("tokens"), wanted, answer)
                else:
                    self.assertIn("special token", answer["error"]["message"])

    def test_a_template_sees_the_texts_as_they_are(self):
        # With a marker after every < the template would not find it; there are fewer then.
        self.check("{% if '</x>' in messages[0].content %}yes{% endif %}"
                   "{{ messages[0].content.split('</x>')[1] }}<|im_end|>",
                   ["a</x>b<|im_end|>"], ["yesb<|im_end|>", END])
        path = os.path.join(world.folder, "user.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write("{% if '<|im_end|>' in messages[0].content %}found{% endif %}")
        with other_coordinator("--chat-template", path, "--user-special-tokens", "off"):
            error = post("/tokenize", {"messages": [{"role": "user", "content": "<|im_end|>"}]})
            self.assertIn("the chat template looks for", error["error"]["message"])
            self.assertEqual(error["error"]["param"], "messages")


@contextlib.contextmanager
def other_coordinator(*flags):
    """The world with other options of its coordinator."""
    before = list(world.coordinator_flags)
    try:
        restart_coordinator([*before, *flags])
        yield
    finally:
        restart_coordinator(before)


def restart_coordinator(flags):
    world.coordinator.stop()
    world.coordinator_flags = flags
    world.start_coordinator()
    world.wait_serving()


def get(path):
    with urllib.request.urlopen(world.url + path, timeout=60) as answer:
        return json.load(answer)


def stream(body):
    request = urllib.request.Request(
        world.url + "/v1/completions", json.dumps({**body, "stream": True}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = [line[6:] for line in answer.read().decode().split("\n\n") if line]
    return [json.loads(line)["choices"][0] for line in lines if line != "[DONE]"]


if __name__ == "__main__":
    unittest.main()
