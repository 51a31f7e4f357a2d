#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=1200
"""tools/train/train_head.py: recordings of a cluster train each kind of head a little, so that more
of its guesses are kept; training goes on where it was, and the programs read the head. Needs a
Python with torch and safetensors, this one or that which OUTRIDER_TORCH_PYTHON names; without one
only the head of the tales pair is tested. Usage: test_train_head.py BUILD_FOLDER"""
import ast
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips
from cluster import Cluster, SOURCE, TALES

TOOLS = os.path.join(SOURCE, "tools/train")
PYTHON = os.environ.get("OUTRIDER_TORCH_PYTHON", sys.executable)
N_TEXTS, N_TOKENS = 48, 96
WORDS = ["the king", "a wolf", "an old woman", "the miller", "three sisters", "a bird", "the youth",
         "the forest"]
KINDS = {
    "eagle3": ["--columns", "512", "--lm-head", "lent", "--ffn", "128"],
    "medusa": [],
    "blockwise": ["--ffn", "256"],
    "pass": ["--rate", "0.02"],
    "pard": ["--draft", os.path.join(TALES, "draft"), "--rate", "0.002"],
}
LAYER = [f"midlayer.{name}.weight" for name in (
    "hidden_norm", "input_layernorm", "mlp.down_proj", "mlp.gate_proj", "mlp.up_proj",
    "post_attention_layernorm", "self_attn.k_proj", "self_attn.o_proj", "self_attn.q_proj",
    "self_attn.v_proj")]
STEPS = {"eagle3": 120}  # of which it learns what its features are worth
TENSORS = {
    "eagle3": ["d2t", "fc.weight", *LAYER, "norm.weight"],
    "medusa": [f"{i}.0.linear.{part}" for i in range(3) for part in ("bias", "weight")],
    "blockwise": ["hidden.bias", "hidden.weight", "output.bias", "output.weight"],
    "pass": ["look_ahead.weight"],
}


def check_sources():
    for name in sorted(os.listdir(TOOLS)):
        if name.endswith(".py"):
            with open(os.path.join(TOOLS, name), encoding="utf-8") as file:
                ast.parse(file.read(), name)


def record(build, folder):
    prompts = os.path.join(folder, "prompts.jsonl")
    with open(prompts, "w", encoding="utf-8") as file:
        for i in range(N_TEXTS):
            prompt = f"Once upon a time {WORDS[i % 8]} met {WORDS[i // 8 % 8]}"
            file.write(json.dumps({"prompt": prompt}) + "\n")
    out = os.path.join(folder, "texts")
    with Cluster(build, coordinator_flags=["--serve-features"]) as cluster:
        done = cluster.outrider("record", "--prompts", prompts, "--boundaries", "2,4,6", "--out",
                                out, "-n", str(N_TOKENS), "--temperature", "0.7", "--seed", "1",
                                "--ignore-eos")
    assert done.returncode == 0, done.stderr
    assert len(os.listdir(out)) == N_TEXTS
    return out


