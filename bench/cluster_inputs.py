"""From rows of `outrider bench` to a file of `outrider plan --cluster`.

read_arms gives the median of each arm's rows. inputs_of takes the arms of one group without a
delayed link: those of T = 1 with all clients and K, and, if there are any, those of T = 2 at K = 0,
for what a collective sum and a further rank on the wire cost. Everything else of T = 2 is for the
plan to predict.
"""
import csv
import os
import statistics

PARTS = ("draft", "verify", "collective", "wire")


# ---- rows ----

def is_number(text):
    try:
        float(text)
        return True
    except ValueError:
        return False


def read_rows(path):
    """The rows with the words of `options` as columns: "groups=2 delay=1"."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for word in row["options"].split():
            name, _, value = word.partition("=")
            row.setdefault(name, value)
    return rows


def read_arms(*paths):
    """One dict for each arm: medians of what is a number in all repetitions, else the text."""
    arms = {}
    for row in (row for path in paths for row in read_rows(path)):
        arms.setdefault(row["arm"], []).append(row)
    return [{name: statistics.median(float(row[name]) for row in rows)
             if all(is_number(row[name]) for row in rows) else rows[0][name] for name in rows[0]}
            for rows in arms.values()]


# ---- parts of a round ----

def cycle_us(arm):
    """From one round of a text to its next one, by the clock of the client. The coordinator's own
    round_us leaves out what it does between rounds. At the end of a slice some clients have ended
    before others; batch_size is how many texts there were on average."""
    text_us = arm["duration_seconds"] * 1e6 * arm["batch_size"] / arm["requests"]
    first_us = arm["time_to_first_token_seconds_p50"] * 1e6
    return (text_us - first_us) / (arm["rounds"] / arm["requests"] - 1)


def rest_us(arm):
    """Returns the coordinator's own time: what is neither draft nor step nor wire."""
    return cycle_us(arm) - sum(arm[f"{part}_us"] for part in PARTS)


def prompt_us(arm):
    """A token of a prompt: what the first token took longer than a round, with all prompts that
    were read together."""
    first_us = arm["time_to_first_token_seconds_p50"] * 1e6
    tokens = arm["prompt_tokens"] / arm["requests"] * arm["concurrency"]
    return max(0.0, first_us - cycle_us(arm)) / tokens


# ---- fits ----

def line(points):
    """(value at 1, slope) of least squares; slopes are not negative."""
    mean_x, mean_y = (statistics.mean(p[i] for p in points) for i in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0
    slope = max(0.0, slope)
    return max(0.0, mean_y + slope * (1 - mean_x)), slope


def curve(points):
    """Ascending and at least half a row apart; times never fall."""
    rising, most = [], 0
    for at, us in sorted(points):
        most = max(most, us)
        if rising and at - rising[-1][0] < 0.5:
            continue
        rising.append([round(max(1.0, at), 2), round(most, 2)])
    return rising


def chance_that_adds(tokens, n):
    """x with x + x^2 + ... + x^n = tokens, 0 to 1."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if sum(middle ** i for i in range(1, n + 1)) < tokens:
            low = middle
        else:
            high = middle
    return low


def alphas(arms):
    """By position, so that rounds of the measured K commit what they did; between two measured K
    all positions have the same."""
    tokens = {}
    for arm in arms:
        tokens.setdefault(int(arm["K"]), []).append(arm["tokens_per_round"])
    found, reached, before, last_k = [], 1.0, 1.0, 0
    for k in sorted(k for k in tokens if k > 0):
        more = max(0.0, statistics.mean(tokens[k]) - before)
        alpha = chance_that_adds(more / reached, k - last_k) if reached > 0 else 0
        found += [round(alpha, 4)] * (k - last_k)
        reached *= alpha ** (k - last_k)
        before, last_k = statistics.mean(tokens[k]), k
    return found or [0]


# ---- the file ----

def guesses_of(arms):
    """(lanes, us) of a guess, where K = 2 or the next one that was measured: the first guess of a
    round also reads the token before it, which makes K = 1 dearer than the others."""
    ks = sorted({arm["K"] for arm in arms if arm["K"] > 0})
    typical = ks[:2][-1] if ks else 0
    return [(arm["batch_size"], arm["draft_us_per_token"]) for arm in arms
            if arm["K"] == typical > 0]


def of_coordinator(arms):
    """us_per_round and us_per_lane from plain rounds; what is left at K > 0 is of guesses: rows."""
    plain = [(arm["batch_size"], rest_us(arm)) for arm in arms if arm["K"] == 0]
    us, lane_us = line(plain)
    more = [(arm["rows_per_step"] - arm["batch_size"],
             rest_us(arm) - us - lane_us * (arm["batch_size"] - 1))
            for arm in arms if arm["K"] > 0]
    rows = sum(n * n for n, _ in more)
    row_us = max(0.0, sum(n * rest for n, rest in more) / rows) if rows else 0.0
    return {"us_per_round": us, "us_per_lane": lane_us, "us_per_row": row_us}


def of_sums(arms, pair, n_sums):
    """Returns what two ranks show at K = 0: the cost of a sum, and of a second rank on the wire."""
    us, row_us = line([(arm["rows_per_step"], arm["collective_us"]) for arm in pair])
    mine = {arm["concurrency"]: arm["wire_us"] + rest_us(arm) for arm in arms if arm["K"] == 0}
    more = [arm["wire_us"] + rest_us(arm) - mine[arm["concurrency"]] for arm in pair
            if arm["concurrency"] in mine]
    measured = {"ranks": 2, "us": us / n_sums, "us_per_row": row_us / n_sums}
    return measured, max(0.0, statistics.mean(more)) if more else 0.0


def inputs_of(arms, pair, n_sums, slowdown=1.0, name=""):
    """The file without its questions. n_sums: collective sums of a step."""
    plain, fast = ([prompt_us(arm) for arm in arms if (arm["K"] > 0) == is_fast]
                   for is_fast in (False, True))
    wire, wire_row = line([(arm["rows_per_step"], arm["wire_us"]) for arm in arms])
    target_us = statistics.mean(plain)
    plan = {
        "name": name,
        "alpha": alphas(arms),
        "guess_us": curve(guesses_of(arms)) or [[1, 0]],
        "step_us": curve([(arm["rows_per_step"], arm["verify_us"]) for arm in arms]),
        "ranks": 1,
        "prompt": {"target_us_per_token": target_us,
                   "draft_us_per_token": max(0.0, statistics.mean(fast or plain) - target_us)},
        "coordinator": of_coordinator(arms),
        "wire": {"us_per_step": wire, "us_per_row": wire_row,
                 "bytes_per_row": statistics.median(arm["bytes_per_position"] for arm in arms)},
        "host": {"cores": os.cpu_count(), "is_shared": True, "slowdown": round(slowdown, 3)},
    }
    if pair:
        measured, plan["wire"]["us_per_rank"] = of_sums(arms, pair, n_sums)
        plan["collectives"] = {"per_step": n_sums, "measured": [measured]}
    return plan
