#!/usr/bin/env python3
# ctest: labels=quick libs=client timeout=60
"""bench/plot on rows whose medians are known: figures are well-formed SVG, and their series are
there and have the right heights. Skipped (77) where gnuplot is not installed.
Usage: test_plot.py BUILD_FOLDER"""
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import xml.etree.ElementTree as ElementTree

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
PLOT = os.path.join(SOURCE, "bench", "plot")
SVG = "{http://www.w3.org/2000/svg}"
ALPHA, T_V, T_D, OVERHEAD = 0.8, 1000.0, 100.0, 50.0
REPETITIONS = 5


def expected(k):
    return sum(ALPHA ** i for i in range(k + 1))


def row(repetition, n_ranks, k, concurrency=1, **more):
    """A row of a machine that follows theory and is faster in odd repetitions."""
    machine_speed = 1.25 if repetition % 2 else 1.0
    step, round_us = T_V / n_ranks, T_V / n_ranks + k * T_D + OVERHEAD
    tokens_per_second = expected(k) / round_us * 1e6 * machine_speed
    plain = 1 / (step + OVERHEAD) * 1e6 * machine_speed
    return {
        "repetition": repetition, "place": 0, "arm": f"K={k}", "T": n_ranks, "K": k,
        "concurrency": concurrency, "rate": "", "options": "", "target_model": "a/b/big_one",
        "draft_model": "a/b/small", "tokens_per_second": tokens_per_second,
        "decode_tokens_per_second": tokens_per_second, "speedup": tokens_per_second / plain,
        "round_us": round_us, "draft_us": k * T_D, "wire_us": 30, "verify_us": step * 0.9,
        "collective_us": step * 0.1, "accept_us": 10, "draft_us_per_token": T_D if k else "",
        "overhead_us_p50": OVERHEAD, "spec_decode_num_accepted_tokens": 800 if k else 0,
        "spec_decode_num_rejections": 200 if k else 0,
        "time_to_first_token_seconds_p50": 0.01 * concurrency,
        "time_to_first_token_seconds_p99": 0.02 * concurrency,
        "inter_token_latency_seconds_p50": 0.001, "inter_token_latency_seconds_p99": 0.002, **more}


class Figures:
    def __init__(self, build):
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="outrider-plot-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, name, rows):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        return path

    def run(self, kind, path, *args):
        out = os.path.join(self.folder, f"{kind}.svg")
        done = subprocess.run([PLOT, kind, out, path, "--build", self.build, *args],
                              capture_output=True, encoding="utf-8", timeout=30)
        return out, done

    def plot(self, kind, rows, *args):
        """(the SVG's tree, its texts, what was printed)"""
        out, done = self.run(kind, self.file("rows.csv", rows), *args)
        assert done.returncode == 0, done.stderr
        assert os.listdir(self.folder).count(f"{kind}.svg.partial") == 0
        root = ElementTree.parse(out).getroot()
        assert root.tag == f"{SVG}svg"
        texts = ["".join(t.itertext()).strip() for t in root.iter(f"{SVG}text")]
        return root, texts, done.stdout

    def refuses(self, part, kind, path, *args):
        out, done = self.run(kind, path, *args)
        assert done.returncode == 1 and part in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert not os.path.exists(out)


def curves(root, n_points):
    """The curves that have n_points points (y grows downward). Nothing else is drawn like them: the
    samples in the legend are shorter, the first two points of an axis are above each other, and
    symbols are drawn around the origin."""
    found = []
    for path in root.iter(f"{SVG}path"):
        for piece in path.get("d", "").split("M")[1:]:
            points = re.findall(r"(-?[\d.]+),(-?[\d.]+)", piece)
            points = [(float(x), float(y)) for x, y in points]
            if len(points) == n_points and 20 < points[0][0] < points[1][0]:
                found.append(points)
    return found


def has(texts, *wanted):
    for text in wanted:
        assert text in texts, f"'{text}' is not in {texts}"


def sweep(ranks, ks):
    return [row(r, t, k) for r in range(REPETITIONS) for t in ranks for k in ks]


def test_speedup_draws_measurement_and_theory(figures):
    root, texts, printed = figures.plot("speedup", sweep([1], range(6)))
    has(texts, "measured", "with rows and network", "Leviathan, Theorem 3.8",
        "K, guesses per round", "times plain decoding (K = 0)",
        "Speed-up by speculative decoding: b/big_one + b/small, 5 repetitions")
    assert "alpha 0.800, c 0.100, row 0.0000, rtt 0.050" in printed, printed
    lines = curves(root, 6)
    theory = [expected(k) / (0.1 * k + 1) for k in range(6)]
    network = [expected(k) * 1.05 / (0.1 * k + 1.05) for k in range(6)]
    # The first curve is the measured one. It follows the theory with the network, so two of the
    # three curves are the same.
    unit = (lines[0][0][1] - lines[0][5][1]) / (network[5] - 1)
    for line, values in zip(lines, (network, network, theory), strict=True):
        for (_, y), value in zip(line, values):
            assert abs((line[0][1] - y) / unit - (value - 1)) < 0.01, (values, lines)


