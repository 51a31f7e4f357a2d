"""Parts of models as torch computes them: what heads borrow of a target, layers of a Llama or Qwen,
and a whole model, which PaSS reads and PARD trains."""
import json
import math
import pathlib

import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

from recordings import Unfit

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


class Folder:
    """A model's folder in the form of Hugging Face."""

    def __init__(self, name):
        self.path = pathlib.Path(name)
        config = self.path / "config.json"
        if not config.exists():
            raise Unfit(f"{name} has no config.json")
        self.config = json.loads(config.read_text(encoding="utf-8"))
        self.files = {}
        for path in sorted(self.path.glob("*.safetensors")):
            with safetensors.safe_open(path, "pt") as file:
                self.files.update({key: path for key in file.keys()})

    def tensor(self, name):
        if name not in self.files:
            raise Unfit(f"{self.path} lacks the tensor {name}")
        with safetensors.safe_open(self.files[name], "pt") as file:
            return file.get_tensor(name).float()

    def value(self, key, default=None):
        value = self.config.get(key, default)
        if value is None:
            raise Unfit(f"{self.path}/config.json lacks \"{key}\"")
        return value

    def rope_theta(self):
        nested = self.config.get("rope_parameters") or {}
        return float(self.config.get("rope_theta") or nested.get("rope_theta") or 10000.0)

    def shape(self):
        """The numbers of its layers."""
        n_heads, width = self.value("num_attention_heads"), self.value("hidden_size")
        return Shape(width, self.value("intermediate_size"), n_heads,
                     self.config.get("num_key_value_heads") or n_heads,
                     self.config.get("head_dim") or width // n_heads,
                     self.value("rms_norm_eps"), self.rope_theta())


class GgufFile(Folder):
    """A GGUF file as if it were a folder: all but its layers, which heads need not."""

    KEYS = {"hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
            "num_attention_heads": "attention.head_count",
            "num_key_value_heads": "attention.head_count_kv",
            "head_dim": "attention.key_length", "num_hidden_layers": "block_count",
            "rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base",
            "max_position_embeddings": "context_length"}
    NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
             "output_norm.weight": "model.norm.weight"}

    def __init__(self, name):
        try:
            import gguf
        except ImportError as error:
            raise Unfit(f"{name} is a GGUF file: `pip install gguf` lets it be read") from error
        self.path, self.dequantize = pathlib.Path(name), gguf.quants.dequantize
        reader = gguf.GGUFReader(name)
        kind = reader.fields["general.architecture"].contents()
        self.config = {"architectures": [f"{kind} of a GGUF file"]}
        for key, stored in self.KEYS.items():
            field = reader.fields.get(f"{kind}.{stored}")
            if field:
                self.config[key] = field.contents()
        self.files = {self.NAMES[tensor.name]: tensor for tensor in reader.tensors
                      if tensor.name in self.NAMES}

    def tensor(self, name):
        if name not in self.files:
            raise Unfit(f"{self.path} lacks the tensor {name}")
        tensor = self.files[name]
        return torch.tensor(self.dequantize(tensor.data, tensor.tensor_type))


def open_model(name):
    return GgufFile(name) if name.endswith(".gguf") else Folder(name)


class Shape:
    def __init__(self, width, ffn, n_heads, n_kv_heads, head_width, eps, theta):
        self.width, self.ffn, self.n_heads, self.n_kv_heads = width, ffn, n_heads, n_kv_heads
        self.head_width, self.eps, self.theta = head_width, eps, theta


class Lender(nn.Module):
    """Lends heads the embedding, final norm and lm_head of a target, which stay as they are."""

    def __init__(self, folder):
        super().__init__()
        embedding = folder.tensor("model.embed_tokens.weight")
        is_tied = folder.config.get("tie_word_embeddings") or "lm_head.weight" not in folder.files
        head = embedding if is_tied else folder.tensor("lm_head.weight")
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("lm_head", head, persistent=False)
        self.register_buffer("norm", folder.tensor("model.norm.weight"), persistent=False)
        self.folder, self.shape = folder, folder.shape()
        self.n_vocab, self.width = embedding.shape

    def normed(self, recordings, batch):
        """[texts][n - 1][width]: what lm_head reads."""
        if recordings.is_normed:
            return batch.features[..., -1, :]
        if recordings.boundaries and recordings.boundaries[-1] == self.folder.value(
                "num_hidden_layers"):
            return rms_norm(batch.features[..., -1, :], self.norm, self.shape.eps)
        raise Unfit("the recordings hold neither the last layer's output nor the normed one: "
                    "record with --normed, or with the number of layers as last boundary")


def rms_norm(x, weight, eps):
    return functional.rms_norm(x.float(), (x.shape[-1],), weight, eps)


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


