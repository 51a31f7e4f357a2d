"""A cluster whose ranks are plain processes, one GPU each, that meet over NCCL without mpirun."""
import os

from cluster import Cluster, Program, wait_until

# Ranks that share an emulated GPU, whose streams do their work at once, because
# tests/support/fake_nccl.c knows no streams.
EMULATED_FLAGS = ("--device", "cuda:0", "--no-graphs")


def emulated_environment(fake):
    """fake: the path of fake_nccl.so."""
    return {"OUTRIDER_NCCL_LIBRARY": fake, "EMULATED_STREAMS": "eager"}


class LedCluster(Cluster):
    """Ranks are started one by one, or all by start_workers.

    rank_flags        flags of every rank
    rank_environment  variables of every rank
    """

    def __init__(self, build, n_ranks=2, *, rank_flags=("--device", "cuda"), rank_environment=None,
                 **more):
        super().__init__(build, n_ranks, **more)
        self.rank_flags, self.rank_environment = rank_flags, rank_environment or {}
        self.ranks = []
        self.n_groups = 0

    def start_rank(self, rank, *flags, environment=None, log=None):
        command = [os.path.join(self.bin, "outrider-worker"), "--model", self.target,
                   "--listen", self.listen, "--ranks", str(self.n_ranks), "--rank", str(rank),
                   *self.rank_flags, *flags]
        return self.start_program(log or f"rank{rank}", command, environment)

    def start_program(self, name, command, environment=None):
        program = Program(name, command, self._log_path(name),
                          {"TMPDIR": self.folder, **self.rank_environment, **(environment or {})})
        self.ranks.append(program)
        return program

    def start_workers(self):
        """A whole group, after an earlier one has ended."""
        self.ranks = []
        self.n_groups += 1
        for rank in range(self.n_ranks):
            self.start_rank(rank, "--drain-timeout", "0", log=f"group{self.n_groups}-rank{rank}")
        self.workers = self.ranks[0]

    def wait_ranks_end(self, seconds):
        """The exit statuses of the ranks, once all have ended."""
        wait_until(lambda: not any(program.is_alive() for program in self.ranks), seconds,
                   "all ranks of the group end")
        return [program.wait(1) for program in self.ranks]

    def stop(self):
        try:
            return super().stop()
        finally:
            for program in self.ranks:
                program.stop()
            self.ranks = []
