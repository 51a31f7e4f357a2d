#!/usr/bin/env python3
"""Texts that copy and edit, for `outrider replay`: versions of files from a git history.

  bench/replay_edits.py [--most N] [--kind edits|files|random] [--words] [PATH...] > edits.jsonl

edits: for each commit that changed a file and kept its name, a prompt with the version before and
the request to rewrite it, and the version after as the answer, the oldest first, so that no prompt
holds a later answer.
files: the last version of each file as an answer without a prompt, so that nothing can be copied
but what the file itself repeats.
random: 8 prompts of 500 and answers of 4,000 ids, drawn from 20,000 by Zipf's law.
--words: ids of words, blanks and signs instead of texts, about as long as the tokens of a large
vocabulary, so that no tokenizer is needed.
"""
import argparse
import json
import random
import re
import subprocess


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def commits_of(path):
    """Newest first; only those where the file has this name."""
    return git("log", "--format=%H", "--diff-filter=AM", "--", path).split()


def edits(path, most):
    commits = commits_of(path)[:most + 1]
    for after, before in reversed(list(zip(commits, commits[1:]))):
        old, new = git("show", f"{before}:{path}"), git("show", f"{after}:{path}")
        subject = git("log", "-1", "--format=%s", after).strip()
        yield {"prompt": f"{old}\nRewrite {path}: {subject}\n", "answer": new}


def to_ids(text, numbers):
    """The pieces of a text as numbers: words with the blank before them, signs, other blanks."""
    pieces = re.findall(r" ?\w+| ?[^\w\s]+|\s+", text)
    return [numbers.setdefault(piece, len(numbers)) for piece in pieces]


def draw():
    generator = random.Random(5)
    weights = [1 / (rank + 1) for rank in range(20000)]
    for _ in range(8):
        yield {half: generator.choices(range(20000), weights, k=n)
               for half, n in (("prompt_ids", 500), ("answer_ids", 4000))}


def main():
    numbers = {}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=5, help="edits of one file (default 5)")
    parser.add_argument("--kind", choices=("edits", "files", "random"), default="edits")
    parser.add_argument("--words", action="store_true", help="ids instead of texts")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    args = parser.parse_args()
    for text in draw() if args.kind == "random" else []:
        print(json.dumps(text))
    for path in args.paths:
        if args.kind == "edits":
            texts = edits(path, args.most)
        else:
            texts = [{"answer": git("show", f"HEAD:{path}")}]
        for text in texts:
            if args.words:
                text = {f"{key}_ids": to_ids(half, numbers) for key, half in text.items()}
            print(json.dumps(text))


if __name__ == "__main__":
    main()
