"""Heads that guess several places from g(i), the feature that lm_head reads: Medusa's, a residual
block for each place, and those of blockwise parallel decoding (Stern et al. 2018), which share a
hidden layer. Both have the target's lm_head, unless Medusa's are asked to have their own."""
import torch
from torch import nn
from torch.nn import functional


class Medusa(nn.Module):
    """A block of a place adds silu(W x + b) to its x; each begins as nothing."""

    def __init__(self, options, lender):
        super().__init__()
        self.ids, self.n_blocks = None, options.layers
        self.linears = nn.ModuleList(nn.Linear(lender.width, lender.width)
                                     for _ in range(options.guesses * options.layers))
        for linear in self.linears:
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.heads = None
        if options.lm_head == "own":
            self.heads = nn.ParameterList(lender.lm_head.clone() for _ in range(options.guesses))

    def guesses(self, lender, batch, normed, n_guesses, chance):
        out = []
        for guess in range(n_guesses):
            x = normed
            for linear in self.linears[guess * self.n_blocks:][:self.n_blocks]:
                x = x + functional.silu(linear(x))
            out.append(functional.linear(x, self.heads[guess] if self.heads else lender.lm_head))
        return torch.arange(normed.shape[1], device=normed.device), out

    def files(self, lender, recordings, dtype):
        n_places = len(self.linears) // self.n_blocks
        config = {"model_type": "medusa", "medusa_num_heads": n_places,
                  "medusa_num_layers": self.n_blocks,
                  "base_model_name_or_path": recordings.metadata["model"]}
        tensors = {}
        for i, linear in enumerate(self.linears):
            name = f"{i // self.n_blocks}.{i % self.n_blocks}.linear"
            tensors[f"{name}.weight"] = linear.weight.detach().to(dtype)
            tensors[f"{name}.bias"] = linear.bias.detach().to(dtype)
        for place, head in enumerate(self.heads or []):
            tensors[f"{place}.{self.n_blocks}.weight"] = head.detach().to(dtype)
        return config, tensors


class Blockwise(nn.Module):
    """Place j adds its rows of output relu(hidden g + b) + c to g."""

    def __init__(self, options, lender):
        super().__init__()
        self.ids, self.n_places, width = None, options.guesses, lender.width
        self.hidden = nn.Linear(width, options.ffn or self.n_places * width)
        self.output = nn.Linear(self.hidden.out_features, self.n_places * width)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def guesses(self, lender, batch, normed, n_guesses, chance):
        added = self.output(functional.relu(self.hidden(normed)))
        added = added.unflatten(-1, (self.n_places, -1))
        out = [functional.linear(normed + added[..., guess, :], lender.lm_head)
               for guess in range(n_guesses)]
        return torch.arange(normed.shape[1], device=normed.device), out

    def files(self, lender, recordings, dtype):
        config = {"model_type": "blockwise", "block_size": self.n_places + 1,
                  "base_model_name_or_path": recordings.metadata["model"]}
        return config, {name: value.detach().to(dtype) for name, value in self.named_parameters()}


def make_medusa(options, lender, recordings):
    return Medusa(options, lender)


def make_blockwise(options, lender, recordings):
    return Blockwise(options, lender)
