#!/usr/bin/env python3
"""Makes tests/golden/heads: one small random head per format and property, with the logits that the
format's own code computes for it.

    python tests/oracle/head_golden.py OUT MODELS          make those that are not there
    python tests/oracle/head_golden.py OUT MODELS --check  recompute and compare

Needs torch, transformers 5 and speculators (pip install --no-deps speculators is enough: modules of
its trainer that are missing are replaced by empty ones). EAGLE-3 heads are computed by speculators'
Eagle3DraftModel, whose training-time test feeds each row its own output. EAGLE-1 heads follow
EAGLE's cnets1.py and MTP layers MiMo's modeling_mimo.py, over the layers of transformers. MODELS is
tests/golden/models, of which some are the targets that lend an embedding or lm_head.

Per head: config.json and model.safetensors as its authors write them; features.bf16 = [rows][A Ht];
golden.json = {"versions", "target", "tokens": of the rows, "starts", "steps", "columns",
"tolerance_rms"}; of a model with an MTP layer also model_logits.f32, those of the model after the
last token, and "model_tolerance_rms"; logits.f32 = float32 [starts][steps][columns] in fp32 from
the stored weights. For a start i, step 0 is the row i after rows 0 .. i - 1, and step s > 0 is a
further row at position i + s with tokens[i + s] and, in place of features, the head's output of
step s - 1. For each property the script also computes what a program without it would get, and
refuses to write a head where that differs less than ten times as much as a bf16 run does, which is
tolerance_rms. MTP layers zero the embedding at position 0, as vLLM's mimo_mtp.py does."""
import copy
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import pathlib
import shutil
import sys
import types

import numpy
import safetensors.torch
import torch
import transformers
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2