def train(recordings, out, kind, *more, status=0):
    done = subprocess.run(
        [PYTHON, os.path.join(TOOLS, "train_head.py"), "--kind", kind, "--target",
         os.path.join(TALES, "target"), "--recordings", recordings, "--out", out, "--guesses", "3",
         "--texts", "4", "--held-out", "6", "--warm-up", "5", "--threads", "1", "--compute",
         "float32", *KINDS.get(kind, []), *more],
        capture_output=True, text=True, check=False)
    assert done.returncode == status, (kind, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def rows(text, name):
    """The values by guess of each line of held-out texts that begins so."""
    return [[float(word) for word in re.findall(r"\d\.\d{3}", line)]
            for line in text.splitlines() if line.startswith(name)]


def check_kind(recordings, folder, kind):
    out = os.path.join(folder, kind)
    steps = STEPS.get(kind, 40)
    text = train(recordings, out, kind, "--steps", str(steps))
    before, after = rows(text, "kept at 1")
    assert len(before) == len(after) == 3, text
    later = slice(1, None) if kind == "pard" else slice(None)  # a draft knows the first already
    assert sum(after[later]) > 1.2 * sum(before[later]), (kind, before, after)
    losses = [float(loss) for loss in re.findall(r"^step \d+  loss ([\d.]+)", text, re.M)]
    assert len(losses) == steps // 20 and losses[-1] < losses[0], (kind, losses)
    with open(os.path.join(out, "model.safetensors"), "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        names = sorted(set(json.loads(file.read(size))) - {"__metadata__"})
    assert kind not in TENSORS or names == TENSORS[kind], (kind, names)
    print(f"{kind}: kept {before} before, {after} after {steps} steps", flush=True)


def check_resumed(recordings, folder):
    """A run in two parts is the same run, and other options than its own are refused."""
    whole, parts = (os.path.join(folder, name) for name in ("whole", "parts"))
    options = ["--warm-up", "1000", "--evaluate-texts", "2"]  # the rate depends on the step alone
    train(recordings, whole, "medusa", "--steps", "6", *options)
    train(recordings, parts, "medusa", "--steps", "3", *options)
    train(recordings, parts, "medusa", "--steps", "6", *options)
    files = [open(os.path.join(out, "model.safetensors"), "rb").read() for out in (whole, parts)]
    assert files[0] == files[1], "a run in two parts differs from one in one part"
    said = train(recordings, parts, "blockwise", status=1)
    assert "is of --kind medusa: name another --out" in said, said
    said = train(recordings, parts, "medusa", "--layers", "2", status=1)
    assert "is of a net of other sizes" in said, said
    said = train(os.path.join(folder, "none"), parts, "medusa", status=1)
    assert "of 0 recordings 0 are held out" in said, said


def check_begun(recordings, folder):
    """A head's files are what the trainer had, so training can go on from them alone."""
    head = os.path.join(folder, "eagle3")
    had = rows(train(recordings, head, "eagle3", "--evaluate"), "kept at 1")[0]
    out = os.path.join(folder, "begun")
    has = rows(train(recordings, out, "eagle3", "--begin", head, "--evaluate"), "kept at 1")[0]
    assert max(abs(a - b) for a, b in zip(had, has)) < 0.01, (had, has)


def check_head(build, folder, kind):
    """bench_head reads what was written, and its guesses are right more often than with features of
    other boundaries, which know only what follows from the last tokens."""
    bench = os.path.join(build, "bench/bench_head")
    done = subprocess.run(
        [bench, "--target", os.path.join(TALES, "target"), "--head", os.path.join(folder, kind),
         "--begin", "Once upon a time", "--texts", "4", "--tokens", "128", "--temperature", "0.7",
         "--every", "2", "--boundaries", "0,1,2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first = [(line.startswith("given"), float(line.partition(":")[2].split()[0]))
             for line in done.stdout.splitlines()]
    best = max(value for is_given, value in first if not is_given)
    given = max(value for is_given, value in first if is_given)
    assert best > 0.2 and best > given + 0.05, done.stdout
    print(done.stdout, end="", flush=True)


def check_shipped(build):
    """The head of the tales pair, at the temperature that it is for."""
    done = subprocess.run(
        [os.path.join(build, "bench/bench_head"), "--target", os.path.join(TALES, "target"),
         "--head", os.path.join(TALES, "head"), "--begin", "Once upon a time", "--texts", "4",
         "--tokens", "160", "--temperature", "0.4", "--every", "4"],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    as_written = done.stdout.splitlines()[0].partition(":")[2]
    guesses = [float(word) for word in re.findall(r"\d\.\d{3}", as_written)]
    assert len(guesses) == 5 and min(guesses[:3]) > 0.6 and min(guesses) > 0.4, done.stdout


def main(build):
    check_sources()
    check_shipped(build)
    has_torch = subprocess.run([PYTHON, "-c", "import torch, safetensors"], capture_output=True,
                               check=False).returncode == 0
    if not has_torch:
        skips.skip(f"{PYTHON} has no torch and safetensors, with which heads are trained; "
                   "OUTRIDER_TORCH_PYTHON names another Python")
    with tempfile.TemporaryDirectory() as folder:
        recordings = record(build, folder)
        for kind in KINDS:
            check_kind(recordings, folder, kind)
        check_resumed(recordings, folder)
        check_begun(recordings, folder)
        check_head(build, folder, "eagle3")


if __name__ == "__main__":
    main(sys.argv[1])
