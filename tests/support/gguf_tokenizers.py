"""The texts of tests/golden/gguf_tokenizers, the ids that they are to have, and the ids that they
have."""
import json
import os
import subprocess

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
GOLDEN = os.path.join(SOURCE, "tests", "golden", "gguf_tokenizers")


def texts():
    with open(os.path.join(GOLDEN, "texts.json"), encoding="utf-8") as file:
        return json.load(file)["texts"]


def _numbers(data):
    """LEB128."""
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def wanted_ids(name):
    """The lists of NAME.ids, one for each text."""
    with open(os.path.join(GOLDEN, f"{name}.ids"), "rb") as file:
        numbers = _numbers(file.read())
    return [[next(numbers) for _ in range(n - 1)] for n in numbers]


def fingerprint(build, model):
    """Returns that of the model's token table."""
    return subprocess.run([os.path.join(build, "tests", "prog_tokenize"), model, "fingerprint"],
                          text=True, timeout=60, check=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE).stdout


def encode(build, model, made):
    """The ids of each text by the tokenizer of a model."""
    done = subprocess.run(
        [os.path.join(build, "tests", "prog_tokenize"), model], text=True, timeout=300, check=True,
        input="".join(f"{text.encode().hex()}\n" for text in made), stdout=subprocess.PIPE)
    return [[int(word) for word in line.split()] for line in done.stdout.split("\n")[:-1]]
