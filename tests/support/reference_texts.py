"""Tests that hold a cluster which serves a public GGUF file against what transformers makes of that
file in float32 (tests/golden/gguf_texts)."""
import json
import math
import os

from cluster import SOURCE, Cluster

# Our products round activations to 8 bits in groups of 32 (docs/numerics.md, "Weights in blocks on
# the CPU"), which moves log-probabilities as if at random. The golden file says by how much, where
# the reference does the same and nothing else. Rounding sums and the KV cache to bf16 adds less
# than that, and 300 positions give a root mean square to some percent.
ROUNDING_MOST = 1.4
NEAR_TIE = 3.5 * math.sqrt(2)  # standard deviations of the difference of two logits: 1 in 2,000
PARTINGS_MOST = 0.05  # of all tokens


class ReferenceTexts:
    """A mixin; `name` is that of the golden file, and set_up(build, file) starts the cluster."""
    name = None

    @classmethod
    def set_up(cls, build, file):
        path = os.path.join(SOURCE, "tests", "golden", "gguf_texts", f"{cls.name}.json")
        with open(path, encoding="utf-8") as golden:
            cls.golden = json.load(golden)
        cls.rms_most = ROUNDING_MOST * cls.golden["text"]["rounding_rms"]
        cls.served = cls.enterClassContext(Cluster(build, target=file, draft=None))

    def answer(self, command, *words):
        done = self.served.outrider(command, *words, "--json", timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def partings(self, prompt):
        """The margins of the places where our text parts from the reference's, whose tokens it is
        given again after each."""
        want, first = prompt["greedy_ids"], 0
        while first < len(want):
            before = ",".join(map(str, prompt["ids"] + want[:first]))
            made = self.answer("generate", "--prompt-ids", before, "-n", str(len(want) - first),
                               "--temperature", "0", "--ignore-eos")["token_ids"]
            self.assertEqual(len(made), len(want) - first)
            while made and made[0] == want[first]:
                made, first = made[1:], first + 1
            if made:
                others = dict(map(tuple, prompt["others"][first]))
                self.assertIn(made[0], others, f"place {first} of {prompt}")
                yield others[made[0]]
                first += 1

    def test_greedy_texts_part_from_the_reference_at_near_ties_alone(self):
        near_tie = NEAR_TIE * self.golden["text"]["rounding_rms"]
        margins = [margin for prompt in self.golden["prompts"] for margin in self.partings(prompt)]
        n_tokens = sum(len(prompt["greedy_ids"]) for prompt in self.golden["prompts"])
        print(f"{len(margins)} of {n_tokens} tokens are others, by at most "
              f"{max(margins, default=0):.4f} (allowed: {near_tie:.4f})")
        self.assertLess(near_tie, 1)  # the golden file has no others
        self.assertTrue(all(margin < near_tie for margin in margins), margins)
        self.assertLess(len(margins), PARTINGS_MOST * n_tokens)

    def test_logprobs_differ_from_the_reference_by_the_rounding_of_activations(self):
        text = self.golden["text"]
        tokens = self.answer("score", "--ids", ",".join(map(str, text["ids"])))["tokens"]
        self.assertEqual([token["id"] for token in tokens], text["ids"])
        errors = [token["logprob"] - want for token, want in zip(tokens[1:], text["logprobs"])]
        rms = math.sqrt(sum(error * error for error in errors) / len(errors))
        mean = sum(errors) / len(errors)
        print(f"{len(errors)} log-probabilities: rms error {rms:.4f} (allowed: "
              f"{self.rms_most:.4f}), largest {max(map(abs, errors)):.4f}; perplexity over the "
              f"reference's {math.exp(-mean):.5f}")
        self.assertLess(rms, self.rms_most)
        self.assertLess(abs(mean), 3 * self.rms_most / math.sqrt(len(errors)))
