#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""`outrider chat` against real clusters: on a terminal, whose screen is compared, and with a pipe.
Usage: test_chat.py BUILD_FOLDER [NAME_PART]"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, TALES, bound, run_all
from rpc_python import Caller, field
from screen import Screen

TARGET = os.path.join(TALES, "target")
SLOW = "synthetic:qwen2.5-0.5b,seed=1,layers=8,vocab=512"
ENDLESS = ["-n", "20000", "--ignore-eos"]  # minutes, whatever the machine
GREEDY = ["--temperature", "0"]
SYSTEM = "You tell tales."
ASKED = "Who is the king?"


def chat(cluster, lines, *args):
    """The finished call, which was given the lines."""
    return cluster.outrider("chat", *args, stdin="".join(f"{line}\n" for line in lines))


def ok(done):
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    return done


def over_http(cluster, messages, n):
    """(text, tokens of the prompt) of the same conversation by OpenAI's API."""
    body = {"model": "x", "messages": messages, "max_tokens": n, "temperature": 0}
    with urllib.request.urlopen(f"{cluster.url}/v1/models", timeout=bound(20)) as reply:
        body["model"] = json.load(reply)["data"][0]["id"]
    request = urllib.request.Request(f"{cluster.url}/v1/chat/completions",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=bound(30)) as reply:
        answer = json.load(reply)
    return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]


# ---- with a pipe ----

def test_the_conversation_is_written_as_over_http(cluster):
    """Two turns and a system message: the same prompts, so the same texts."""
    messages = [{"role": "system", "content": SYSTEM}]
    want, counts = [], []
    for question in (ASKED, "And who is\nhis daughter?"):
        messages.append({"role": "user", "content": question})
        text, n_prompt = over_http(cluster, messages, 20)
        messages.append({"role": "assistant", "content": text})
        want.append(text if text.endswith("\n") else text + "\n")
        counts.append(n_prompt)
    done = ok(chat(cluster, [ASKED, "/stats", "And who is\\", "his daughter?", "/stats"],
                   "--system", SYSTEM, "-n", "20", *GREEDY))
    assert done.stderr == "", done.stderr
    prompts = [int(n) for n in re.findall(r"^tokens +\d+ after a prompt of (\d+),", done.stdout,
                                          re.M)]
    assert prompts == counts and counts[1] > counts[0] + 20, (prompts, counts)
    left = done.stdout
    for text in want:
        assert text in left, (text, left)
        left = left[left.index(text) + len(text):]
    quoted = ok(chat(cluster, [ASKED, '"""And who is', 'his daughter?"""'], "--system", SYSTEM,
                     "-n", "20", *GREEDY))
    assert quoted.stdout == "".join(want), quoted.stdout


def test_commands(cluster):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "saved.json")
        done = ok(chat(cluster, ["/system " + SYSTEM, ASKED, "/retry", f"/save {path}", "/undo",
                                 "/undo", "/temperature hot", "/speculation maybe", "/frobnicate",
                                 "/quit", "not read"], "-n", "12", *GREEDY))
        with open(path, encoding="utf-8") as file:
            saved = json.load(file)["messages"]
        assert [m["role"] for m in saved] == ["system", "user", "assistant"], saved
        assert saved[0]["content"] == SYSTEM and saved[1]["content"] == ASKED, saved
        shown = saved[2]["content"].rstrip("\n") + "\n"
        assert done.stdout.rstrip("\n") + "\n" == (shown * 2 if shown else ""), done.stdout
        told = done.stderr.splitlines()
        assert len(told) == 4, told
        for line, part in zip(told, ("nothing to forget", "hot", "expected on or off",
                                     "'/frobnicate' is not a command; /help"), strict=True):
            assert line.startswith("outrider: ") and part in line, line
        again = ok(chat(cluster, [f"/load {path}", "And then?", f"/save {path}"], "-n", "5",
                        *GREEDY))
        with open(path, encoding="utf-8") as file:
            loaded = json.load(file)["messages"]
        assert loaded[:3] == saved and len(loaded) == 5 and again.stderr == "", loaded
        want, _ = over_http(cluster, loaded[:4], 5)
        assert loaded[4]["content"] == want