class Missing(types.ModuleType):
    """A module of speculators' trainer, of which nothing is called here."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class MissingFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    NAMES = {"openai", "hs_connectors", "datasets", "loguru", "httpx", "pydantic_settings",
             "aiohttp", "compressed_tensors", "typer", "rich"}

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Missing(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(MissingFinder())
from speculators.models.eagle3.config import Eagle3SpeculatorConfig  # noqa: E402
from speculators.models.eagle3.core import Eagle3DraftModel  # noqa: E402

VOCAB, ROWS, STEPS, STARTS = 320, 24, 4, [0, 6, 17]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}


def head(name, kind, *, layer=None, target=None, columns=None, features=3, width=64, flags=None,
         without=None, names="midlayer.", own=(), keys=None, dtype="bfloat16", mask=0):
    """A row of HEADS.

    name      of its folder
    kind      "flat" and "speculators": EAGLE-3 in either layout; "eagle1"; "mimo"
    layer     values of the layers' config that differ from those of layer_config
    target    the golden model that lends what is not in `own`
    columns   ids of the reduced vocabulary; None: all
    features  A; width: Ht
    flags     norm_before_residual, norm_before_fc, fc_norm, norm_output, fc_bias, logit_scale,
              single
    without   for each property a flag of a program that ignores it, or {"rope_theta": ...} of its
              layers
    names     of the first layer's tensors
    own       of embed_tokens and lm_head, those that the head has
    keys      further keys of config.json
    mask      the last rows that have mask_hidden as features
    """
    return dict(name=name, kind=kind, layer=layer or {}, target=target, columns=columns,
                features=features, width=width, flags=flags or {}, without=without or {},
                names=names, own=own, keys=keys or {}, dtype=dtype, mask=mask)


HEADS = [
    head("eagle3_flat", "flat", target="llama_untied", columns=128, own=("lm_head",),
         layer={"rope_theta": 300.0, "rope_scaling": LLAMA3}, without={"rope_theta": 1e4},
         keys={"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}),
    head("eagle3_qwen3", "speculators", columns=96, own=("embed_tokens", "lm_head"),
         names="layers.0.", layer={"model_type": "qwen3"},
         flags={"norm_before_residual": True, "fc_norm": True},
         without={"norm_before_residual": False},
         keys={"eagle_aux_hidden_state_layer_ids": [0, 1, 3]}),
    head("eagle3_whole", "flat", target="llama_untied", dtype="float32",
         flags={"norm_before_fc": True, "norm_output": True, "fc_bias": True, "logit_scale": 0.5},
         without={"norm_before_fc": False},
         keys={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}}),
    head("eagle3_layers", "flat", own=("embed_tokens", "lm_head"), width=96, dtype="float16",
         names="layers.0.", layer={"num_hidden_layers": 2, "attention_bias": True},
         flags={"fc_norm": True, "norm_output": True, "old_norms": True},
         without={"fc_norm": False}),
    head("eagle3_output", "speculators", target="llama_tied", columns=200, names="layers.0.",
         flags={"norm_before_residual": False, "norm_output": True},
         without={"norm_output": False}, keys={"eagle_aux_hidden_state_layer_ids": [2, 1, 0]}),
    head("eagle3_single", "flat", target="llama_tied", features=1, flags={"single": True},
         without={"norm_before_residual": True},
         keys={"eagle_config": {"use_aux_hidden_state": False}}),
    head("eagle3_parallel", "speculators", target="llama_untied", columns=128, names="layers.0.",
         own=("embed_tokens", "lm_head"), layer={"num_hidden_layers": 2}, mask=4,
         flags={"norm_before_residual": True}, without={"norm_before_residual": False},
         keys={"eagle_aux_hidden_state_layer_ids": [0, 1, 3], "mask_token_id": 7,
               "speculators_model_type": "peagle"}),
    head("eagle1", "eagle1", target="llama_untied", features=1, own=("embed_tokens",),
         names="layers.0.", without={"join_bias": False}),
    head("mimo", "mimo", features=1, own=("embed_tokens", "lm_head"),
         names="model.mtp_layers.0.", without={"feature_first": False, "lacks_first": False}),
]


def layer_config(case, without=None):
    """The layers of a head as transformers configures them."""
    values = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
                  max_position_embeddings=256, rope_theta=1e4)
    values.update(case["layer"])
    kind = {"mimo": "qwen2"}.get(case["kind"], values.pop("model_type", "llama"))
    if without and "rope_theta" in without:
        values.pop("rope_scaling", None)
        values["rope_theta"] = without["rope_theta"]
    scaling = values.pop("rope_scaling", None) or {"rope_type": "default"}
    values["rope_parameters"] = dict(scaling, rope_theta=values.pop("rope_theta"))
    classes = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config,
               "qwen2": transformers.Qwen2Config}
    config = classes[kind](**values)
    config._attn_implementation = "eager"
    return config


def draw(shape, generator, scale, mean=0.0):
    return mean + scale * torch.randn(shape, generator=generator)


def random_tensor(name, shape, generator):
    """Wide enough that attention is neither flat nor one-hot, and that norms matter."""
    if "norm" in name:
        return draw(shape, generator, 0.3, 1.0)
    if name.endswith(".bias"):
        return draw(shape, generator, 0.5)
    if "embed_tokens" in name:
        return draw(shape, generator, 1.0)
    scale = 2.5 if "lm_head" in name else 1.5 if "q_proj" in name or "k_proj" in name else 1.0
    return draw(shape, generator, scale / shape[-1] ** 0.5)


def generator_of(case):
    return torch.Generator().manual_seed(int.from_bytes(case["name"].encode()[-6:], "little"))


def lent(case, models):
    """embed_tokens and lm_head of the target."""
    if not case["target"]:
        return {}
    weights = safetensors.torch.load_file(models / case["target"] / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"].float()
    return {"embed_tokens": embedding, "lm_head": weights.get("lm_head.weight", embedding).float()}


def draft_ids(case):
    """The ids of the reduced vocabulary, ascending."""
    count = case["columns"] or VOCAB
    return numpy.sort(numpy.random.default_rng(count).permutation(VOCAB)[:count])


# ---- EAGLE-3, by speculators ----

def eagle3_net(case, flags, without=None):
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer_config(case, without),
        draft_vocab_size=case["columns"] or VOCAB,
        norm_before_residual=flags.get("norm_before_residual", False),
        norm_before_fc=flags.get("norm_before_fc", False), fc_norm=flags.get("fc_norm", False),
        norm_output=flags.get("norm_output", False))
    net = Eagle3DraftModel(config)
    width, count = case["width"], case["features"]
    if width != 64 or flags.get("fc_bias") or count != 3:
        net.fc = torch.nn.Linear(width * count, 64, bias=flags.get("fc_bias", False))
    if flags.get("fc_norm") and width != 64:
        norm = type(net.norm)
        net.fc_norm = torch.nn.ModuleList(norm(width, eps=1e-5) for _ in range(count))
    if flags.get("single"):
        net.fc = torch.nn.Identity()
    return net.eval()


def eagle3_logits(case, net, features, tokens, flags, steps=STEPS):
    """[steps][rows][columns] of all rows."""
    out = []
    hook = net.lm_head.register_forward_hook(lambda module, args, result: out.append(result[0]))
    scale = flags.get("logit_scale", 1.0)
    with torch.no_grad():
        net(features[None], torch.tensor([tokens]), torch.zeros(1, len(tokens), dtype=torch.long),
            ttt_steps=steps)
    hook.remove()
    return torch.stack(out).float() * scale


# ---- EAGLE-1 and MTP layers, re-typed ----

class Joined(torch.nn.Module):
    """One layer over a joined embedding and feature."""

    def __init__(self, case):
        super().__init__()
        config = layer_config(case)
        self.is_mtp = case["kind"] == "mimo"
        source = modeling_qwen2 if self.is_mtp else modeling_llama
        prefix = "Qwen2" if self.is_mtp else "Llama"
        norm = getattr(source, prefix + "RMSNorm")
        self.embed_tokens = torch.nn.Embedding(VOCAB, 64)
        self.lm_head = torch.nn.Linear(64, VOCAB, bias=False)
        self.layer = getattr(source, prefix + "DecoderLayer")(config, 0)
        self.rotary = getattr(source, prefix + "RotaryEmbedding")(config)
        self.join = torch.nn.Linear(128, 64, bias=not self.is_mtp)
        if self.is_mtp:
            self.token_norm, self.hidden_norm, self.final_norm = (norm(64, 1e-5) for _ in range(3))
        else:
            self.layer.input_layernorm = torch.nn.Identity()
        self.feature_first = self.lacks_first = self.is_mtp

    def rows(self, features, tokens):
        """Outputs of a causal run over rows; also what later rows read of them."""
        e, f = self.embed_tokens(tokens), features
        if self.lacks_first:
            e = e.clone()
            e[torch.arange(len(tokens)) == 0] = 0
        if self.is_mtp:
            e, f = self.token_norm(e), self.hidden_norm(f)
        x = self.join(torch.cat([f, e] if self.feature_first else [e, f], dim=-1))[None]
        n = x.shape[1]
        mask = torch.full((n, n), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)[None, None]
        x = self.layer(x, attention_mask=mask,
                       position_embeddings=self.rotary(x, torch.arange(n)[None]))[0]
        return self.final_norm(x) if self.is_mtp else x


def joined_logits(net, features, tokens):
    """[starts][steps][columns]: each start is run anew, row after row."""
    out = []
    ids = torch.tensor(tokens)
    with torch.no_grad():
        for start in STARTS:
            rows = features[:start + 1]
            for step in range(STEPS):
                y = net.rows(rows, ids[:start + 1 + step])
                out.append(net.lm_head(y[-1]).float())
                rows = torch.cat([rows, y[-1:]])
    return torch.stack(out)


# ---- one head ----

def build(case, models, flags=None, without=None):
    """The net with its stored weights; {name: tensor} of those that the head's files have."""
    flags = case["flags"] if flags is None else flags
    kind = getattr(torch, case["dtype"])
    is_joined = case["kind"] in ("eagle1", "mimo")
    net = Joined(case).eval() if is_joined else eagle3_net(case, flags, without)
    whole = net if is_joined else eagle3_net(case, case["flags"])
    from_target, ids = lent(case, models), draft_ids(case)
    values, generator = {}, generator_of(case)
    for name, value in sorted(whole.state_dict().items()):
        part = name.split(".")[0]
        if name in ("t2d", "d2t") or part.startswith(("verifier", "rotary")):
            continue
        random = random_tensor(name, value.shape, generator).to(kind)
        if part in from_target and part not in case["own"]:
            full = from_target[part]
            values[name] = full[torch.from_numpy(ids)] if part == "lm_head" else full
        else:
            values[name] = random
    own = {name: value for name, value in values.items()
           if name.split(".")[0] not in from_target or name.split(".")[0] in case["own"]}
    net.load_state_dict({name: value.float() for name, value in values.items()
                         if name in net.state_dict()}, strict=False)
    if without and "join_bias" in without:
        torch.nn.init.zeros_(net.join.bias)
    for name in ("feature_first", "lacks_first"):
        if without and name in without:
            setattr(net, name, without[name])
    return net, own


