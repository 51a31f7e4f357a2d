"""Plain texts (K = 0) of the tales target and of synthetic ones, for tests of whatever must not
change a text. tests/golden/texts/plain.json holds those of the arithmetic `cpu-bf16`, whose bits
are the same on every machine (docs/numerics.md).

    kind = KINDS["coupled at 0.7"]
    done = cluster.generate(kind.orders(n_draft=3))
    [one["ids"] for one in done] == PlainTexts().of("coupled at 0.7")
"""
import json
import os
import re

from cluster import SOURCE
from generations import DRAFT, TARGET, GenerationCluster, golden_prompts, order

PATH = os.path.join(SOURCE, "tests", "golden", "texts", "plain.json")
ARITHMETIC = "cpu-bf16"
# The draft is often wrong and then right with its second guess.
PAIR = "synthetic:tiny,seed=5,agree=0.5"
# The draft is one of the target's four layers.
DEEP_PAIR = "synthetic:tiny,layers=4,seed=3,agree=0.7"
TARGETS = {"tales": TARGET, "pair": PAIR, "deep pair": DEEP_PAIR}
SEEDS = (11, 12)
CONTEXT = 1024  # of the tales models
N_ENDS = 6
CUT_BEFORE_END = 10
TOKENS_AFTER_CUT = 30


class Kind:
    """Prompts of one model with options; a prompt has a text for each seed."""

    def __init__(self, model, prompts, max_tokens, seeds=(0,), **fields):
        self.model, self.prompts, self.seeds = model, prompts, seeds
        self.fields = {"max_tokens": max_tokens, "ignore_eos": 1, **fields}

    def orders(self, n_seeds=None, **way):
        """Orders of the first n_seeds seeds; the fields of `way` take precedence."""
        return [order(ids, seed=seed, **{**self.fields, **way})
                for seed in self.seeds[:n_seeds] for ids in self.prompts]


def _stories():
    return [prompt["ids"] for prompt in golden_prompts()]


def _twice():
    """Prompts that say the same twice: finders find something from the first token on."""
    return [ids[:12] * 2 for ids in _stories()]


def _coupled(prompts, max_tokens, temperature, seeds=SEEDS, model="tales", **fields):
    return Kind(model, prompts, max_tokens, seeds, temperature=temperature, rule="coupled",
                **fields)


_PAIR_PROMPTS = [[1, 2, 3], [40, 50], [338]]
CUTS = {"coupled, top_k 20": {"top_k": 20}, "coupled, top_p 0.9": {"top_p": 0.9},
        "coupled, top_k 20, top_p 0.9": {"top_k": 20, "top_p": 0.9}, "coupled at 1": {}}
KINDS = {
    "greedy": Kind("tales", _stories(), 150, temperature=0),
    "coupled at 0.7": _coupled(_stories(), 150, 0.7),
    "coupled at 1": _coupled(_stories(), 150, 1),
    "greedy, until the context is full": Kind("tales", _stories()[:1], CONTEXT, temperature=0),
    "greedy, twice": Kind("tales", _twice(), 120, temperature=0),
    "coupled, twice": _coupled(_twice(), 120, 0.7),
    **{name: _coupled(_stories(), 48, 1, SEEDS[:1], **cut) for name, cut in CUTS.items() if cut},
    "pair, greedy": Kind("pair", _PAIR_PROMPTS, 100, temperature=0),
    "pair, coupled": _coupled(_PAIR_PROMPTS, 100, 0.9, model="pair"),
    "deep pair, greedy": Kind("deep pair", _PAIR_PROMPTS, 48, temperature=0),
    "deep pair, coupled": _coupled(_PAIR_PROMPTS, 48, 1, model="deep pair"),
}


def arithmetic_of(cluster):
    """The name that the coordinator's log has."""
    return re.search(r"arithmetic=(\S+)", cluster.coordinator.log()).group(1)


class PlainTexts:
    """The contents of the file. `of` gives the texts of a kind, `ends` stories that end: dicts of
    seed, prompt, rest (up to the end of sequence) and going_on (30 tokens that ignore it)."""

    def __init__(self):
        with open(PATH, encoding="ascii") as file:
            data = json.load(file)
        self.texts, self.ends = data["texts"], data["ends"]

    def of(self, name):
        return self.texts[name]


def _find_ends(cluster):
    """Stories that end, cut before their end. The noise of `coupled` belongs to (seed, position,
    token), so they end again in the same way."""
    ends = []
    for seed in range(1, 40):
        done = cluster.generate([order(ids, seed=seed, n_draft=0, max_tokens=400, temperature=1,
                                       rule="coupled") for ids in _stories()])
        for ids, one in zip(_stories(), done):
            if one["finish"] == "stop" and len(ends) < N_ENDS:
                story = ids + one["ids"]
                ends.append({"seed": seed, "prompt": story[:-CUT_BEFORE_END],
                             "rest": story[-CUT_BEFORE_END:]})
        if len(ends) == N_ENDS:
            break
    done = cluster.generate([order(end["prompt"], seed=end["seed"], n_draft=0,
                                   max_tokens=TOKENS_AFTER_CUT, temperature=1, rule="coupled",
                                   ignore_eos=1) for end in ends])
    return [{**end, "going_on": one["ids"]} for end, one in zip(ends, done)]


def write(build):
    """Makes the file anew, after a change of the arithmetic or of the models."""
    texts, ends = {}, []
    for model, target in TARGETS.items():
        with GenerationCluster(build, target=target, draft=None) as cluster:
            if arithmetic_of(cluster) != ARITHMETIC:
                raise SystemExit(f"this machine has {arithmetic_of(cluster)}, not {ARITHMETIC}")
            for name, kind in KINDS.items():
                if kind.model == model:
                    done = cluster.generate(kind.orders(n_draft=0))
                    texts[name] = [one["ids"] for one in done]
            if model == "tales":
                ends = _find_ends(cluster)
    lines = [f'{json.dumps(name)}: [\n' + ",\n".join(map(json.dumps, texts[name])) + "\n]"
             for name in KINDS]
    os.makedirs(os.path.dirname(PATH), exist_ok=True)
    with open(PATH, "w", encoding="ascii") as file:
        file.write(f'{{"made_by": "tests/cluster/test_matrix.py BUILD --write", '
                   f'"arithmetic": "{ARITHMETIC}", "texts": {{\n' + ",\n".join(lines) +
                   '\n}, "ends": [\n' + ",\n".join(map(json.dumps, ends)) + "\n]}\n")
