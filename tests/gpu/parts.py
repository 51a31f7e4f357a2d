"""The parts of tests/gpu/run: what each one runs, and how long it may take."""
import concurrent.futures
import glob
import importlib.util
import os
import shutil
import sys

from figures import Ceilings, last_line, lines_with, pairs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROWS = "1,2,4,6,8,9,16,17,32,33,64,128,256"
FORWARD_TESTS = ["test_forward", "test_forward_tree", "test_forward_window", "test_golden",
                 "test_head_subset", "test_heads", "test_place_heads", "test_block_heads",
                 "test_projection", "test_look_ahead_rows", "test_gguf_model",
                 "test_forward_stored"]


def library_folders(pattern):
    """Folders where pip puts CUDA's libraries, such as nvidia/nccl/lib."""
    return [folder for path in sys.path
            for folder in sorted(glob.glob(os.path.join(path, "nvidia", pattern, "lib")))]


def cuda_environment():
    """cuBLASLt for bench_ceilings and NCCL for the ranks, where only pip has brought them."""
    found = {}
    blas = [f for f in library_folders("*") if glob.glob(os.path.join(f, "libcublasLt.so*"))]
    if blas:
        found["LD_LIBRARY_PATH"] = ":".join(
            [*filter(None, [os.environ.get("LD_LIBRARY_PATH")]), *blas])
    if "OUTRIDER_NCCL_LIBRARY" not in os.environ:
        nccl = [path for folder in library_folders("*")
                for path in glob.glob(os.path.join(folder, "libnccl.so.2"))]
        if nccl:
            found["OUTRIDER_NCCL_LIBRARY"] = nccl[0]
    return found


