"""The figures in what benchmarks print, as short lines."""
import re

STEP = re.compile(r"^ *(\d+) +([\d.]+) +([\d.]+) +([\d.]+) \(([\d.]+) to ([\d.]+)\) +([\d.]+)",
                  re.M)
HOST = re.compile(r"the host takes ([\d.]+) us until the device has all of it; then answers take "
                  r"([\d.]+) us \(the best\) or ([\d.]+) us")
LOADED = re.compile(r", (\d+) MB of weights.*loaded in ([\d.]+) s")
CEILINGS = re.compile(r"copy (\d+) GB/s, read (\d+) GB/s, bf16 (\d+) TFLOP/s")
PROMPT = re.compile(r"^(\d+) tokens of .*?: ([\d.]+) ms \(([\d.]+) to ([\d.]+)\), (\d+) tokens/s, "
                    r"([\d.]+) TFLOP/s", re.M)
KERNEL = re.compile(r"^(\w+) +(\d+) rows +([\d.]+) us +(\d+) GB/s +[\d.]+ of a copy +([\d.]+) "
                    r"Tflop/s", re.M)

LINES_MOST = 20


def last_line(output):
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip()[:160] if lines else ""


class Ceilings:
    """Rates of copies and of the tensor cores; other benchmarks' figures are shares of them."""

    def __init__(self):
        self.copy_gb_s = self.tflop_s = 0

    def figures(self, output):
        found = CEILINGS.search(output)
        if not found:
            return []
        self.copy_gb_s, self.tflop_s = int(found[1]), int(found[3])
        return [output.strip().splitlines()[-1]]

    def of_copy(self, gb_s):
        return f", {gb_s / self.copy_gb_s:.3f} of a copy" if self.copy_gb_s else ""

    def of_peak(self, tflop_s):
        return f", {tflop_s / self.tflop_s:.3f} of cuBLASLt" if self.tflop_s else ""

    def steps(self, what):
        """Figures of bench_step; what: the weights, and of what the rows are."""
        def found(output):
            rows = STEP.findall(output)
            if not rows:
                return []
            loaded, first = LOADED.search(output), rows[0]
            hosts = HOST.findall(output)
            line = (f"step, {what}: 1 row {first[2]} ms, {float(first[6]):.0f} GB/s"
                    f"{self.of_copy(float(first[6]))}")
            if loaded:
                line += f"; {loaded[1]} MiB loaded in {loaded[2]} s"
            return [line,
                    f"step, {what}, rows: over 1 row  " + ", ".join(
                        f"{row[0]}: {row[3]}" for row in rows),
                    f"step, {what}, rows: host us, and answers of the best, of a draw  " +
                    ", ".join(f"{row[0]}: {host} + {best}, {draw}"
                              for row, (host, best, draw) in zip(rows, hosts))]
        return found

    def prompts(self, output):
        return [f"prompt of {tokens}: {ms} ms ({low} to {high}), {rate} tokens/s, {tflop} TFLOP/s"
                f"{self.of_peak(float(tflop))}"
                for tokens, ms, low, high, rate, tflop in PROMPT.findall(output)]

    @staticmethod
    def kernels(name):
        """Returns, of time_cuda_matmul, microseconds of each shape by rows, with the bandwidth of
        the fewest and the rate of the most; of other programs of this kind, what they print."""
        def found(output):
            shapes = {}
            for shape, rows, us, gb_s, tflop in KERNEL.findall(output):
                shapes.setdefault(shape, []).append((rows, us, gb_s, tflop))
            if not shapes:
                return [f"{name}: {line}" for line in output.splitlines()][:LINES_MOST]
            return [f"{name} {shape}, us by rows ({lines[0][2]} GB/s to {lines[-1][3]} Tflop/s): " +
                    ", ".join(f"{rows}: {us}" for rows, us, _, _ in lines)
                    for shape, lines in shapes.items()]
        return found


def pairs(what):
    """Returns, of bench_pair, K, tokens/s of both, ratio with quartiles, and what is predicted."""
    def found(output):
        return [f"{what}: K {' '.join(line.split())}" for line in output.splitlines()
                if line.split() and line.split()[0].isdigit()]
    return found


def lines_with(*words):
    def found(output):
        return [line.strip() for line in output.splitlines()
                if any(word in line for word in words)]
    return found
