#!/usr/bin/env python3
# ctest: labels=full,brief libs=client beside=yes timeout=300
"""Things that a request can ask for beside a prompt: several texts, log-probabilities, penalties,
biases, bans, ends, a share of the service; and what describe counts of it. One real cluster.
Usage: test_client_request.py BUILD_FOLDER [PART_OF_A_NAME]"""
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE, bound, run_all
from test_client import GREEDY, PROMPT, TARGET, json_of, ok, refuses, text_of

OTHER_TOKENIZER = os.path.join(SOURCE, "tests", "golden", "tokenizers", "gpt2.json")


def test_choices_are_the_texts_of_their_seeds(cluster):
    flags = [PROMPT, "-n", "24", "-K", "3"]
    r = json_of(cluster, "generate", *flags, "--seed", "11", "--choices", "3")
    assert [choice["index"] for choice in r["choices"]] == [0, 1, 2]
    assert len({choice["seed"] for choice in r["choices"]}) == 3
    for choice in r["choices"]:
        alone = json_of(cluster, "generate", *flags, "--seed", choice["seed"])
        assert alone["token_ids"] == choice["token_ids"] and alone["text"] == choice["text"]
        assert choice["counters"]["lanes"] >= choice["counters"]["rounds"] - 1
        assert 1 <= choice["batch_size"] <= 3 and choice["rows_per_step"] >= choice["batch_size"]
    assert r["choices"][0]["seed"] == "11"
    shown = text_of(cluster, *flags, "--seed", "11", "--choices", "3")
    assert shown == "".join(f"--- choice {c['index']} ---\n{c['text']}" +
                            ("" if c["text"].endswith("\n") else "\n") for c in r["choices"])


def test_logprobs_are_those_of_score(cluster):
    flags = [PROMPT, "-n", "12", "--seed", "3", "-K", "3", "--logprobs", "2"]
    r = json_of(cluster, "generate", *flags, "--with-prompt")
    assert [token["id"] for token in r["prompt"]] == r["prompt_token_ids"]
    assert [token["id"] for token in r["logprobs"]] == r["token_ids"]
    assert "".join(token["text"] for token in r["logprobs"]) == r["text"]
    ids = ",".join(map(str, r["prompt_token_ids"] + r["token_ids"]))
    scored = json_of(cluster, "score", "--ids", ids, "--top", "2")["tokens"]
    for mine, wanted in zip(r["prompt"] + r["logprobs"], scored, strict=True):
        if mine["logprob"] is not None:
            assert (mine["logprob"], mine["top"]) == (wanted["logprob"], wanted["top"]), mine
    assert all(token["logprob"] is not None for token in r["prompt"][1:]), r["prompt"]
    table = text_of(cluster, *flags, "--with-prompt").splitlines()
    assert len(table) == 1 + len(scored)
    assert all(int(line.split()[0]) == i for i, line in enumerate(table[1:]))
    assert text_of(cluster, PROMPT, "-n", "4", "--with-prompt", *GREEDY).startswith(PROMPT)


def banned_in(ids, ban):
    return any(ids[i:i + len(ban)] == ban for i in range(len(ids)))


def test_bans_are_ids_or_texts(cluster):
    flags = ["generate", PROMPT, "-n", "40", *GREEDY]
    plain = json_of(cluster, *flags)["token_ids"]
    pair = plain[4:6]
    by_ids = json_of(cluster, *flags, "--ban-ids", ",".join(map(str, pair)))["token_ids"]
    assert by_ids[:5] == plain[:5] and not banned_in(by_ids, pair), (plain, by_ids)
    word = " children"
    assert word in json_of(cluster, *flags)["text"]
    for text in (word, word.strip()):
        r = json_of(cluster, *flags, "--ban", text, "--tokenizer", TARGET)
        ids = json_of(cluster, "tokenize", "--model", TARGET, "--no-bos", word)["ids"]
        assert not banned_in(r["token_ids"], ids) and word not in r["text"], r["text"]
    refuses(cluster, 2, "--tokenizer", *flags, "--ban", "x")
    with tempfile.TemporaryDirectory() as other:
        shutil.copy(OTHER_TOKENIZER, os.path.join(other, "tokenizer.json"))
        refuses(cluster, 1, "is not the tokenizer of", *flags, "--ban", "x", "--tokenizer", other)
    refuses(cluster, 1, "no folder /nowhere", *flags, "--ban", "x", "--tokenizer", "/nowhere")


