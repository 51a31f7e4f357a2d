#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=240
"""`outrider record` writes texts with the target's features down: the same bits for one rank that
reads in small steps and is short of KV beside other texts, and for two ranks that read each text at
once. Usage: test_record.py BUILD_FOLDER"""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, bound, wait_until

COLUMNS = ["0", "1", "2", "4"]
STEP_TOKENS, STEP_ROWS, KV_TOKENS = 32, 17, 1024
GREEDY = ["-n", "24", "--temperature", "0", "--top-p", "0.5", "--ignore-eos"]
LONG = [300 + i % 50 for i in range(230)]
# A recorded text needs 58 of 64 blocks in the end and takes at least 58 steps of 16 rows, more
# where the planner reads fewer rows beside a text. The one that grows has 5 blocks in the
# beginning, 8 after 58 steps, and grows on for ten times as long.
TEXT_TOKENS, BEGUN_TOKENS, GROWN_TOKENS = 916, 60, 600


def write_prompts(folder):
    path = os.path.join(folder, "prompts.jsonl")
    lines = [{"prompt": "Once upon a time"},
             {"prompt_ids": LONG, "answer_ids": LONG[:20]},
             {"prompt_ids": LONG[:70]},
             {"prompt_ids": LONG[5:25], "answer_ids": LONG}]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(json.dumps(line) for line in lines))
    return path, [1, 3, 5, 7]  # the numbers of the lines


