"""EAGLE-3: one layer over the target's features and the embedding of the next token, trained as it
is served (training-time test): from its second guess on a row reads the head's own output."""
import torch
from torch import nn
from torch.nn import functional

from nets import Attention, Ffn, Folder, Norm, Rope, Shape, causal
from recordings import Unfit


class MidLayer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_layernorm = Norm(shape.width, shape.eps)
        self.hidden_norm = Norm(shape.width, shape.eps)
        self.self_attn = Attention(shape, 2 * shape.width)
        self.post_attention_layernorm = Norm(shape.width, shape.eps)
        self.mlp = Ffn(shape)


class Eagle3(nn.Module):
    """ids: those of its reduced vocabulary, ascending, or None. It borrows the target's embedding,
    and lm_head, too, unless `owns_lm_head`."""

    def __init__(self, lender, n_columns, ids, ffn, owns_lm_head):
        super().__init__()
        own = lender.shape
        shape = Shape(own.width, ffn or own.ffn, own.n_heads, own.n_kv_heads, own.head_width,
                      own.eps, own.theta)
        self.shape, self.n_features = shape, n_columns
        self.register_buffer("ids", ids)  # train.pt keeps it, whatever is recorded later
        self.fc = nn.Linear(n_columns * shape.width, shape.width, bias=False)
        self.midlayer = MidLayer(shape)
        self.norm = Norm(shape.width, shape.eps)
        self.lm_head = None
        if owns_lm_head:
            rows = self.rows(lender)
            self.lm_head = nn.Linear(shape.width, len(rows), bias=False)
            self.lm_head.weight.data.copy_(rows)
        self.norm.weight.data.copy_(lender.norm)

    def rows(self, lender):
        """Rows of the target's lm_head, one for each id of the head's vocabulary."""
        return lender.lm_head if self.ids is None else lender.lm_head[self.ids]

    def guesses(self, lender, batch, normed, n_guesses, chance):
        """(rows, [logits [texts][rows][columns]]) of guesses 0 .. n_guesses - 1 at all rows."""
        n = batch.features.shape[1]
        rows = torch.arange(n, device=batch.tokens.device)
        wish = batch.features[:, :, :self.n_features].flatten(2)
        feature, layer, attention = self.fc(wish), self.midlayer, self.midlayer.self_attn
        mask = causal(n, rows.device)
        out, keys, values = [], [], []
        weight = self.lm_head.weight if self.lm_head else self.rows(lender)
        for guess in range(n_guesses):
            tokens = batch.shifted(1 + guess)[:, :n]
            embedding = layer.input_layernorm(lender.embedding[tokens])
            joined = torch.cat([embedding, layer.hidden_norm(feature)], dim=-1)
            q, k, v = attention.rows(joined, Rope(self.shape, rows + guess))
            keys.append(k)
            values.append(v)
            y = feature + attention.join(self.attend(q, keys, values, mask))
            feature = y + layer.mlp(layer.post_attention_layernorm(y))
            out.append(functional.linear(self.norm(feature), weight))
        return rows, out

    def attend(self, q, keys, values, mask):
        """Row i reads the rows 0 .. i of guess 0, which have the target's features, and its own
        rows of later guesses: no other row's, because these are overwritten while serving."""
        scale = q.shape[-1] ** -0.5
        if len(keys) == 1:
            return functional.scaled_dot_product_attention(q, keys[0], values[0], mask)
        scores = q @ keys[0].transpose(-1, -2) * scale
        scores = scores.masked_fill(~mask, float("-inf"))
        own = [(q * k).sum(-1, keepdim=True) * scale for k in keys[1:]]
        weights = torch.cat([scores, *own], dim=-1).softmax(-1)
        n = mask.shape[0]
        y = weights[..., :n] @ values[0]
        for i, v in enumerate(values[1:]):
            y = y + weights[..., n + i:n + i + 1] * v
        return y

    def files(self, lender, recordings, dtype):
        """(config.json, {name: tensor}) in the original layout of EAGLE-3."""
        boundaries = recordings.boundaries[:self.n_features]
        shape, name = self.shape, str(dtype).rpartition(".")[2]
        config = {
            "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
            "hidden_size": shape.width, "intermediate_size": shape.ffn,
            "num_attention_heads": shape.n_heads, "num_key_value_heads": shape.n_kv_heads,
            "head_dim": shape.head_width, "num_hidden_layers": 1, "rms_norm_eps": shape.eps,
            "hidden_act": "silu", "rope_theta": shape.theta,
            "max_position_embeddings": lender.folder.value("max_position_embeddings"),
            "tie_word_embeddings": False, "vocab_size": lender.n_vocab,
            "draft_vocab_size": lender.n_vocab if self.ids is None else len(self.ids),
            "target_hidden_size": lender.width, "norm_before_residual": False,
            "torch_dtype": name, "eagle_aux_hidden_state_layer_ids": boundaries,
        }
        tensors = {key: value.detach().to(dtype) for key, value in self.named_parameters()}
        if self.ids is not None:
            tensors["d2t"] = self.ids - torch.arange(len(self.ids), device=self.ids.device)
        return config, tensors


def make(options, lender, recordings):
    n_columns = len(recordings.boundaries)
    if n_columns == 0:
        raise Unfit("the recordings have no boundaries, which EAGLE-3 reads")
    if options.begin:
        return begun(Folder(options.begin), lender, recordings)
    ids = chosen_ids(options.columns, recordings, lender.n_vocab)
    owns = options.lm_head == "own" or (options.lm_head == "auto" and ids is not None)
    return Eagle3(lender, n_columns, ids, options.ffn, owns)


def begun(folder, lender, recordings):
    """The head of a folder in the original layout, which goes on learning."""
    boundaries = folder.value("eagle_aux_hidden_state_layer_ids")
    if boundaries != recordings.boundaries:
        raise Unfit(f"{folder.path} reads the boundaries {boundaries}, but those of the recordings "
                    f"are {recordings.boundaries}")
    if folder.value("norm_before_residual"):
        raise Unfit(f"{folder.path}: \"norm_before_residual\" is true, which is not trained here")
    ids = None
    if "d2t" in folder.files:
        ids = folder.tensor("d2t").long()
        ids = ids + torch.arange(len(ids))
    net = Eagle3(lender, len(boundaries), ids, folder.value("intermediate_size"),
                 "lm_head.weight" in folder.files)
    with torch.no_grad():
        for name, value in net.named_parameters():
            stored = folder.tensor(name)
            if stored.shape != value.shape:
                raise Unfit(f"{folder.path}: {name} is {list(stored.shape)}, but for this target "
                            f"it would be {list(value.shape)}")
            value.copy_(stored)
    return net


def chosen_ids(n_columns, recordings, n_vocab):
    """The ids that are most frequent in the texts, ascending; None: all."""
    if not n_columns or n_columns >= n_vocab:
        return None
    counts = recordings.counts(n_vocab)
    best = torch.argsort(counts, descending=True, stable=True)[:n_columns]
    share = counts[best].sum().item() / max(1, counts.sum().item())
    print(f"vocabulary: {n_columns} of {n_vocab} ids, {share:.1%} of the texts' tokens", flush=True)
    return best.sort().values
