#!/usr/bin/env python3
"""Makes tests/golden/block_heads: one small random block drafter per layout and property, with the
logits that the format's own code computes for it.

    python tests/oracle/block_head_golden.py OUT MODELS          make those that are not there
    python tests/oracle/block_head_golden.py OUT MODELS --check  recompute and compare

Needs what head_golden.py needs. Drafters in the layout of speculators are computed by its
DFlashDraftModel and DSparkDraftModel, whose training masks are those of one block for each anchor.
The others follow z-lab's dflash/model.py, with the chain of DeepSpec's dspark, over the norms,
rotations and MLPs of transformers' Qwen3. MODELS is tests/golden/models, of which some are the
targets that lend an embedding or lm_head.

Per drafter: config.json and model.safetensors as its authors write them; features.bf16 =
[rows][A Ht]; golden.json = {"versions", "target", "tokens": of the rows, "starts", "block": rows of
one, "columns", "has_chain", "tolerance_rms"}; logits.f32 = float32 [starts][block][columns] in fp32
from the stored weights. For a start i the context is rows 0 .. i - 1, and the block is tokens[i]
and masks. With a chain the logits of row j have its bias for tokens[i + j] as the guess before. For
each property the script also computes what a program without it would get, and refuses to write a
drafter where that differs less than ten times as much as a bf16 run does, which is
tolerance_rms."""
import copy
import importlib.metadata
import json
import pathlib
import shutil
import sys

import numpy
import safetensors.torch
import torch
import transformers
from transformers.models.qwen3 import modeling_qwen3

from head_golden import VOCAB, draft_ids, draw, generator_of, lent, random_tensor, rms
from speculators.models.dflash.config import DFlashSpeculatorConfig
from speculators.models.dflash.core import DFlashDraftModel
from speculators.models.dspark.config import DSparkSpeculatorConfig
from speculators.models.dspark.core import DSparkDraftModel

ROWS, STARTS, MASK = 32, [0, 5, 20], 11


def drafter(name, kind, *, block, layer=None, target=None, columns=None, features=3, width=64,
            flags=None, without=None, own=(), keys=None, dtype="bfloat16", rank=0):
    """A row of DRAFTERS; names as in head() of head_golden.py.

    kind      "flat" or "speculators"
    block     rows of one
    flags     causal: of all layers; scale, softcap of logits; confidence
    without   flags of a program that ignores the property, or {"windows": False}, {"rank": 0}
    rank      of the chain; 0: none, which is DFlash
    """
    return dict(name=name, kind=kind, block=block, layer=layer or {}, target=target,
                columns=columns, features=features, width=width, flags=flags or {},
                without=without or {}, own=own, keys=keys or {}, dtype=dtype, rank=rank)


