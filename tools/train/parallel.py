"""Guesses that one pass of an ordinary model makes, in rows that it gets after a text's last token:
PaSS (Monea et al. 2023, arXiv 2311.13581), where these rows are embeddings that the target itself
learns to read and nothing else changes, and PARD (arXiv 2504.18583), a small model that learns to
read one mask token there.

Training takes some places of each text, of which each has rows of its own after it: these read the
text up to there and the rows before them of the same place."""
import shutil

import torch
from torch import nn

from nets import Folder, Model, causal
from recordings import Unfit

PLACES = 48  # of a text, at most


def outputs_at(model, tokens, places, last, extra):
    """Returns the rows that lm_head reads, of the token place + last of each place, and of the rows
    that are added after it: [texts][places][1 + extra rows][width]. extra: [rows][width],
    embeddings."""
    n, n_extra, n_places = tokens.shape[1], len(extra), len(places)
    device = tokens.device
    x = model.embed_tokens(tokens)
    added = extra.repeat(n_places, 1)[None].expand(len(tokens), -1, -1)
    ends = places + last
    positions = torch.cat([torch.arange(n, device=device),
                           (ends[:, None] + 1 + torch.arange(n_extra, device=device)).flatten()])
    mask = torch.zeros(len(positions), len(positions), dtype=torch.bool, device=device)
    mask[:n, :n] = causal(n, device)
    owner = torch.arange(n_places, device=device).repeat_interleave(n_extra)
    mask[n:, :n] = torch.arange(n, device=device)[None] <= ends[owner][:, None]
    mask[n:, n:] = torch.block_diag(*[causal(n_extra, device)] * n_places) if n_extra else False
    y = model(torch.cat([x, added], dim=1), positions, mask)
    return torch.cat([y[:, ends, None], y[:, n:].unflatten(1, (n_places, n_extra))], dim=2)


def places_of(batch, chance, last):
    """The places that a step looks at, ascending."""
    n = batch.tokens.shape[1] - 1 - last
    chosen = sorted(chance.sample(range(n), min(n, PLACES)))
    return torch.tensor(chosen, device=batch.tokens.device)


class Pass(nn.Module):
    """Embeddings [guesses][width]; the target stays as it is. Rows follow token i, so a guess knows
    as little of the token i + 1 as one of Medusa's."""

    def __init__(self, options, lender):
        super().__init__()
        self.ids, self.target = None, [Model(lender.folder).to(options.device).eval()]
        for value in self.target[0].parameters():
            value.requires_grad_(False)
        mean, deviation = lender.embedding.mean(0), lender.embedding.std(0)
        self.look_ahead = nn.Parameter(mean + deviation * torch.randn(options.guesses,
                                                                      lender.width))

    def guesses(self, lender, batch, normed, n_guesses, chance):
        model = self.target[0]
        places = places_of(batch, chance, 0)
        y = outputs_at(model, batch.tokens, places, 0, self.look_ahead[:n_guesses])
        return places, [model.logits(y[:, :, 1 + guess]) for guess in range(n_guesses)]

    def files(self, lender, recordings, dtype):
        config = {"model_type": "pass", "n_lookahead": len(self.look_ahead),
                  "hidden_size": lender.width,
                  "base_model_name_or_path": recordings.metadata["model"]}
        return config, {"look_ahead.weight": self.look_ahead.detach().to(dtype)}


class Pard(nn.Module):
    """A draft model that goes on learning, with a mask token in place of guesses that are not yet
    known."""

    def __init__(self, options, lender, mask_token):
        super().__init__()
        self.ids, self.folder = None, Folder(options.draft)
        self.register_buffer("mask_token", torch.tensor(mask_token))
        self.model = Model(self.folder)
        if self.model.embed_tokens.num_embeddings != lender.n_vocab:
            raise Unfit(f"{options.draft} has {self.model.embed_tokens.num_embeddings} tokens, but "
                        f"its target {lender.n_vocab}")

    def guesses(self, lender, batch, normed, n_guesses, chance):
        places = places_of(batch, chance, 1)
        masks = self.model.embed_tokens.weight[self.mask_token].expand(n_guesses - 1, -1)
        y = outputs_at(self.model, batch.tokens, places, 1, masks)
        return places, [self.model.logits(y[:, :, guess]) for guess in range(n_guesses)]

    def files(self, lender, recordings, dtype):
        config = dict(self.folder.config, pard_token=int(self.mask_token),
                      torch_dtype=str(dtype).rpartition(".")[2])
        return config, {Model.stored_name(name): value.detach().to(dtype)
                        for name, value in self.model.named_parameters()}

    def copy_rest(self, out):
        """Its tokenizer is that of the draft that it was."""
        for path in self.folder.path.iterdir():
            is_weight = path.suffix == ".safetensors" or path.name.endswith(".index.json")
            if path.is_file() and path.name != "config.json" and not is_weight:
                shutil.copy(path, out / path.name)


def make_pass(options, lender, recordings):
    return Pass(options, lender)


def make_pard(options, lender, recordings):
    """The mask token is the rarest one of the texts, if none is named."""
    if not options.draft:
        raise Unfit("--kind pard needs --draft, the folder of the model that it begins as")
    mask = options.mask_token
    if mask is None:
        mask = int(recordings.counts(lender.n_vocab).argmin())
    if not 0 <= mask < lender.n_vocab:
        raise Unfit(f"--mask-token {mask} is not in the vocabulary of {lender.n_vocab}")
    return Pard(options, lender, mask)