class Rope:
    """cos and sin of positions, [..., 1, head_width], to turn halves of heads."""

    def __init__(self, shape, positions):
        half = shape.head_width // 2
        exponents = torch.arange(half, device=positions.device, dtype=torch.float) / half
        angles = positions[..., None].float() * shape.theta ** -exponents
        self.cos, self.sin = angles.cos()[..., None, :], angles.sin()[..., None, :]

    def turn(self, x):
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * self.cos - right * self.sin, right * self.cos + left * self.sin],
                         dim=-1)


class Attention(nn.Module):
    """q, k and v of rows; `n_in` is the width that they read."""

    def __init__(self, shape, n_in, has_bias=False, has_norms=False):
        super().__init__()
        self.shape = shape
        n_q, n_kv = shape.n_heads * shape.head_width, shape.n_kv_heads * shape.head_width
        self.q_proj = nn.Linear(n_in, n_q, bias=has_bias)
        self.k_proj = nn.Linear(n_in, n_kv, bias=has_bias)
        self.v_proj = nn.Linear(n_in, n_kv, bias=has_bias)
        self.o_proj = nn.Linear(n_q, shape.width, bias=False)
        if has_norms:
            self.q_norm = Norm(shape.head_width, shape.eps)
            self.k_norm = Norm(shape.head_width, shape.eps)
        self.has_norms = has_norms

    def rows(self, x, rope):
        """q, k, v as [texts][heads][rows][head_width], k and v repeated for the heads of q."""
        split = (*x.shape[:-1], -1, self.shape.head_width)
        q, k = self.q_proj(x).view(split), self.k_proj(x).view(split)
        v = self.v_proj(x).view(split)
        if self.has_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        group = self.shape.n_heads // self.shape.n_kv_heads
        k, v = rope.turn(k), v
        k, v = (part.repeat_interleave(group, dim=-2) for part in (k, v))
        return tuple(part.transpose(1, 2) for part in (rope.turn(q), k, v))

    def join(self, values):
        return self.o_proj(values.transpose(1, 2).flatten(2))


class Ffn(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.width, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape, has_bias, has_norms):
        super().__init__()
        self.input_layernorm = Norm(shape.width, shape.eps)
        self.self_attn = Attention(shape, shape.width, has_bias, has_norms)
        self.post_attention_layernorm = Norm(shape.width, shape.eps)
        self.mlp = Ffn(shape)

    def forward(self, x, rope, mask):
        q, k, v = self.self_attn.rows(self.input_layernorm(x), rope)
        x = x + self.self_attn.join(functional.scaled_dot_product_attention(q, k, v, mask))
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """A whole model of the families whose layers these are, with its stored weights."""

    def __init__(self, folder):
        super().__init__()
        names = folder.config.get("architectures") or ["none"]
        if names[0] not in ARCHITECTURES:
            raise Unfit(f"{folder.path} is a {names[0]}; this kind of head needs one of "
                        f"{', '.join(ARCHITECTURES)}")
        scaling = folder.config.get("rope_scaling") or folder.config.get("rope_parameters") or {}
        if scaling.get("rope_type", "default") != "default":
            raise Unfit(f"{folder.path}: scaled rope ({scaling['rope_type']}) is not computed here")
        self.folder, self.shape = folder, folder.shape()
        has_bias = names[0] == "Qwen2ForCausalLM"
        has_norms = names[0] == "Qwen3ForCausalLM"
        n_vocab = folder.value("vocab_size")
        self.embed_tokens = nn.Embedding(n_vocab, self.shape.width)
        self.layers = nn.ModuleList(Layer(self.shape, has_bias, has_norms)
                                    for _ in range(folder.value("num_hidden_layers")))
        self.norm = Norm(self.shape.width, self.shape.eps)
        self.lm_head = None
        if not folder.config.get("tie_word_embeddings") and "lm_head.weight" in folder.files:
            self.lm_head = nn.Linear(self.shape.width, n_vocab, bias=False)
        with torch.no_grad():
            for name, value in self.named_parameters():
                value.copy_(folder.tensor(self.stored_name(name)))

    @staticmethod
    def stored_name(name):
        return name if name.startswith("lm_head.") else f"model.{name}"

    def forward(self, x, positions, mask):
        """Returns the rows that lm_head reads. x: an embedding for each row; mask: [rows][rows]
        bool, the rows that a row reads."""
        rope = Rope(self.shape, positions)
        for layer in self.layers:
            x = layer(x, rope, mask)
        return self.norm(x)

    def logits(self, x):
        return functional.linear(x, self.lm_head.weight if self.lm_head else
                                 self.embed_tokens.weight)


def causal(n, device):
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def small(linear, share):
    """Draws a matrix anew with a share of the usual deviation."""
    nn.init.normal_(linear.weight, std=share / math.sqrt(linear.weight.shape[1]))
