#!/usr/bin/env python3
"""Writes tests/golden/gguf_texts/NAME.json: what Hugging Face transformers makes of a public GGUF
file in float32, with the weights that its blocks stand for.

    python tests/oracle/gguf_texts_golden.py NAME FILE.gguf

It needs torch, transformers, gguf and accelerate. FILE.gguf is that of tests/support/smollm2.txt
or of tests/support/gemma3.txt. The file holds numbers only, ids and log-probabilities:
  prompts      of each ids; greedy_ids, the 60 that follow greedily, also after an end of sequence;
               others, of each place the next best tokens: pairs of an id, and by how much the
               log-probability of the best token is larger, if by less than 1
  text         ids of prose, logprobs of all but the first, and rounding_rms: how far they move if
               what enters a matrix is rounded to 8 bits in groups of 32"""
import json
import pathlib
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_TOKENS = 60
N_TEXT = 301  # ids, so 300 log-probabilities
GROUP = 32
N_BEST = 4
PROMPTS = [
    "Once upon a time there was a king who had three daughters,",
    "The capital of France is",
    "The three laws of thermodynamics are",
    "def fibonacci(n):\n    ",
    "To make bread you need flour, water, salt and",
    "The main difference between a frog and a toad is",
    "Dear Sir or Madam,\n\nI am writing to",
    "Q: Why is the sky blue?\nA:",
    "Le chat s'est assis sur",
    "In the middle of the forest stood a little house, and",
]
# The beginning of "The Frog-King" by the brothers Grimm, translated by Margaret Hunt, 1884.
TEXT = (
    "In old times when wishing still helped one, there lived a king whose daughters were all "
    "beautiful, but the youngest was so beautiful that the sun itself, which has seen so much, was "
    "astonished whenever it shone in her face. Close by the king's castle lay a great dark forest, "
    "and under an old lime-tree in the forest was a well, and when the day was very warm, the "
    "king's child went out into the forest and sat down by the side of the cool fountain, and when "
    "she was bored she took a golden ball, and threw it up on high and caught it, and this ball "
    "was her favorite plaything.\n\nNow it happened that on one occasion the princess's golden "
    "ball did not fall into the little hand which she was holding up for it, but on to the ground "
    "beyond, and rolled straight into the water. The king's daughter followed it with her eyes, "
    "but it vanished, and the well was deep, so deep that the bottom could not be seen. At this "
    "she began to cry, and cried louder and louder, and could not be comforted. And as she thus "
    "lamented some one said to her, \"What ails you, king's daughter? You weep so that even a "
    "stone would show pity.\" She looked round to the side from whence the voice came, and saw a "
    "frog stretching forth its big, ugly head from the water. \"Ah, old water-splasher, is it "
    "you,\" said she, \"I am weeping for my golden ball, which has fallen into the well.\"")


@torch.no_grad()
def continue_greedily(model, prompts):
    """Continues all prompts together, the shorter ones after padding that nothing sees."""
    longest = max(map(len, prompts))
    step = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
    seen = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    made = [{"ids": ids, "greedy_ids": [], "others": []} for ids in prompts]
    cache = None
    for _ in range(N_TOKENS):
        positions = (seen.cumsum(-1) - 1).clamp(min=0)[:, -step.shape[1]:]
        out = model(step, attention_mask=seen, position_ids=positions, past_key_values=cache,
                    use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        best = out.logits[:, -1].double().topk(N_BEST)
        for prompt, values, ids in zip(made, best.values, best.indices):
            margins = (values[0] - values).tolist()
            prompt["greedy_ids"].append(int(ids[0]))
            prompt["others"].append([[int(other), round(margin, 4)] for other, margin
                                     in zip(ids[1:], margins[1:]) if margin < 1])
        step = best.indices[:, :1]
        seen = torch.cat([seen, torch.ones_like(step)], -1)
    return made


def rounded(x):
    """In groups of 32 to 8 bits, the largest being 127, as docs/numerics.md has it."""
    groups = x.bfloat16().float().unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 127
    return ((groups / scale.clamp(min=1e-30)).round() * scale).flatten(-2)


@torch.no_grad()
def logprobs_of(model, ids):
    logits = model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1)
    return logits.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]


def prose(model, ids):
    want = logprobs_of(model, ids)
    hooks = [module.register_forward_pre_hook(lambda _, inputs: (rounded(inputs[0]),))
             for module in model.modules() if isinstance(module, torch.nn.Linear)]
    errors = logprobs_of(model, ids) - want
    for hook in hooks:
        hook.remove()
    return {"ids": ids, "rounding_rms": round(float((errors ** 2).mean().sqrt()), 4),
            "logprobs": [round(float(value), 4) for value in want]}


def main():
    name, path = sys.argv[1], pathlib.Path(sys.argv[2])
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = continue_greedily(model, [tokenizer(prompt).input_ids for prompt in PROMPTS])
    for prompt in prompts:
        print(json.dumps(tokenizer.decode(prompt["greedy_ids"])))
    ids = tokenizer(TEXT).input_ids[:N_TEXT]
    assert len(ids) == N_TEXT
    versions = {module.__name__: module.__version__ for module in (torch, transformers)}
    text = prose(model, ids)
    print("rms error by rounding", text["rounding_rms"])
    lines = ",\n".join("  " + json.dumps(prompt) for prompt in prompts)
    out = ROOT / "tests/golden/gguf_texts" / f"{name}.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(f'{{"versions": {json.dumps(versions)},\n "prompts": [\n{lines}\n ],\n'
                   f' "text": {json.dumps(text)}}}\n', encoding="utf-8")


main()