def read(path):
    """(metadata, {name: (dtype, shape, bytes)}) of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__")
    tensors, end = {}, 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = entry["dtype"], entry["shape"], data[8 + size:][begin:end]
    assert end == len(data) - 8 - size, path
    return metadata, tensors


def command(prompts, out, boundaries, *more):
    return ["record", "--prompts", prompts, "--out", out, "--boundaries", boundaries, *GREEDY,
            *more]


def column(tensors, index):
    """One column of the features, a list of rows."""
    dtype, (n, n_columns, dim), data = tensors["features"]
    assert dtype == "BF16"
    row = 2 * dim
    return [data[(i * n_columns + index) * row:][:row] for i in range(n)]


def check_shapes(metadata, tensors, n_prompt):
    n = tensors["tokens"][1][0]
    dim = tensors["features"][1][2]
    assert tensors["features"][1] == [n - 1, len(COLUMNS) + 1, dim], tensors["features"][1]
    assert tensors["logprobs"][:2] == ("F32", [n - 1]), tensors["logprobs"][:2]
    assert tensors["best_ids"][:2] == ("I32", [n - 1, 3])
    assert metadata["boundaries"] == ",".join(COLUMNS) and metadata["normed"] == "true", metadata
    assert n_prompt is None or metadata["prompt_tokens"] == str(n_prompt), metadata
    assert metadata["arithmetic"] == "cpu-bf16" and metadata["model"], metadata
    # The text is greedy, so the best token after each one of the answer is the next.
    ids = struct.unpack(f"<{n}i", tensors["tokens"][2])
    best = struct.unpack(f"<{3 * (n - 1)}i", tensors["best_ids"][2])
    first = int(metadata["prompt_tokens"])
    return all(best[3 * (i - 1)] == ids[i] for i in range(first, n))


def check_settings(metadata, is_generated):
    """The file says how its answer was chosen."""
    settings = {key: metadata.get(key) for key in
                ("rule", "temperature", "top_k", "top_p", "repetition_penalty")}
    wanted = {"rule": "greedy", "temperature": "0", "top_k": "model", "top_p": "0.5",
              "repetition_penalty": "model"} if is_generated else {
                  "rule": "given", **dict.fromkeys(list(settings)[1:])}
    assert settings == wanted, metadata


def record_beside_another(cluster, prompts, folder):
    """Two recordings at a time, of different boundaries; the second is of every other text."""
    out, other = (os.path.join(folder, name) for name in ("one", "other"))
    beside = cluster.popen(*command(prompts, other, "1,3", "--part", "2/2"))
    done = cluster.outrider(*command(prompts, out, ",".join(COLUMNS), "--normed", "--top", "3"))
    assert done.returncode == 0, done.stderr
    assert "4 texts recorded" in done.stdout, done.stdout
    assert beside.wait(bound(60)) == 0
    assert sorted(os.listdir(other)) == ["000003.safetensors", "000007.safetensors"]
    return out, other


def check_again(cluster, prompts, out):
    """A text that is there already stays, and one that is missing is recorded again."""
    lost = os.path.join(out, "000003.safetensors")
    before = read(lost)
    os.remove(lost)
    done = cluster.outrider(*command(prompts, out, ",".join(COLUMNS), "--normed", "--top", "3"))
    assert done.returncode == 0, done.stderr
    assert "1 texts recorded" in done.stdout and "3 were there already" in done.stdout, done.stdout
    assert read(lost) == before


def check_refusals(cluster, prompts, folder):
    """Also options of how an answer looks, which is not recorded: they are not even offered."""
    out = os.path.join(folder, "refused")
    for option in ("--choices=2", "--with-prompt", "--logprobs=1", "--show-special"):
        done = cluster.outrider(*command(prompts, out, "1", option))
        assert done.returncode != 0 and "is not an option" in done.stderr, (option, done.stderr)
    for boundaries, says in (("0,99", "boundary 99 does not exist: the target has"),
                             ("2,1", "1 after 2; boundaries ascend"),
                             (",".join(str(i) for i in range(9)), "9 boundaries, at most 8")):
        done = cluster.outrider(*command(prompts, out, boundaries))
        assert done.returncode != 0 and says in done.stderr, (boundaries, done.stderr)


def counted(cluster, name):
    with urllib.request.urlopen(f"{cluster.url}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    values = [float(line.split()[-1]) for line in page.splitlines()
              if line.startswith(f"outrider_{name}{{")]
    assert len(values) == 1, (name, values)
    return values[0]


def write_texts(folder):
    """Two texts that have their answers, so that nothing but their scores is asked for."""
    path = os.path.join(folder, "texts.jsonl")
    lines = [{"prompt_ids": [300 + (7 * i + number) % 97 for i in range(30)],
              "answer_ids": [300 + (11 * i + 3 * number) % 89 for i in range(TEXT_TOKENS - 30)]}
             for number in range(2)]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(json.dumps(line) for line in lines))
    return path


def record_short_of_kv(cluster, folder):
    """Two recordings after a text that grows and is older than theirs: the KV has room for it and
    for one of theirs, until it has grown, and then the youngest loses its place, which is one that
    is recorded. The rank is stopped until all have been sent, so that the order is certain."""
    texts, out = write_texts(folder), os.path.join(folder, "short")
    before = counted(cluster, "num_preemptions_total")
    cluster.kill_rank(0, signal.SIGSTOP)
    prompt = ",".join(str(300 + i) for i in range(BEGUN_TOKENS))
    growing = cluster.popen("generate", "--prompt-ids", prompt, "-n", str(GROWN_TOKENS), "-K", "0",
                            "--ignore-eos", "--seed", "1", stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)
    wait_until(lambda: counted(cluster, "num_requests_running") == 1, 20, "the text is in a step")
    parts = [cluster.popen(*command(texts, out, "0,2", "--part", f"{part}/2"),
                           stdout=subprocess.DEVNULL) for part in (1, 2)]
    wait_until(lambda: counted(cluster, "num_requests_waiting") == 2, 20, "both recordings wait")
    cluster.kill_rank(0, signal.SIGCONT)
    assert [process.wait(bound(60)) for process in (growing, *parts)] == [0, 0, 0]
    assert counted(cluster, "num_preemptions_total") > before, "no recorded text lost its place"
    return texts, out


def main(build):
    serve = ["--serve-features"]
    small = ["--max-step-tokens", str(STEP_TOKENS), "--max-step-rows", str(STEP_ROWS),
             "--kv-tokens", str(KV_TOKENS)]
    with tempfile.TemporaryDirectory() as folder:
        prompts, numbers = write_prompts(folder)
        with Cluster(build, worker_flags=small, coordinator_flags=serve, http=True) as cluster:
            assert counted(cluster, "feature_bytes_total") == 0
            out, other = record_beside_another(cluster, prompts, folder)
            recorded = counted(cluster, "feature_bytes_total")
            assert counted(cluster, "feature_seconds_total") > 0
            check_again(cluster, prompts, out)
            check_refusals(cluster, prompts, folder)
            texts, short = record_short_of_kv(cluster, folder)
        whole = os.path.join(folder, "two")
        with Cluster(build, 2, coordinator_flags=serve) as cluster:
            done = cluster.outrider(*command(prompts, whole, ",".join(COLUMNS), "--normed",
                                             "--top", "3"))
            assert done.returncode == 0, done.stderr
            done = cluster.outrider(*command(texts, os.path.join(folder, "long"), "0,2"))
            assert done.returncode == 0, done.stderr
        with Cluster(build) as cluster:
            done = cluster.outrider(*command(prompts, os.path.join(folder, "none"), "1"))
            assert done.returncode == 1 and "--serve-features" in done.stderr, done.stderr
        n_bytes = 0
        for number, n_prompt in zip(numbers, (None, 230, 70, 20)):
            name = f"{number:06d}.safetensors"
            metadata, tensors = read(os.path.join(out, name))
            check_settings(metadata, number in (1, 5))
            is_greedy = check_shapes(metadata, tensors, n_prompt)
            assert is_greedy == (number in (1, 5)), (name, "is the text of plain greedy decoding")
            assert read(os.path.join(whole, name))[1] == tensors, f"{name} differs with two ranks"
            n_bytes += len(tensors["features"][2])
            assert column(tensors, 0) != column(tensors, 1) != column(tensors, 2)
            if number in (3, 7):
                beside = read(os.path.join(other, name))[1]
                assert column(beside, 0) == column(tensors, 1), f"{name} differs beside another"
        assert recorded >= n_bytes > 0, (recorded, n_bytes)
        for number in (1, 2):
            name = f"{number:06d}.safetensors"
            tensors = read(os.path.join(short, name))[1]
            assert tensors == read(os.path.join(folder, "long", name))[1], f"text {number} differs"
    print(f"{len(numbers)} texts with features of {len(COLUMNS)} boundaries: equal bits")


if __name__ == "__main__":
    main(sys.argv[1])
