#!/usr/bin/env python3
# ctest: labels=full,brief libs=worker beside=yes timeout=300
"""A row of logits that are not numbers fails the request that it belongs to and no other: a target
whose weights give NaN for one token of the prompt. The group stays, and texts without that token
are those of the sound target.
Usage: test_nan_row.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import broken_models
from cluster import ClusterError
from generations import TARGET, GenerationCluster, Report, order

BAD_ID = 1000
PROMPT = [338, 262, 434]
N_RANKS = 2
SETTINGS = {
    "greedy": {"temperature": 0},
    "rejection": {"temperature": 1, "rule": "rejection"},
    "coupled": {"temperature": 1, "rule": "coupled"},
    "top-p": {"temperature": 1, "top_p": 0.9},
}


def spoil(folder):
    """The embedding of BAD_ID becomes NaN; the head gets the sound weights that it shared."""
    header, data = broken_models.read_weights(folder)
    embedding = header[broken_models.EMBEDDING]
    begin, end = embedding["data_offsets"]
    n_rows, width = embedding["shape"]
    row_bytes = (end - begin) // n_rows
    not_a_number = b"\xff" * row_bytes  # NaN in every float format
    header["lm_head.weight"] = {**embedding, "data_offsets": [len(data), len(data) + end - begin]}
    at = begin + BAD_ID * row_bytes
    spoilt = data[:at] + not_a_number + data[at + row_bytes:]
    broken_models.write_weights(folder, header, spoilt + data[begin:end])
    broken_models.edit_json(folder, broken_models.CONFIG,
                            lambda config: config.update(tie_word_embeddings=False))


def texts(cluster, ids, fields):
    done = cluster.generate([order(ids, max_tokens=12, seed=3, ignore_eos=1, **fields)])
    return [one["ids"] for one in done]


def main():
    build = sys.argv[1]
    report = Report()
    with GenerationCluster(build, draft=None) as sound:
        wanted = {name: texts(sound, PROMPT, fields) for name, fields in SETTINGS.items()}
    with tempfile.TemporaryDirectory(prefix="outrider-") as scratch:
        folder = broken_models.copy(os.path.join(scratch, "target"), TARGET)
        spoil(folder)
        with GenerationCluster(build, n_ranks=N_RANKS, target=folder, draft=None) as cluster:
            pids = cluster.rank_pids()
            for name, fields in SETTINGS.items():
                try:
                    texts(cluster, PROMPT + [BAD_ID], fields)
                    said = "nothing"
                except ClusterError as error:
                    said = str(error)
                report.check("NaN" in said and "the row" in said, f"{name}: a NaN row says: {said}")
                report.check(texts(cluster, PROMPT, fields) == wanted[name],
                             f"{name}: the next text is that of the sound target")
            report.check(cluster.rank_pids() == pids, "no rank was started again")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