def inputs_of(case):
    """Features as bf16 has them, the tokens of the rows, and mask_hidden."""
    generator = generator_of(case)
    width = case["features"] * case["width"]
    mean = draw((width,), generator, 0.5)
    features = (mean + draw((ROWS, width), generator, 1.5)).bfloat16()
    tokens = numpy.random.default_rng(len(case["name"])).integers(8, VOCAB, ROWS).tolist()
    hidden = draw((width,), generator, 1.0).bfloat16()
    return features, tokens, hidden


def run(case, net, dtype, flags):
    features, tokens, hidden = inputs_of(case)
    net, features = net.to(dtype), features.to(dtype)
    if case["kind"] in ("eagle1", "mimo"):
        return joined_logits(net, features, tokens)
    if case["mask"]:
        out = []
        for start in STARTS:
            n = start + 1 + case["mask"]
            rows = torch.cat([features[:start + 1], hidden.to(dtype).expand(case["mask"], -1)])
            ids = tokens[:start + 1] + [case["keys"]["mask_token_id"]] * case["mask"]
            logits = eagle3_logits(case, net, rows, ids, flags, steps=1)[0]
            out.append(logits[start:n])
        return torch.cat(out)
    logits = eagle3_logits(case, net, features, tokens, flags)
    return torch.stack([logits[step, start] for start in STARTS for step in range(STEPS)])


