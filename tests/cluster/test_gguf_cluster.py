#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""GGUF files as target, draft and tokenizer of a real cluster. A target in bf16, in two files,
gives the texts of its folder on two ranks, with and without guesses. With a target in Q8_0, text
with guesses is the text without them. The clients are told the name of the file, and describe reads
a file without a server.

Usage: test_gguf_cluster.py BUILD_FOLDER"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import tales_gguf
from generations import DRAFT, TARGET, GenerationCluster
from plain_texts import KINDS, PlainTexts

BUILD = sys.argv.pop(1)


def texts(cluster, kind, n_draft):
    """The ids that follow each prompt, and how many guesses were accepted."""
    done = cluster.generate(KINDS[kind].orders(n_draft=n_draft))
    return [one["ids"] for one in done], sum(one["accepted"] for one in done)


class Gguf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gguf-"))
        cls.target = tales_gguf.write(TARGET, cls.folder, "tales-bf16", n_files=2)
        cls.draft, = tales_gguf.write(DRAFT, cls.folder, "draft-q8", is_q8=True)

    def outrider(self, *arguments):
        return subprocess.run([os.path.join(BUILD, "bin", "outrider"), *arguments], timeout=60,
                              capture_output=True, encoding="utf-8", check=False)

    def ask(self, url, path, body=None):
        request = urllib.request.Request(url + path, body and json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def test_bf16_files_give_the_texts_of_their_folder(self):
        with GenerationCluster(BUILD, n_ranks=2, target=self.target[1], draft=self.draft,
                               http=True) as cluster:
            for kind in ("greedy", "coupled at 0.7"):
                for n_draft in (0, 5):
                    ids, accepted = texts(cluster, kind, n_draft)
                    self.assertEqual(ids, PlainTexts().of(kind), (kind, n_draft))
                    self.assertEqual(accepted > 0, n_draft > 0, (kind, n_draft))
            self.assertIn(" tensors=BF16:43,F32:13 rounded_to_bf16=none", cluster.workers.log())
            models = self.ask(cluster.url, "/v1/models")["data"]
            self.assertEqual([model["id"] for model in models], ["tales-bf16"])
            told = self.ask(cluster.url, "/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 8,
                "temperature": 0})
            self.assertGreater(told["usage"]["prompt_tokens"], 4)
            tokens = self.ask(cluster.url, "/tokenize", {"prompt": "Once upon a time"})["tokens"]
        with GenerationCluster(BUILD, http=True) as cluster:
            of_folder = self.ask(cluster.url, "/tokenize", {"prompt": "Once upon a time"})
            self.assertEqual(of_folder["tokens"], tokens)

    def test_text_of_blocks_is_the_same_with_and_without_guesses(self):
        target, = tales_gguf.write(TARGET, self.folder, "tales-q8", is_q8=True)
        plain = {}
        for n_ranks in (1, 2):
            with GenerationCluster(BUILD, n_ranks=n_ranks, target=target,
                                   draft=self.draft) as cluster:
                self.assertIn("arithmetic=cpu-blocks", cluster.workers.log())
                for kind in ("greedy", "coupled at 0.7"):
                    for n_draft in (0, 4):
                        ids, accepted = texts(cluster, kind, n_draft)
                        self.assertEqual(ids, plain.setdefault(kind, ids), (kind, n_draft))
                        self.assertEqual(accepted > 0, n_draft > 0, (kind, n_draft))

    def test_describe_reads_a_file_without_a_server(self):
        done = self.outrider("describe", "--json", self.target[0])
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual(told["model"], "tales-bf16")
        self.assertEqual(told["tokenizer_vocab_size"], 4096)
        self.assertEqual([kind["type"] for kind in told["types"]], ["BF16", "F32"])
        folder = json.loads(self.outrider("describe", "--json", TARGET).stdout)
        for key in ("architecture", "parameters", "n_layers", "n_heads", "n_slices",
                    "context_limit", "vocab_size"):
            self.assertEqual(told[key], folder[key], key)
        done = self.outrider("describe", self.draft)
        self.assertIn("Q8_0: 15 tensors", done.stdout)

    def test_describe_tells_heads_from_models(self):
        heads = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/heads")
        done = self.outrider("describe", os.path.join(heads, "eagle3_flat"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "head +EAGLE-3\n")
        self.assertRegex(done.stdout, "features +3 of width 64: boundaries 1, 2, 3: the ids, as")
        self.assertRegex(done.stdout, "guesses +128 ids, by its own lm_head\n"
                                      "embedding +the target's\n")
        told = json.loads(self.outrider("describe", "--json",
                                        os.path.join(heads, "eagle3_whole")).stdout)
        self.assertEqual(told["head"]["format"], "EAGLE-3")
        self.assertIn("boundaries 1, 2, 3: one after", told["head"]["reads"])
        done = self.outrider("describe", os.path.join(heads, "mimo"))
        self.assertRegex(done.stdout, "architecture +MiMoForCausalLM\n")
        self.assertRegex(done.stdout, "head beside it +MTP\n")
        self.assertIsNone(told["head"]["block"])
        drafter = os.path.join(heads, "../block_heads/dspark_speculators")
        done = self.outrider("describe", drafter)
        self.assertRegex(done.stdout, "head +DSpark, in the layout of speculators\n")
        self.assertRegex(done.stdout, "block +5 rows in one pass, of which 5 guess\n"
                                      "chain +of rank 16: .*\nconfidence +there, but not used")
        told = json.loads(self.outrider("describe", "--json", drafter).stdout)
        self.assertEqual(told["head"]["block"],
                         {"rows": 5, "guesses": 5, "chain_rank": 16, "confidence": True})
        self.assertIsNone(json.loads(self.outrider("describe", "--json", TARGET).stdout)["head"])
        with open(os.path.join(self.folder, "config.json"), "w") as file:
            file.write('{"hydra_num_heads": 4}')
        done = self.outrider("describe", self.folder)
        os.remove(os.path.join(self.folder, "config.json"))
        self.assertIn("is of Hydra heads, which is not supported", done.stderr)

    def test_describe_tells_the_places_of_a_head(self):
        heads = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/place_heads")
        done = self.outrider("describe", os.path.join(heads, "medusa"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "head +Medusa\nfeatures +1 of width 64: the normed feature, "
                                      "which lm_head reads\nplaces +4 from each feature, each by 1 "
                                      "block\nguesses +320 ids, each place by its own lm_head\n")
        self.assertIn("announces 2 heads, but the files have 4", done.stdout)
        self.assertNotIn("keys and values", done.stdout)
        done = self.outrider("describe", os.path.join(heads, "medusa_repeated"))
        self.assertIn("each by 3 blocks, which are one block\n", done.stdout)
        done = self.outrider("describe", os.path.join(heads, "blockwise"))
        self.assertRegex(done.stdout, "places +3 from each feature, by a hidden layer of width 160"
                                      "\nguesses +all ids, by the target's lm_head\n")
        told = json.loads(self.outrider("describe", "--json",
                                        os.path.join(heads, "medusa_shared")).stdout)
        self.assertEqual((told["head"]["places"], told["n_layers"]), (3, 0))
        self.assertIsNone(told["context_limit"])

    def test_what_is_no_model_is_refused_with_a_sentence(self):
        done = self.outrider("describe", os.path.join(self.folder, "none.gguf"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "there is no file .*none.gguf")
        done = self.outrider("describe", self.folder)
        self.assertIn("a GGUF file; name that file: ", done.stderr)
        done = self.outrider("export", self.draft, os.path.join(self.folder, "out"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("is a GGUF file, which is not exported", done.stderr)


if __name__ == "__main__":
    unittest.main()
