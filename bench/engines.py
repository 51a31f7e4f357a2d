"""Functions that the comparisons with other engines share: the options that say how our side runs,
its cluster, and the order of arms."""
import shlex

from bench_util import quartiles_text
from cluster import Cluster


def add_options(parser):
    """The models and threads of our side, and how often both are run."""
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    parser.add_argument("-K", type=int, default=0, dest="k", help="-1: as the coordinator plans it")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--draft-threads", type=int, default=1)
    parser.add_argument("--weights", default="bf16")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--worker-flags", default="", metavar="FLAGS", help="more of them, quoted")
    parser.add_argument("--coordinator-flags", default="", metavar="FLAGS")


def cluster_of(args, **options):
    """Our cluster as the options say; a context manager."""
    cpu = ["--kernels", args.kernels]
    if args.weights != "bf16":
        cpu += ["--weights", args.weights]
    return Cluster(args.build, n_ranks=args.ranks, target=args.target, draft=args.draft,
                   worker_flags=["--threads", str(args.threads), *cpu,
                                 *shlex.split(args.worker_flags)],
                   coordinator_flags=["--threads", str(args.draft_threads), *cpu,
                                      *shlex.split(args.coordinator_flags)],
                   **options)


def in_turn(arms, pair):
    """The arms of a pair: every second pair has them from the last to the first, so that a machine
    whose speed drifts favours none."""
    return arms if pair % 2 else list(reversed(arms))


def ratios_text(ours, theirs):
    """Ours over theirs, pair by pair."""
    return quartiles_text([a / b for a, b in zip(ours, theirs, strict=True)])