def test_split_stacks_the_parts(figures):
    _, texts, _ = figures.plot("split", sweep([2], range(4)))
    has(texts, "draft", "wire", "verify", "collective", "accept", "other", "K = 0", "K = 3",
        "time of a round, us")


def test_load_shows_throughput_and_latency(figures):
    rows = [row(r, 1, k, c) for r in range(3) for k in (0, 4) for c in (1, 2, 8)]
    _, texts, _ = figures.plot("load", rows, "--title", "Load & <more>")
    has(texts, "tokens per second", "time to first token, ms", "requests at once", "K = 0", "K = 4",
        "K = 0 P50", "K = 4 P99", "Load & <more>", "8")
    rates = [{**r, "rate": c, "concurrency": ""} for r, c in zip(rows, (1, 2, 8) * 6)]
    has(figures.plot("load", rates)[1], "requests per second offered")


def test_load_compares_planned_with_every_k(figures):
    def load_row(repetition, k, clients):
        made = row(repetition, 1, 4 if k == "plan" else k, clients)
        share = 1.25 if k == "plan" else 1.0
        return {**made, "K": k, "arm": f"C={clients} K={k}",
                "tokens_per_second": made["tokens_per_second"] * share * clients}
    rows = [load_row(r, k, c) for r in range(3) for c in (1, 2, 4, 8) for k in ("plan", 0, 2, 4)]
    root, texts, _ = figures.plot("load", rows)
    has(texts, "planned", "K = 0", "K = 2", "K = 4", "planned P50", "planned P99", "K = 2 P99")
    # The first panel has four curves: planned, K = 0, 2, 4; its values are known.
    planned, plain, two, four = curves(root, 4)[:4]
    def value(k, i):
        return row(0, 1, k)["tokens_per_second"] * 2 ** i
    unit = (plain[3][1] - four[3][1]) / (value(4, 3) - value(0, 3))
    for i in range(4):
        for curve, wanted in ((planned, 1.25 * value(4, i)), (two, value(2, i))):
            height = (plain[i][1] - curve[i][1]) / unit + value(0, i)
            assert abs(height / wanted - 1) < 0.02, (i, height, wanted)


def test_scaling_is_over_the_fewest_ranks(figures):
    root, texts, _ = figures.plot("scaling", sweep([1, 2, 4], [0, 3]))
    has(texts, "linear", "K = 0", "K = 3", "T, ranks of the target",
        "tokens per second, over T = 1")
    ideal, *measured = curves(root, 3)
    for k, curve in zip((0, 3), measured, strict=True):
        def per(t):
            return 1 / (T_V / t + k * T_D + OVERHEAD)
        unit = (ideal[0][1] - ideal[2][1]) / 3
        assert abs((curve[0][1] - curve[2][1]) / unit - (per(4) / per(1) - 1)) < 0.03, (k, curve)


def test_where_leaves_rows_out(figures):
    _, texts, _ = figures.plot("split", sweep([1, 2], [0, 1]), "--where", "T=2")
    has(texts, "K = 1")
    _, texts, _ = figures.plot("split", sweep([1, 2], [0, 1]))
    has(texts, "T = 2, K = 1")


def test_refusals(figures):
    rows = figures.file("rows.csv", sweep([1], [1, 2]))
    figures.refuses("K = 0", "speedup", rows)
    figures.refuses("no row", "split", rows, "--where", "T=9")
    figures.refuses("/nowhere", "split", "/nowhere")
    other = figures.file("other.csv", [{"a": 1}])
    figures.refuses("no CSV of outrider bench", "split", other)
    figures.refuses("/nowhere", "speedup", figures.file("rows.csv", sweep([1], [0, 1])), "--build",
                    "/nowhere")


def main(build):
    if not shutil.which("gnuplot"):
        print("gnuplot is not installed")
        return 77
    failed = 0
    tests = [(name, f) for name, f in globals().items() if name.startswith("test_")]
    for name, function in tests:
        try:
            with Figures(build) as figures:
                function(figures)
            print(f"ok      {name[5:]}")
        except (AssertionError, OSError, ValueError, ElementTree.ParseError):
            failed += 1
            print(f"FAILED  {name[5:]}\n{traceback.format_exc()}")
    print(f"{len(tests)} tests, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