def stored_name(case, name):
    if case["kind"] == "mimo":
        inner = {"join.": "input_proj.", "token_norm.": "token_layernorm.",
                 "hidden_norm.": "hidden_layernorm.", "final_norm.": "final_layernorm.",
                 "layer.": ""}
        for old, new in inner.items():
            if name.startswith(old):
                return case["names"] + new + name[len(old):]
        return name if name.startswith("lm_head") else "model." + name
    if name.startswith("layer."):
        name = case["names"] + name[len("layer."):]
    name = name.replace("layers.0.", case["names"]).replace("join.", "fc.")
    if case["flags"].get("old_norms"):
        for i, old in enumerate(("low", "mid", "high")):
            name = name.replace(f"fc_norm.{i}.", f"aux_norm_{old}.")
    return name


def config_of(case):
    layer = layer_config(case).to_dict()
    layer = {key: value for key, value in layer.items() if not key.startswith("_")}
    flags = case["flags"]
    said = {key: value for key, value in flags.items()
            if key in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output",
                       "logit_scale")}
    if flags.get("old_norms"):
        said["use_aux_norm"] = said.pop("fc_norm")
    if case["kind"] == "speculators":
        nested = layer_config(case).to_diff_dict()
        return dict({"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
                     "draft_vocab_size": case["columns"], "transformer_layer_config": nested,
                     "speculators_config": {"algorithm": "eagle3", "verifier": {
                         "name_or_path": "random", "architectures": ["LlamaForCausalLM"]}}},
                    **said, **case["keys"])
    rope = layer.pop("rope_parameters")
    layer["rope_theta"] = rope.pop("rope_theta")
    layer["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    if case["kind"] == "mimo":
        return dict(layer, architectures=["MiMoForCausalLM"], model_type="mimo",
                    num_hidden_layers=1, num_nextn_predict_layers=1, attention_bias=True)
    if case["kind"] == "eagle1":
        return dict(layer, architectures=["LlamaForCausalLM"], bias=True)
    if case["layer"].get("rope_theta") is None:
        del layer["rope_theta"]
    return dict(layer, architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=case["columns"],
                target_hidden_size=case["width"], **said, **case["keys"])


def mimo_target(own, dtype):
    """A model around the MTP layer: one Qwen2 layer of its own."""
    config = layer_config(HEADS[-1])
    net = transformers.Qwen2ForCausalLM(config)
    generator = torch.Generator().manual_seed(5)
    for name, value in sorted(net.state_dict().items()):
        if "embed_tokens" not in name and "lm_head" not in name:
            own[name] = random_tensor(name, value.shape, generator).to(dtype)


def save(case, own, folder):
    kind = getattr(torch, case["dtype"])
    tensors = {stored_name(case, name): value.to(kind).contiguous() for name, value in own.items()}
    if case["kind"] == "mimo":
        mimo_target(tensors, kind)
    if case["columns"]:
        ids = torch.from_numpy(draft_ids(case)).long()
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, True)
    if case["mask"]:
        tensors["mask_hidden"] = inputs_of(case)[2][None].clone()
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(config_of(case), indent=1, sort_keys=True)
    (folder / "config.json").write_text(text + "\n")


