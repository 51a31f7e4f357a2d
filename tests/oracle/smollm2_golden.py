#!/usr/bin/env python3
"""Writes tests/golden/smollm2/greedy.json: what Hugging Face transformers makes of a public model.

    python tests/oracle/smollm2_golden.py FOLDER FILE.gguf

It needs torch, transformers, tokenizers, gguf and accelerate. FOLDER is what
tests/support/smollm2.py makes of FILE.gguf. First the weights of the folder are held against the
ones that transformers itself reads from the GGUF file, so that the script's reader and its order of
rows are checked by another. Then each prompt is encoded by tokenizers, a conversation
after transformers' own rendering of the template, and continued greedily in float32. A prompt of
the file:
  text, or messages   what is asked
  ids                 its token ids
  greedy_ids          of the continuation, until the end of sequence (which is part of it)
  greedy_text         the same as text, without special tokens
  greedy_margins      the best logit minus the second best, at each position; a program with another
                      arithmetic may go on differently where this is small"""
import json
import pathlib
import sys

import tokenizers
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/smollm2/greedy.json"
N_TOKENS = 40
FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
PROMPTS = [
    "Once upon a time",
    "The three laws of thermodynamics are",
    "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n",
    "In 1492, 3.14159 and 65536 are",
    "{\"name\": \"Ada\", \"born\": 1815, \"works\": [",
    "Le chat s'est assis sur",
    "水は摂氏100度で",
    "Here is a list 🙂 of fruits:\n1. Apple\n2.",
    FRANCE,
    [{"role": "system", "content": "Answer with one word."},
     {"role": "user", "content": "Which colour does the sky have?"}],
    FRANCE + [{"role": "assistant", "content": "The capital of France is Paris."},
              {"role": "user", "content": "Write a short poem about it."}],
]


def check_weights(model, gguf):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32).state_dict()
    ours = model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        assert torch.equal(values.to(torch.bfloat16).to(torch.float32), ours[name]), name


@torch.no_grad()
def continue_greedily(model, ids, eos):
    made, margins = [], []
    cache, step = None, torch.tensor([ids])
    while len(made) < N_TOKENS and eos not in made:
        out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        best = out.logits[0, -1].topk(2)
        made.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 4))
        step = torch.tensor([made[-1:]])
    return made, margins


def main():
    folder, gguf = map(pathlib.Path, sys.argv[1:])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    check_weights(model, gguf)
    encoder = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    templates = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        chat_template=json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])
    eos = model.config.eos_token_id
    prompts = []
    for prompt in PROMPTS:
        is_text = isinstance(prompt, str)
        text = prompt if is_text else templates.apply_chat_template(
            prompt, tokenize=False, add_generation_prompt=True)
        ids = encoder.encode(text).ids
        made, margins = continue_greedily(model, ids, eos)
        prompts.append({"text" if is_text else "messages": prompt, "ids": ids, "greedy_ids": made,
                        "greedy_text": encoder.decode(made), "greedy_margins": margins})
        print(json.dumps(prompts[-1]["greedy_text"]), min(margins))
    versions = {module.__name__: module.__version__
                for module in (torch, transformers, tokenizers)}
    OUT.parent.mkdir(exist_ok=True)
    lines = ",\n".join("  " + json.dumps(prompt, ensure_ascii=False) for prompt in prompts)
    OUT.write_text(f'{{"versions": {json.dumps(versions)},\n "note": "float32 arithmetic on the '
                   f'bf16 weights that tests/support/smollm2.py writes",\n "prompts": [\n{lines}'
                   "\n ]}\n", encoding="utf-8")


main()