class Parts:
    """shape: of the synthetic models of the benchmarks."""

    def __init__(self, table, build, shape, is_quick):
        self.table, self.build, self.is_quick = table, build, is_quick
        self.shape, self.model = shape, f"synthetic:{shape},seed=1"
        self.ceilings = Ceilings()
        self.cuda = cuda_environment()
        self.pool_jobs = [] # of tests, which run beside each other

    def path(self, *names):
        return os.path.join(self.build, *names)

    def gpu_programs(self, prefix):
        return sorted(path for path in glob.glob(self.path("tests", "gpu", prefix + "*"))
                      if os.access(path, os.X_OK) and os.path.isfile(path))

    def has_cluster(self, name):
        if os.path.exists(self.path("bin", "outrider-worker")):
            return True
        self.table.skip(name, "the programs were not built: --cluster builds them")
        return False

    # ---- tests ----

    def later(self, name, command, **options):
        self.pool_jobs.append((name, command, options))

    def run_pool(self):
        """All at once: a program under the sanitizer keeps one core busy and the GPU hardly, and
        what a test expects is on the CPU."""
        with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1)) as pool:
            for done in [pool.submit(self.table.run, name, command, **options)
                         for name, command, options in self.pool_jobs]:
                done.result()
        self.pool_jobs = []

    def operations(self):
        for program in self.gpu_programs("test_cuda_"):
            self.later(os.path.basename(program), [program], keep=last_line)

    def forward(self):
        env = {"OUTRIDER_TEST_DEVICE": "cuda", "CK_DEFAULT_TIMEOUT": "240", "CK_FORK": "no"}
        for name in FORWARD_TESTS:
            self.later(name, [self.path("tests", name)], env=env, keep=last_line)

    def cluster(self):
        if self.has_cluster("clusters"):
            self.later("clusters", [sys.executable, os.path.join(ROOT, "tests/gpu/end_to_end.py"),
                                    self.build, "48"], env=self.cuda, limit=200, keep=last_line)

    def sanitizer(self):
        """Calls that the runtime refuses are not reported, because the tests make such calls on
        purpose."""
        sanitizer = shutil.which("compute-sanitizer",
                                  path=os.environ["PATH"] + ":/usr/local/cuda/bin")
        if not sanitizer:
            return self.table.skip("sanitizer", "there is no compute-sanitizer")
        for tool in ["memcheck"] if self.is_quick else ["racecheck", "memcheck"]:
            for program in self.gpu_programs("test_cuda_"):
                self.later(f"{os.path.basename(program)} {tool}",
                           [sanitizer, "--tool", tool, "--target-processes", "all",
                            "--error-exitcode", "1", "--report-api-errors", "no", program,
                            "--small"],
                           env={"CK_FORK": "no"}, limit=240, keep=last_line)

    # ---- figures ----

    def measure_ceilings(self):
        self.table.run("ceilings", [self.path("bench", "bench_ceilings")], env=self.cuda, limit=30,
                       figures=self.ceilings.figures)

    def kernels(self):
        for program in self.gpu_programs("time_cuda_"):
            name = os.path.basename(program)
            short = name.replace("time_cuda_", "")
            forms, more = {"time_cuda_matmul": (["bf16", "fp8", "Q4_K"], ["--ms", "25"]),
                           "time_cuda_step": (["bf16", "fp8"], ["--model", self.model]),
                           }.get(name, ([""], []))
            for form in forms[:2] if self.is_quick else forms:
                flags = ["--weights", form, *more] if form else []
                self.table.run(f"{name} {form}", [program, *flags], limit=60,
                               figures=self.ceilings.kernels(f"{short} {form}".strip()))

    def step(self, what, *flags, limit=90):
        self.table.run(f"bench_step {what}",
                       [self.path("bench", "bench_step"), "--device", "cuda", "--model", self.model,
                        "--pairs", "5" if self.is_quick else "10", "--slice", "80", *flags],
                       limit=limit, figures=self.ceilings.steps(what))

    def steps(self):
        self.step("bf16, texts", "--lanes", "256", "--rows", ROWS)
        self.step("bf16, one text", "--rows", "2,4,6,8,16,17")
        self.step("fp8, one text", "--weights", "fp8", "--rows", "2,6,8")

    def prompt(self):
        self.table.run("bench_prompt", [self.path("bench", "bench_prompt"), "--device", "cuda",
                                        "--model", self.model, "--tokens", "512,4096", "--repeats",
                                        "3" if self.is_quick else "7"],
                       limit=60, figures=self.ceilings.prompts)

    def pair(self):
        for device in ["cuda"] if self.is_quick else ["cuda", "cpu"]:
            self.table.run(f"bench_pair, draft on {device}",
                           [self.path("bench", "bench_pair"), "--device", "cuda",
                            "--draft-device", device, "--target", f"{self.model},agree=0.8",
                            "--draft", f"{self.model},agree=0.8,draft=1",
                            "--k", "4,6" if device == "cuda" else "2",
                            "--threads", str(os.cpu_count()),
                            "--tokens", "200" if device == "cuda" else "50", "--pairs", "4"],
                           limit=60, figures=pairs(f"pair, draft on {device}"))

    def served(self):
        if self.has_cluster("served"):
            self.python("served", "served_rounds.py", "--shape", self.shape,
                        "--check-s", "10" if self.is_quick else "25", limit=140,
                        figures=lines_with(" clients:", "ready after", "texts:", "differs",
                                           "generator"))

    def torch(self):
        if self.has_torch("torch"):
            self.python("torch", "compare_prompts.py", "--shape", self.shape, limit=100,
                        figures=lines_with("ours over torch", " on "))

    def transformers(self):
        if self.has_torch("transformers"):
            self.python("transformers", "compare_transformers.py", "--target",
                        f"{self.model},agree=0.8", "--rounds", "3" if self.is_quick else "10",
                        limit=550, figures=lines_with(" over "))

    def python(self, name, script, *flags, **options):
        self.table.run(name, [sys.executable, os.path.join(ROOT, "bench", script), self.build,
                              *flags], env=self.cuda, **options)

    def has_torch(self, name):
        lacking = [module for module in ("torch", "transformers")
                   if not importlib.util.find_spec(module)]
        if lacking:
            self.table.skip(name, f"Python's {' and '.join(lacking)} are not installed")
        return not lacking


# name -> seconds that it may take together. Tests go first and beside each other; nothing else runs
# while figures are taken.
TESTS = ("operations", "forward", "cluster", "sanitizer")
TESTS_S = 240
BENCHES = {"kernels": 100, "steps": 150, "prompt": 60, "torch": 110, "pair": 100, "served": 150}
ON_REQUEST = {"transformers": 600}
GROUPS = {"tests": ("operations", "forward"), "benches": tuple(BENCHES)}
NAMES = (*TESTS, *BENCHES, *ON_REQUEST)