def mimo_logits(folder, tokens, dtype):
    """Logits of the model that the MTP layer belongs to, after the last token."""
    net = transformers.Qwen2ForCausalLM(layer_config(HEADS[-1])).eval()
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    net.load_state_dict({name: value.float() for name, value in stored.items()
                         if "mtp_layers" not in name})
    with torch.no_grad():
        return net.to(dtype)(torch.tensor([tokens])).logits[0, -1].float()


def rms(a, b):
    return float(((a - b) ** 2).mean().sqrt())


def make(case, out, models):
    folder = out / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    net, own = build(case, models)
    logits = run(case, net, torch.float32, case["flags"])
    noise = rms(run(case, copy.deepcopy(net), torch.bfloat16, case["flags"]), logits)
    effects = []
    for name, value in case["without"].items():
        blind = dict(case["flags"], **{name: value})
        other = run(case, build(case, models, blind, {name: value})[0], torch.float32, blind)
        effects.append(rms(other, logits))
    effect = min(effects)
    line = f"{case['name']:16} logits {logits.std():.2f}  bf16 {noise:.4f}  without {effect:.3f}"
    if effect < 10 * noise:
        sys.exit(line + ": this head cannot tell")
    print(line)
    save(case, own, folder)
    features, tokens, _ = inputs_of(case)
    features.view(torch.int16).numpy().tofile(folder / "features.bf16")
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__,
                "speculators": importlib.metadata.version("speculators")}
    facts = {"versions": versions, "target": case["target"], "tokens": tokens, "starts": STARTS,
             "steps": case["mask"] + 1 if case["mask"] else STEPS,
             "columns": case["columns"] or VOCAB, "is_parallel": bool(case["mask"]),
             "tolerance_rms": round(noise, 5)}
    if case["kind"] == "mimo":
        model = mimo_logits(folder, tokens, torch.float32)
        model.numpy().astype("<f4").tofile(folder / "model_logits.f32")
        noise = rms(mimo_logits(folder, tokens, torch.bfloat16), model)
        facts["model_tolerance_rms"] = round(noise, 5)
    (folder / "golden.json").write_text(json.dumps(facts) + "\n")


def check(case, out, models):
    stored = numpy.fromfile(out / case["name"] / "logits.f32", "<f4")
    net, _ = build(case, models)
    again = run(case, net, torch.float32, case["flags"]).numpy().ravel()
    worst = float(numpy.abs(again - stored).max())
    print(f"{case['name']:16} largest difference {worst:.2e}")
    return worst < 1e-3


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    out, models = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if len(sys.argv) == 4:
        sys.exit(0 if all([check(case, out, models) for case in HEADS]) else "some differ")
    for case in HEADS:
        if not (out / case["name"]).exists():
            make(case, out, models)


if __name__ == "__main__":
    main()
