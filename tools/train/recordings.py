"""Texts that `outrider record` wrote (docs/jobs.md), as batches for training.

A text of N tokens has features of its tokens 0 .. N - 2. Every head guesses at rows: row i has the
feature of position i and knows the tokens up to i + 1, and its guess k, counted from 0, is of the
token i + 2 + k, whose distribution p the target gives after the token i + 1 + k."""
import dataclasses
import hashlib
import pathlib
import random

import safetensors
import torch


class Unfit(Exception):
    """Files or options that do not fit, in a sentence."""


@dataclasses.dataclass
class Batch:
    """Texts side by side, or pieces of them that begin anywhere; shorter ones end with zeros."""
    tokens: torch.Tensor    # [texts][n] int64
    features: torch.Tensor  # [texts][n - 1][columns][width] float32
    lengths: torch.Tensor   # [texts]: tokens of each

    def to(self, device):
        return Batch(self.tokens.to(device), self.features.to(device), self.lengths.to(device))

    def has(self, rows, guess):
        """[texts][rows] bool: the rows whose guess is of a token of the text."""
        return rows[None] + 2 + guess < self.lengths[:, None]

    def shifted(self, distance):
        """[texts][n] tokens, of which number i is the token i + distance; zeros after the end."""
        return torch.nn.functional.pad(self.tokens, (0, distance))[:, distance:]


def is_held_out(name, held_out):
    """True of one name in `held_out`, whatever the names have in common."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") % held_out == 0


class Recordings:
    """The texts of folders. One of about every `held_out` is never trained on: its path decides, so
    that it stays so when recordings are added."""

    def __init__(self, folders, held_out):
        paths = sorted(path for folder in folders
                       for path in pathlib.Path(folder).glob("*.safetensors"))
        if not paths:
            raise Unfit(f"{', '.join(folders)}: there is no .safetensors of `outrider record`")
        is_held = [is_held_out("/".join(path.parts[-2:]), held_out) for path in paths]
        if not any(is_held):
            is_held[0] = True  # few recordings, of which none was to be
        self.held_out = [path for path, held in zip(paths, is_held) if held]
        self.train = [path for path, held in zip(paths, is_held) if not held]
        if not self.train or not self.held_out:
            raise Unfit(f"{', '.join(folders)}: of {len(paths)} recordings {len(self.held_out)} "
                        "are held out, but there must be some and others: record more, or give "
                        "another --held-out")
        random.Random(1).shuffle(self.held_out)
        with safetensors.safe_open(paths[0], "pt") as file:
            self.metadata = file.metadata() or {}
        if "boundaries" not in self.metadata:
            raise Unfit(f"{paths[0]} is no recording of `outrider record`")
        self.boundaries = [int(b) for b in self.metadata["boundaries"].split(",") if b]
        self.is_normed = self.metadata["normed"] == "true"

    def read(self, path, length, chance):
        """(tokens, features) of a piece of at most `length` tokens; chance None: the first ones."""
        with safetensors.safe_open(path, "pt") as file:
            for key in ("boundaries", "normed", "fingerprint"):
                if (file.metadata() or {}).get(key) == self.metadata[key]:
                    continue
                raise Unfit(f"{path} has other {key} than the recordings beside it")
            tokens, features = file.get_tensor("tokens"), file.get_slice("features")
            begin = chance.randint(0, max(0, len(tokens) - length)) if chance else 0
            tokens = tokens[begin:begin + length]
            return tokens.long(), features[begin:begin + len(tokens) - 1].float()

    def batch(self, paths, length, chance=None):
        pieces = [self.read(path, length, chance) for path in paths]
        n = max(len(tokens) for tokens, _ in pieces)
        if n < 3:
            raise Unfit(f"{paths[0]} and the texts beside it have fewer than 3 tokens")
        tokens = torch.zeros(len(pieces), n, dtype=torch.long)
        features = torch.zeros(len(pieces), n - 1, *pieces[0][1].shape[1:])
        for i, (ids, rows) in enumerate(pieces):
            tokens[i, :len(ids)] = ids
            features[i, :len(rows)] = rows
        return Batch(tokens, features, torch.tensor([len(ids) for ids, _ in pieces]))

    def batches(self, n_texts, length, seed, first):
        """Endless batches in an order that follows from the seed, from batch `first` on."""
        per_turn = max(1, len(self.train) // n_texts)
        index = first
        while True:
            order = self.train[:]
            random.Random(f"{seed} {index // per_turn}").shuffle(order)
            at = index % per_turn * n_texts
            yield self.batch(order[at:at + n_texts], length, random.Random(f"{seed} piece {index}"))
            index += 1

    def held_out_batches(self, n_texts, length, most):
        paths = self.held_out[:most]
        for at in range(0, len(paths), n_texts):
            yield self.batch(paths[at:at + n_texts], length)

    def counts(self, n_vocab):
        """How often the texts that are trained on have each id."""
        counts = torch.zeros(n_vocab, dtype=torch.long)
        for path in self.train:
            with safetensors.safe_open(path, "pt") as file:
                tokens = file.get_tensor("tokens").long()
            counts += torch.bincount(tokens, minlength=n_vocab)
        return counts