BOTH = ("embed_tokens", "lm_head")
WINDOWS = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}
DRAFTERS = [
    drafter("dflash_flat", "flat", block=8, target="llama_untied",
            layer={"num_hidden_layers": 2, "rope_theta": 300.0}, without={"causal": True},
            keys={"dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 1, 2]}}),
    drafter("dflash_window", "flat", block=6, own=BOTH, width=96, features=2,
            layer={"num_hidden_layers": 3, "attention_bias": True, **WINDOWS,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
            flags={"scale": 0.5, "softcap": 4.0}, without={"windows": False},
            keys={"target_hidden_size": 96,
                  "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [1, 3],
                                    "output_multiplier": 0.5, "final_logit_softcapping": 4.0}}),
    drafter("dflash_band", "flat", block=8, target="llama_tied", flags={"causal": False},
            layer={**WINDOWS, "layer_types": ["sliding_attention"]}, without={"causal": None},
            keys={"is_causal": False,
                  "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 1, 2]}}),
    drafter("dflash_speculators", "speculators", block=6, target="llama_untied", columns=128,
            own=("lm_head",), dtype="float16", layer={"num_hidden_layers": 2},
            without={"causal": True}, keys={"aux_hidden_state_layer_ids": [1, 2, 3]}),
    drafter("dspark_flat", "flat", block=7, own=BOTH, rank=32, flags={"confidence": True},
            layer={"num_hidden_layers": 2}, without={"rank": 0},
            keys={"target_layer_ids": [0, 2, 4], "mask_token_id": MASK, "markov_rank": 32,
                  "markov_head_type": "vanilla", "enable_confidence_head": True,
                  "confidence_head_with_markov": True}),
    drafter("dspark_speculators", "speculators", block=5, target="llama_tied", columns=96, rank=16,
            own=("lm_head",), flags={"confidence": True}, without={"rank": 0},
            keys={"aux_hidden_state_layer_ids": [1, 2, 4]}),
]


def layer_config(case):
    values = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
                  max_position_embeddings=256, rope_theta=1e4)
    values.update(case["layer"])
    values["rope_parameters"] = {"rope_type": "default", "rope_theta": values.pop("rope_theta")}
    config = transformers.Qwen3Config(**values)
    config._attn_implementation = "eager"
    return config


# ---- flat, re-typed ----

class Attention(torch.nn.Module):
    """Queries are the block's; keys and values those of the context and then the block's."""

    def __init__(self, config):
        super().__init__()
        self.head_dim = config.head_dim
        self.groups = config.num_attention_heads // config.num_key_value_heads
        q_width = config.num_attention_heads * config.head_dim
        kv_width = config.num_key_value_heads * config.head_dim
        dim, bias = config.hidden_size, config.attention_bias
        self.q_proj = torch.nn.Linear(dim, q_width, bias=bias)
        self.k_proj = torch.nn.Linear(dim, kv_width, bias=bias)
        self.v_proj = torch.nn.Linear(dim, kv_width, bias=bias)
        self.o_proj = torch.nn.Linear(q_width, dim, bias=bias)
        self.q_norm = modeling_qwen3.Qwen3RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = modeling_qwen3.Qwen3RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(self, x, context, angles, visible):
        n = x.shape[0]
        keys = torch.cat([self.k_proj(context), self.k_proj(x)]).view(-1, 1, *self.kv_shape())
        values = torch.cat([self.v_proj(context), self.v_proj(x)]).view(-1, 1, *self.kv_shape())
        q = self.q_norm(self.q_proj(x).view(n, -1, self.head_dim)).transpose(0, 1)
        k = self.k_norm(keys[:, 0]).transpose(0, 1)
        v = values[:, 0].transpose(0, 1)
        cos, sin = angles
        rotate = modeling_qwen3.rotate_half
        q = q * cos[-n:] + rotate(q) * sin[-n:]
        k = k * cos + rotate(k) * sin
        k, v = (t.repeat_interleave(self.groups, 0) for t in (k, v))
        scores = (q @ k.transpose(1, 2)) * self.head_dim ** -0.5
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores.float(), -1).to(q.dtype)
        return self.o_proj((weights @ v).transpose(0, 1).reshape(n, -1))

    def kv_shape(self):
        return self.k_proj.out_features // self.head_dim, self.head_dim


class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        norm = modeling_qwen3.Qwen3RMSNorm
        self.self_attn = Attention(config)
        self.mlp = modeling_qwen3.Qwen3MLP(config)
        self.input_layernorm = norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, context, angles, visible):
        x = x + self.self_attn(self.input_layernorm(x), context, angles, visible)
        return x + self.mlp(self.post_attention_layernorm(x))


class Chain(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.markov_w1 = torch.nn.Embedding(VOCAB, rank)
        self.markov_w2 = torch.nn.Linear(rank, VOCAB, bias=False)


class Confidence(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = torch.nn.Linear(width, 1)


class Flat(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case, self.config = case, layer_config(case)
        norm = modeling_qwen3.Qwen3RMSNorm
        self.embed_tokens = torch.nn.Embedding(VOCAB, 64)
        self.lm_head = torch.nn.Linear(64, VOCAB, bias=False)
        self.fc = torch.nn.Linear(case["features"] * case["width"], 64, bias=False)
        self.hidden_norm, self.norm = norm(64, 1e-5), norm(64, 1e-5)
        self.layers = torch.nn.ModuleList(
            Layer(self.config) for _ in range(self.config.num_hidden_layers))
        self.rotary = modeling_qwen3.Qwen3RotaryEmbedding(self.config)
        if case["rank"]:
            self.markov_head = Chain(case["rank"])
        if case["flags"].get("confidence"):
            self.confidence_head = Confidence(64 + case["rank"])

    def visible(self, kind, n_context, flags):
        n = self.case["block"]
        query = n_context + torch.arange(n)[:, None]
        key = torch.arange(n_context + n)[None]
        is_sliding = kind == "sliding_attention" and flags.get("windows", True)
        causal = flags.get("causal")
        seen = torch.ones(n, n_context + n, dtype=torch.bool)
        if is_sliding if causal is None else causal:
            seen &= key <= query
        if is_sliding:
            seen &= (query - key).abs() < self.config.sliding_window
        return seen

    def logits(self, features, tokens, start, flags):
        n = self.case["block"]
        ids = torch.tensor([tokens[start]] + [MASK] * (n - 1))
        context = self.hidden_norm(self.fc(features[:start]))
        x = self.embed_tokens(ids)
        cos, sin = self.rotary(x[None], torch.arange(start + n)[None])
        types = self.config.layer_types or ["full_attention"] * len(self.layers)
        for layer, kind in zip(self.layers, types):
            x = layer(x, context, (cos[0], sin[0]), self.visible(kind, start, flags))
        logits = self.lm_head(self.norm(x)).float()
        if "scale" in flags:
            logits = logits * flags["scale"]
        if "softcap" in flags:
            logits = torch.tanh(logits / flags["softcap"]) * flags["softcap"]
        if self.case["rank"] and flags.get("rank", 1):
            before = torch.tensor(tokens[start:start + n])
            logits = logits + self.markov_head.markov_w2(self.markov_head.markov_w1(before)).float()
        return logits


# ---- speculators ----

def wheel_config(case):
    more = {"markov_rank": case["rank"]} if case["rank"] else {}
    kind = DSparkSpeculatorConfig if case["rank"] else DFlashSpeculatorConfig
    return kind(
        transformer_layer_config=layer_config(case), draft_vocab_size=case["columns"] or VOCAB,
        block_size=case["block"], mask_token_id=MASK, **more, **case["keys"])


def wheel_logits(case, net, features, tokens, start, flags):
    """One block for the one anchor that the loss mask allows."""
    n, ids = case["block"], torch.tensor([tokens])
    mask = torch.zeros(1, len(tokens), dtype=torch.bool)
    mask[0, start] = True
    if flags.get("causal"):
        attend, rule = net._create_attention_mask, {"sliding_window": len(tokens)}
        net._create_attention_mask = lambda **args: attend(**{**args, **rule})
    _, logits, *_ = net._backbone_forward(
        features[None], ids, mask, torch.zeros(1, len(tokens), 64, dtype=features.dtype),
        torch.zeros(1, len(tokens), dtype=torch.long), max_anchors=1)
    logits = logits[0].float()
    if case["rank"] and flags.get("rank", 1):
        before = ids[:, start:start + n]
        bias = net.markov_head.block_bias(prev_token_ids=before, hidden_states=None)
        logits = logits + bias[0].float()
    return logits


# ---- one drafter ----

def build(case, models):
    """The net with its stored weights; {name: tensor} of those that the files have."""
    kind = getattr(torch, case["dtype"])
    wheel = DSparkDraftModel if case["rank"] else DFlashDraftModel
    net = Flat(case) if case["kind"] == "flat" else wheel(wheel_config(case))
    from_target, ids, own, values = lent(case, models), draft_ids(case), {}, {}
    generator = generator_of(case)
    for name, value in sorted(net.state_dict().items()):
        part = name.split(".")[0]
        if name in ("t2d", "d2t") or part.startswith(("verifier", "rotary")):
            continue
        shape = value.shape
        random = random_tensor(name, shape, generator).to(kind)
        if "markov_w2" in name:
            random = draw(shape, generator, 2.0 / shape[-1] ** 0.5).to(kind)
        if "markov_w1" in name:
            random = draw(shape, generator, 1.0).to(kind)
        if part in from_target and part not in case["own"]:
            full = from_target[part]
            values[name] = full[torch.from_numpy(ids)] if part == "lm_head" else full
        else:
            values[name] = own[name] = random
    net.load_state_dict({name: value.float() for name, value in values.items()}, strict=False)
    return net.eval(), own


def inputs_of(case):
    generator = generator_of(case)
    width = case["features"] * case["width"]
    features = (draw((width,), generator, 0.5) + draw((ROWS, width), generator, 1.5)).bfloat16()
    tokens = numpy.random.default_rng(len(case["name"])).integers(12, VOCAB, ROWS).tolist()
    return features, tokens


def run(case, net, dtype, flags):
    features, tokens = inputs_of(case)
    net, features = copy.deepcopy(net).to(dtype), features.to(dtype)
    with torch.no_grad():
        if case["kind"] == "flat":
            out = [net.logits(features, tokens, start, flags) for start in STARTS]
        else:
            out = [wheel_logits(case, net, features, tokens, start, flags) for start in STARTS]
    return torch.stack(out)


def config_of(case):
    if case["kind"] == "speculators":
        config = json.loads(wheel_config(case).to_json_string())
        config["transformer_layer_config"] = layer_config(case).to_diff_dict()
        algorithm = config["speculators_model_type"]
        config["speculators_config"] = {"algorithm": algorithm, "verifier": {
            "name_or_path": "random", "architectures": ["LlamaForCausalLM"]}}
        return config
    layer = {key: value for key, value in layer_config(case).to_dict().items()
             if not key.startswith("_")}
    rope = layer.pop("rope_parameters")
    layer["rope_theta"] = rope["rope_theta"]
    kind = "Qwen3DSparkModel" if case["rank"] else "DFlashDraftModel"
    return dict(layer, architectures=[kind], block_size=case["block"], num_target_layers=6,
                **case["keys"])


def save(case, own, folder):
    tensors = {name: value.contiguous() for name, value in own.items()}
    if case["columns"]:
        ids = torch.from_numpy(draft_ids(case)).long()
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, True)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(config_of(case), indent=1, sort_keys=True)
    (folder / "config.json").write_text(text + "\n")


def make(case, out, models):
    folder = out / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    net, own = build(case, models)
    logits = run(case, net, torch.float32, case["flags"])
    noise = rms(run(case, net, torch.bfloat16, case["flags"]), logits)
    other = run(case, net, torch.float32, dict(case["flags"], **case["without"]))
    effect = rms(other, logits)
    line = f"{case['name']:20} logits {logits.std():.2f}  bf16 {noise:.4f}  without {effect:.3f}"
    if effect < 10 * noise:
        sys.exit(line + ": this drafter cannot tell")
    print(line)
    save(case, own, folder)
    features, tokens = inputs_of(case)
    features.view(torch.int16).numpy().tofile(folder / "features.bf16")
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__,
                "speculators": importlib.metadata.version("speculators")}
    facts = {"versions": versions, "target": case["target"], "tokens": tokens, "starts": STARTS,
             "block": case["block"], "columns": case["columns"] or VOCAB,
             "has_chain": case["rank"] > 0, "tolerance_rms": round(noise, 5)}
    (folder / "golden.json").write_text(json.dumps(facts) + "\n")


def check(case, out, models):
    stored = numpy.fromfile(out / case["name"] / "logits.f32", "<f4")
    again = run(case, build(case, models)[0], torch.float32, case["flags"]).numpy().ravel()
    worst = float(numpy.abs(again - stored).max())
    print(f"{case['name']:20} largest difference {worst:.2e}")
    return worst < 1e-3


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    out, models = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if len(sys.argv) == 4:
        sys.exit(0 if all([check(case, out, models) for case in DRAFTERS]) else "some differ")
    for case in DRAFTERS:
        if not (out / case["name"]).exists():
            make(case, out, models)


if __name__ == "__main__":
    main()
