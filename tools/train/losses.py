"""The distance of a head's q from the target's p, and what both agree on."""
import torch

LOSSES = ("hybrid", "acceptance", "kl")


def target_rows(lender, normed, ids, temperature):
    """p [texts][n - 1][columns] after each token, at a temperature; less than 1 together where the
    head's vocabulary is reduced."""
    with torch.no_grad():
        p = torch.softmax(normed @ lender.lm_head.T / temperature, dim=-1)
        return p if ids is None else p[..., ids]


def acceptance_of(p, q):
    """The chance that a guess drawn from q is kept: sum min(p, q)."""
    return torch.minimum(p, q).sum(-1)


def loss_of(kind, p, logits, has, temperature):
    """The mean over the rows that have a token there, and their mean acceptance.

    acceptance  -log sum min(p, q)
    kl          KL(p | q), of p within the head's vocabulary, but for the entropy of p
    hybrid      w KL + (1 - w) (1 - sum min(p, q)), w = exp(-3 acceptance): far off it learns by KL,
                near by what counts (LK losses, arXiv 2602.23881)"""
    log_q = torch.log_softmax(logits / temperature, dim=-1)
    kept = acceptance_of(p, log_q.exp())
    n = has.sum().clamp(min=1)
    mean = (kept * has).sum() / n
    if kind == "acceptance":
        return (-torch.log(kept.clamp(min=1e-4)) * has).sum() / n, mean.detach()
    kl = -(p * log_q).sum(-1) / p.sum(-1).clamp(min=1e-9)
    kl = (kl * has).sum() / n
    if kind == "kl":
        return kl, mean.detach()
    weight = torch.exp(-3 * mean.detach())
    return weight * kl + (1 - weight) * (1 - mean), mean.detach()