def test_biases_penalties_and_ends(cluster):
    flags = ["generate", PROMPT, "-n", "40", *GREEDY]
    plain = json_of(cluster, *flags)["token_ids"]
    assert json_of(cluster, *flags, "--logit-bias", "262=100")["token_ids"] == [262] * 40
    fresh = json_of(cluster, *flags, "--logit-bias", "262=100", "--frequency-penalty", "2",
                    "--presence-penalty", "2", "-n", "60", "--repetition-penalty", "9")["token_ids"]
    assert fresh.count(262) < 60, fresh
    stop = plain[6]
    first = plain.index(stop)
    short = json_of(cluster, *flags, "--stop-id", str(stop))
    assert short["finish_reason"] == "stop" and short["completion_tokens"] <= first + 1
    later = json_of(cluster, *flags, "--stop-id", str(stop), "--min-tokens", str(first + 5))
    assert later["completion_tokens"] >= first + 5


def test_deadline_and_share(cluster):
    start = time.monotonic()
    done = cluster.outrider("generate", PROMPT, "-n", "900", "--deadline", "40", "--priority",
                            "high", "--client", "me", *GREEDY)
    assert done.returncode == 1 and "time is over" in done.stderr, done.stderr
    assert time.monotonic() - start < bound(5)


def test_describe_counts_what_was_done(cluster):
    long_prompt = PROMPT + " and each of them had three daughters, too;" * 6
    before = json_of(cluster, "describe")["load"]
    first, second = (json_of(cluster, "generate", long_prompt, "-n", "4", "-K", "2", *GREEDY)
                     for _ in range(2))
    after = json_of(cluster, "describe")["load"]
    reused = second["counters"]["target_reused"]
    n = second["prompt_tokens"]
    assert n - 16 <= reused < n and second["counters"]["draft_reused"] > 0, second["counters"]
    assert first["token_ids"] == second["token_ids"]
    both = reused + first["counters"]["target_reused"]
    assert after["prompt_tokens_reused"] - before["prompt_tokens_reused"] == both
    assert after["prompt_tokens_computed"] - before["prompt_tokens_computed"] == 2 * n - both
    assert after["ends"]["length"] - before["ends"]["length"] == 2, (before, after)
    assert after["target_kv"]["cached"] > 0 and after["uptime_us"] > before["uptime_us"]
    shown = ok(cluster.outrider("generate", long_prompt, "-n", "4", "--stats", *GREEDY)).stderr
    assert f"prompt      {reused} of its {n} tokens reused by the target" in shown, shown


def test_wrong_command_lines(cluster):
    def usage(part, *args):
        refuses(cluster, 2, part, *args)

    usage("--choices", "generate", "x", "--choices", "65")
    usage("--logprobs", "generate", "x", "--logprobs", "65")
    usage("--min-tokens", "generate", "x", "--min-tokens", "5", "-n", "4")
    usage("--repetition-penalty", "generate", "x", "--repetition-penalty", "0")
    usage("0.01 to 10", "generate", "x", "--repetition-penalty", "0.009")
    usage("--presence-penalty", "generate", "x", "--presence-penalty", "2.5")
    usage("--frequency-penalty", "generate", "x", "--frequency-penalty", "-3")
    usage("not ID=X", "generate", "x", "--logit-bias", "5")
    usage("--logit-bias", "generate", "x", "--logit-bias", "5=101")
    usage("given twice", "generate", "x", "--logit-bias", "5=1", "--logit-bias", "5=2")
    usage("at most 32", "generate", "x", "--ban-ids", ",".join(["1"] * 33))
    usage("--stop-id", "generate", "x", "--stop-id", "-1")
    usage("--priority", "generate", "x", "--priority", "urgent")
    usage("--client", "generate", "x", "--client", "c" * 129)
    usage("--deadline", "generate", "x", "--deadline", "0")
    usage("or --json", "generate", "x", "--logprobs", "1", "--show-drafts")


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", globals()))