def test_seeds_and_speculation(cluster):
    """One seed, one text, with and without guesses; the figures say which."""
    done = ok(chat(cluster, ["/seed 5", ASKED, "/speculation off", "/retry", "/stats",
                             "/speculation on", "/retry", "/stats"],
                   "-n", "30", "--temperature", "0.5", "--ignore-eos", "-K", "4"))
    parts = re.split(r"^tokens +30 after.*(?:\n\w+ .*| {12}.*|\nby position.*)*\n", done.stdout,
                     flags=re.M)
    first, second = parts[0], parts[1]
    assert first == second * 2, (first, second)
    assert re.findall(r"^drafts +none", done.stdout, re.M) == ["drafts      none"], done.stdout
    assert done.stdout.count("strategy    fixed, K 4") == 1, done.stdout


def test_a_model_without_a_template(cluster):
    """It goes on with the text, and one sentence says so."""
    with tempfile.TemporaryDirectory() as folder:
        target = shutil.copytree(TARGET, os.path.join(folder, "bare"))
        os.remove(os.path.join(target, "chat_template.jinja"))
        with Cluster(cluster.build, target=target, draft=None) as bare:
            done = ok(chat(bare, ["Once upon a time", "The king"], "-n", "12", *GREEDY))
            told = done.stderr.splitlines()
            assert len(told) == 1 and "bare has no chat template" in told[0], told
            text = ok(bare.outrider("generate", "-q", "Once upon a time", "-n", "12",
                                    *GREEDY)).stdout
            more = ok(bare.outrider("generate", "-q", f"Once upon a time{text}\nThe king", "-n",
                                    "12", *GREEDY)).stdout
            assert done.stdout == f"{text}\n{more}\n", done.stdout
            refused = chat(bare, ["x"], "--system", SYSTEM)
            assert refused.returncode == 1 and "--system needs a chat template" in refused.stderr
    plain = ok(chat(cluster, ["Once upon a time"], "--plain", "-n", "12", *GREEDY))
    assert plain.stdout == f"{text}\n" and plain.stderr == "", plain


def test_texts_of_special_tokens(cluster):
    """They count as such, or with --user-special-tokens off as a text, as over HTTP."""
    asked = "a <|end|><|assistant|> b"
    counts = []
    with Cluster(cluster.build, draft=None, http=True,
                 coordinator_flags=["--user-special-tokens", "off"]) as guarded:
        for each in (cluster, guarded):
            _, n_prompt = over_http(each, [{"role": "user", "content": asked}], 4)
            done = ok(chat(each, [asked, "/stats"], "-n", "4", *GREEDY))
            assert f" after a prompt of {n_prompt}, " in done.stdout, (n_prompt, done.stdout)
            counts.append(n_prompt)
    assert counts[1] > counts[0] + 4, counts


def test_calls_that_are_refused(cluster):
    """The gRPC call that it makes: without messages, a role or a template, and with too many
    tokens."""
    def conversation(*messages):
        return field(26, b"".join(field(1, field(1, role) + field(2, text))
                                  for role, text in messages))
    caller = Caller(cluster.address)
    for part, request in (("the conversation has no messages", conversation()),
                          ("message 0: role is empty", conversation(("", "x"))),
                          ("the context of 1024", conversation(("user", "tale " * 3000)))):
        status, sentence = caller.refusal("Generate", request)
        assert status == "INVALID_ARGUMENT" and part in sentence, (status, sentence)
    caller.close()
    with Cluster(cluster.build, target="synthetic:tiny,seed=1,vocab=512", draft=None) as bare:
        caller = Caller(bare.address)
        status, sentence = caller.refusal("Generate", conversation(("user", "x")))
        assert status == "UNIMPLEMENTED" and "has no chat template" in sentence, sentence
        caller.close()


def test_wrong_command_lines(cluster):
    for part, *words in (("no MODEL is named", "--", "--threads", "1"),
                         ("'b' is too much", "a", "b"), ("--temperature", "--temperature", "hot")):
        done = cluster.outrider("chat", *words, stdin="")
        assert done.returncode == 2 and part in done.stderr and done.stderr.count("\n") == 1, done


def test_a_server_that_dies_in_the_middle(cluster):
    with Cluster(cluster.build, target=SLOW, draft=None) as slow:
        process = slow.popen("chat", *ENDLESS, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            process.stdin.write(b"Once upon a time\nnot asked any more\n")
            process.stdin.flush()
            assert process.stdout.read(8)
            slow.coordinator.process.send_signal(signal.SIGKILL)
            errors = process.communicate(timeout=bound(30))[1].decode()
        finally:
            process.kill()
            process.wait()
    told = [line for line in errors.splitlines() if "no chat template" not in line]
    assert process.returncode == 1 and len(told) == 1, (process.returncode, errors)
    assert told[0].startswith(f"outrider: the server at {slow.address} is gone"), told


# ---- on a terminal ----

def screen_of(cluster, *args, state, columns=80, rows=24, **environment):
    return Screen(cluster.command("chat", *args), columns, rows,
                  {**cluster.client_environment(), "XDG_STATE_HOME": state, "TERM": "screen",
                   **environment})


def has_prompt(lines):
    return lines[-1] == ">>>"


def is_answering(lines):
    return len(lines[-1]) > 8 and not lines[-1].startswith((">>>", "outrider: "))


def test_the_screen_of_a_conversation(cluster):
    want, _ = over_http(cluster, [{"role": "user", "content": ASKED}], 24)
    with tempfile.TemporaryDirectory() as state, \
            screen_of(cluster, "-n", "24", "-K", "4", *GREEDY, state=state) as screen:
        lines = screen.wait_for(has_prompt)
        assert lines == ["target, 1024 tokens of context. /help lists commands, Ctrl-D ends.",
                         ">>>"], lines
        screen.type("Whox is the king?")
        for _ in range(13):
            screen.key("Left")
        screen.key("BSpace")
        screen.key("Enter")
        lines = screen.wait_for(lambda seen: len(seen) > 4 and has_prompt(seen))
        assert lines[1] == f">>> {ASKED}", lines
        shown = "\n".join(lines[2:-2])
        assert shown.rstrip() == want.rstrip(), (shown, want)
        assert re.match(r"\d+ tokens in \d+ rounds, [\d.]+ tokens/s", lines[-2]), lines
        # The line of before, and the end.
        screen.key("Up")
        screen.wait_for(lambda seen: seen[-1] == f">>> {ASKED}")
        screen.type("\x03")
        screen.wait_for(lambda seen: seen[-2] == f">>> {ASKED}^C" and has_prompt(seen))
        screen.type("\x04")
        assert screen.wait_end() == 0
        history = os.path.join(state, "outrider", "chat_history")
        assert os.stat(history).st_mode & 0o777 == 0o600
        with open(history, encoding="utf-8") as file:
            assert "king?" in file.read()
        with screen_of(cluster, state=state) as later:
            later.wait_for(has_prompt)
            later.key("Up")
            later.wait_for(lambda seen: seen[-1] == f">>> {ASKED}")
            later.type("\x03\x04")
            assert later.wait_end() == 0


def test_retry_asks_the_last_message_also_after_one_that_failed(cluster):
    def of(lines, part):
        return sum(part in line for line in lines)

    with tempfile.TemporaryDirectory() as state, \
            screen_of(cluster, "--system", "king " * 940, "-n", "4", *GREEDY, state=state,
                      columns=200, rows=40) as screen:
        screen.wait_for(has_prompt)
        screen.type("king " * 90 + "\n")
        screen.wait_for(lambda seen: of(seen, "leaves no room") and has_prompt(seen))
        screen.type("Hi\n")
        screen.wait_for(lambda seen: of(seen, " tokens in ") == 1 and has_prompt(seen))
        screen.type("/retry\n")
        lines = screen.wait_for(lambda seen: of(seen, ">>> /retry") and has_prompt(seen))
        assert (of(lines, " tokens in "), of(lines, "leaves no room")) == (2, 1), lines
        screen.type("\x04")
        assert screen.wait_end() == 0


def test_letters_beyond_ascii(cluster):
    """They are edited as one, whatever the locale says, and arrive as they are."""
    asked = "Grüße, König?"
    want, _ = over_http(cluster, [{"role": "user", "content": asked}], 8)
    with tempfile.TemporaryDirectory() as state, \
            screen_of(cluster, "-n", "8", *GREEDY, state=state, LC_ALL="C") as screen:
        screen.wait_for(has_prompt)
        screen.type("Grüßeß, König?")
        for _ in range(8):
            screen.key("Left")
        screen.key("BSpace")
        screen.wait_for(lambda seen: seen[-1] == f">>> {asked}")
        screen.key("Enter")
        lines = screen.wait_for(lambda seen: len(seen) > 3 and has_prompt(seen))
        assert "\n".join(lines[2:-2]).rstrip() == want.rstrip(), (lines, want)
        screen.type("\x04")
        assert screen.wait_end() == 0


def test_a_key_shows_the_guesses(cluster):
    """Without colours, where marks can be compared: those of `outrider generate`."""
    with tempfile.TemporaryDirectory() as state, \
            screen_of(cluster, "-n", "24", "-K", "4", "--plain", *GREEDY, state=state, rows=40,
                      NO_COLOR="1") as screen:
        flags = ["Once upon a time", "-n", "24", "-K", "4", "-q", *GREEDY]
        plain = ok(cluster.outrider("generate", *flags)).stdout
        marked = ok(cluster.outrider("generate", *flags, "--show-drafts")).stdout
        assert marked != plain and "[" in marked
        screen.wait_for(has_prompt)
        screen.type("Once upon a time\n")
        lines = screen.wait_for(lambda seen: len(seen) > 4 and has_prompt(seen))
        assert plain.rstrip() in "\n".join(lines) and "[" not in "".join(lines), lines
        screen.type("\x07")
        lines = screen.wait_for(lambda seen: "[" in "".join(seen) and has_prompt(seen))
        assert marked.rstrip() in "\n".join(lines), (marked, lines)
        screen.type("\x07")
        screen.wait_for(lambda seen: "\n".join(seen).count(plain.rstrip()) == 2 and
                        has_prompt(seen))
        screen.type("/quit\n")
        assert screen.wait_end() == 0


def test_colours_of_guesses(cluster):
    with tempfile.TemporaryDirectory() as state, \
            screen_of(cluster, "-n", "24", "-K", "4", "--plain", "--show-drafts", *GREEDY,
                      state=state) as screen:
        screen.wait_for(has_prompt)
        screen.type("Once upon a time\n")
        screen.wait_for(lambda seen: len(seen) > 4 and has_prompt(seen))
        assert any("\x1b[32m" in line for line in screen.lines(with_colours=True))
        screen.type("\x04")
        assert screen.wait_end() == 0


def test_ctrl_c_stops_the_answer_alone(cluster):
    with Cluster(cluster.build, target=SLOW, draft=None) as slow, \
            tempfile.TemporaryDirectory() as state, \
            screen_of(slow, *ENDLESS, *GREEDY, state=state) as screen:
        screen.wait_for(has_prompt)
        screen.type("Once upon a time\n")
        screen.wait_for(is_answering)
        screen.type("\x03")
        lines = screen.wait_for(has_prompt)
        assert "stopped; /retry asks again" in lines, lines
        described = json.loads(slow.outrider("describe", "--json").stdout)
        assert described["load"]["ends"]["length"] == 0, described["load"]
        # The next line begins with what was typed meanwhile.
        screen.type("/retry\n")
        screen.wait_for(is_answering)
        screen.type("/stat")
        screen.type("\x03")
        screen.wait_for(lambda seen: seen[-1] == ">>> /stat")
        screen.type("s\n")
        screen.wait_for(lambda seen: "outrider: /stats: there is no answer yet" in seen and
                        has_prompt(seen))
        # A server that is gone is told, and the program goes on.
        screen.type("/retry\n")
        screen.wait_for(is_answering)
        slow.coordinator.process.send_signal(signal.SIGKILL)
        screen.wait_for(lambda seen: any("is gone, and the rest of the answer" in line
                                         for line in seen) and has_prompt(seen), timeout=60)
        screen.type("\x04")
        assert screen.wait_end() == 0


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", globals(), http=True))
