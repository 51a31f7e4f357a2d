#!/usr/bin/env python3
"""Makes tests/golden/models: one small random model per property of a config, with the logits that
Hugging Face transformers computes for it.

    python tests/oracle/golden_models.py OUT            make them (needs torch, transformers 5)
    python tests/oracle/golden_models.py OUT --check    recompute and compare; with transformers 4
                                                        only what that version can read

Per model: config.json and safetensors as the property asks for; prompt.json = {"versions",
"prompt": [ids], "positions": [...], "vocab": V, "tolerance_rms"}; logits.f32 = little-endian
float32, one row of V logits per listed position, computed in fp32 from the stored weights with
eager attention. Norms and biases are random, so that a program that leaves one out or misplaces it
gets other logits. For each property the script also computes what a program without it would get,
and refuses to write a model where that differs less than ten times as much as a bf16 run does from
the fp32 one, because such a golden file could not tell right from wrong. tolerance_rms in
prompt.json is the distance of the bf16 run."""
import copy
import json
import pathlib
import shutil
import sys

import numpy
import safetensors.torch
import torch
import transformers

VOCAB = 320
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        "rope_theta": 1e4}
YARN_MSCALE = dict(YARN, truncate=False, beta_fast=4.0, beta_slow=0.25, mscale=1.5,
                   mscale_all_dim=0.5)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 500.0}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}


def model(name, kind, without=None, *, long=False, style=5, dtype="bfloat16", shards=0,
          generation=None, edit=None, **config):
    """A row of MODELS: what one golden model is.

    name        of its folder
    kind        its family, a key of CLASSES
    without     config values of a program that ignores the property, or a set of parameter suffixes
                that it would leave out
    long        a prompt of 150 tokens instead of 48
    style       the version of transformers whose keys config.json has, 4 or 5
    dtype       of the stored weights
    shards      how many safetensors files; 0 = one without an index
    generation  what is in generation_config.json, if there is one
    edit        num_key_value_heads, head_dim, layer_types: left out of config.json; legacy_type:
                the old name of rope_type
    config      values of config.json that differ from those of make_config
    """
    return dict(name=name, kind=kind, without=without, long=long, style=style, dtype=dtype,
                shards=shards, generation=generation, edit=edit or {}, config=config)


MODELS = [
    model("llama_untied", "llama", style=4, num_key_value_heads=2, num_hidden_layers=3),
    model("llama_tied", "llama", num_key_value_heads=4, tie_word_embeddings=True),
    model("llama_old", "llama", style=4, num_attention_heads=4, num_key_value_heads=4,
          generation={"eos_token_id": [2, 7, 5]},
          edit={"num_key_value_heads": None, "head_dim": None}),
    model("llama_kv_one", "llama", num_attention_heads=8, num_key_value_heads=1, head_dim=16),
    model("llama_wide_heads", "llama", num_attention_heads=4, num_key_value_heads=2, head_dim=32),
    model("llama_rope_llama3", "llama", {"rope_parameters": dict(PLAIN, rope_theta=500.0)},
          long=True, num_attention_heads=2, num_key_value_heads=2, head_dim=32,
          rope_parameters=LLAMA3),
    model("llama_rope_llama3_old", "llama", {"rope_parameters": dict(PLAIN, rope_theta=500.0)},
          long=True, style=4, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
          rope_parameters=dict(LLAMA3, factor=4.0, original_max_position_embeddings=48),
          tie_word_embeddings=True),
    model("llama_rope_linear", "llama", {"rope_parameters": PLAIN}, long=True, style=4,
          num_key_value_heads=2,
          rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4},
          edit={"legacy_type": True}),
    model("llama_rope_yarn_mscale", "llama", {"rope_parameters": dict(YARN_MSCALE, truncate=True)},
          long=True,
          num_attention_heads=2, num_key_value_heads=2, head_dim=32,
          rope_parameters=YARN_MSCALE),
    model("llama_rope_yarn_factor", "llama", {"rope_parameters": YARN}, long=True,
          num_attention_heads=2, num_key_value_heads=1, head_dim=32,
          rope_parameters=dict(YARN, attention_factor=1.5, beta_fast=8, beta_slow=2)),
    model("qwen2_rope_yarn", "qwen2", {"rope_parameters": PLAIN}, long=True, style=4,
          num_attention_heads=2, num_key_value_heads=2, rope_parameters=YARN,
          edit={"legacy_type": True}),
    model("qwen2_bias", "qwen2", {"q_proj.bias", "k_proj.bias", "v_proj.bias"},
          num_attention_heads=8, num_key_value_heads=2, hidden_size=128, tie_word_embeddings=True),
    model("qwen3_norm", "qwen3", {"q_norm.weight", "k_norm.weight"}, num_key_value_heads=2,
          head_dim=32, tie_word_embeddings=True),
    model("qwen3_norm_bias", "qwen3", {"o_proj.bias"}, style=4, num_key_value_heads=1, head_dim=16,
          attention_bias=True),
    model("llama_bias", "llama", {"o_proj.bias", "gate_proj.bias"}, num_key_value_heads=1,
          attention_bias=True, mlp_bias=True),
    model("mistral", "mistral", style=4, num_attention_heads=8, num_key_value_heads=1, head_dim=16,
          sliding_window=None),
    model("mistral_window", "mistral", num_key_value_heads=2, sliding_window=100),
    model("mistral_slides", "mistral", {"sliding_window": None}, long=True, num_key_value_heads=2,
          sliding_window=8),
    model("qwen2_slides_from", "qwen2", {"use_sliding_window": False}, long=True, style=4,
          num_hidden_layers=3, num_key_value_heads=2, use_sliding_window=True, sliding_window=17,
          max_window_layers=1, edit={"layer_types": None}),
    model("qwen3_slides_listed", "qwen3", {"layer_types": ["full_attention"] * 3}, long=True,
          num_hidden_layers=3, num_key_value_heads=1, head_dim=16, use_sliding_window=True,
          sliding_window=33, max_window_layers=3,
          layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    model("llama_f16", "llama", dtype="float16", num_key_value_heads=2),
    model("llama_f32", "llama", dtype="float32", num_key_value_heads=2),
    model("llama_sharded", "llama", shards=3, num_key_value_heads=2),
]


def make_config(case):
    defaults = dict(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1,
        eos_token_id=2, rope_parameters=dict(PLAIN), dtype=case["dtype"],
        architectures=[CLASSES[case["kind"]] + "ForCausalLM"])
    values = dict(defaults, **copy.deepcopy(case["config"]))
    return getattr(transformers, CLASSES[case["kind"]] + "Config")(**values)


def class_of(case):
    return getattr(transformers, CLASSES[case["kind"]] + "ForCausalLM")


def random_weights(case, net):
    """Wide enough that attention is neither flat nor one-hot and logits differ by several nats."""
    draw = torch.Generator().manual_seed(int.from_bytes(case["name"].encode()[-7:], "little"))
    weights = {}
    for name, value in net.state_dict().items():
        noise = torch.randn(value.shape, generator=draw)
        if "norm" in name:
            value = 1.0 + 0.3 * noise
        elif name.endswith(".bias"):
            value = 0.5 * noise
        elif "embed_tokens" in name:
            value = noise if not case["config"].get("tie_word_embeddings") else 0.4 * noise
        elif "lm_head" in name:
            value = 2.5 * noise / value.shape[1] ** 0.5
        else:
            scale = 1.5 if "q_proj" in name or "k_proj" in name else 1.0
            value = scale * noise / value.shape[1] ** 0.5
        weights[name] = value.to(getattr(torch, case["dtype"]))
    if case["config"].get("tie_word_embeddings"):
        del weights["lm_head.weight"]
    return weights


def old_style(config, legacy_type):
    """Writes the keys of transformers 4."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if legacy_type:
        rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.0"
    return config


def save_config(case, config, folder):
    values = json.loads(config.to_json_string())
    if case["style"] == 4:
        values = old_style(values, case["edit"].get("legacy_type", False))
    for key in ("num_key_value_heads", "head_dim", "layer_types"):
        if key in case["edit"]:
            values.pop(key, None)
    (folder / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
    if case["generation"]:
        text = json.dumps(dict(case["generation"], do_sample=True), indent=2)
        (folder / "generation_config.json").write_text(text + "\n")


def save_weights(case, weights, folder):
    weights = {name: value.contiguous() for name, value in weights.items()}
    if not case["shards"]:
        safetensors.torch.save_file(weights, folder / "model.safetensors",
                                    metadata={"format": "pt"})
        return
    total, names = case["shards"], sorted(weights)
    place = {}
    for i in range(total):
        file = f"model-{i + 1:05d}-of-{total:05d}.safetensors"
        part = {name: weights[name] for name in names[i::total]}
        safetensors.torch.save_file(part, folder / file, metadata={"format": "pt"})
        place.update({name: file for name in part})
    size = sum(value.numel() * value.element_size() for value in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(place.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def load(case, folder, dtype):
    """Reads the folder as any user would, with attention that fuses nothing."""
    return class_of(case).from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def logits_of(net, prompt):
    with torch.no_grad():
        return net(torch.tensor([prompt])).logits[0].float().numpy()


def rms(a, b):
    return float(numpy.sqrt(numpy.mean((a - b) ** 2)))


def logits_without(case, folder, prompt):
    """The logits of a program that does not know the property."""
    net = load(case, folder, torch.float32)
    if isinstance(case["without"], dict):
        blind = dict(case, config=dict(case["config"], **case["without"]))
        other = class_of(case)(make_config(blind)).eval()
        other.load_state_dict(net.state_dict())
        return logits_of(other.float(), prompt)
    with torch.no_grad():
        for name, value in net.named_parameters():
            if any(name.endswith(part) for part in case["without"]):
                value.fill_(1.0 if "norm" in name else 0.0)
    return logits_of(net, prompt)


def make(case, out):
    folder = out / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = make_config(case)
    save_weights(case, random_weights(case, class_of(case)(config)), folder)
    save_config(case, config, folder)
    n = 150 if case["long"] else 48
    prompt = numpy.random.default_rng(len(case["name"])).integers(8, VOCAB, n).tolist()
    positions = sorted({0, 1, 2, 15, 16, 31, n // 2, 3 * n // 4, n - 2, n - 1})
    logits = logits_of(load(case, folder, torch.float32), prompt)
    noise = rms(logits_of(load(case, folder, torch.bfloat16), prompt)[positions], logits[positions])
    line = f"{case['name']:24} logits {logits.std():.2f}  bf16 {noise:.4f}"
    if case["without"]:
        effect = rms(logits_without(case, folder, prompt)[positions], logits[positions])
        line += f"  without {effect:.3f}"
        if effect < 10 * noise:
            sys.exit(line + ": this model cannot tell")
    print(line)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    (folder / "prompt.json").write_text(json.dumps(
        {"versions": versions, "prompt": prompt, "positions": positions, "vocab": VOCAB,
         "tolerance_rms": round(noise, 5)}) + "\n")
    logits[positions].astype("<f4").tofile(folder / "logits.f32")


def is_readable(case):
    """transformers 4 takes no notice of "rope_parameters"."""
    plain = case["config"].get("rope_parameters", PLAIN) == PLAIN
    return case["style"] == 4 or plain or int(transformers.__version__.split(".")[0]) >= 5


def check(case, out):
    folder = out / case["name"]
    facts = json.loads((folder / "prompt.json").read_text())
    stored = numpy.fromfile(folder / "logits.f32", "<f4").reshape(len(facts["positions"]), -1)
    again = logits_of(load(case, folder, torch.float32), facts["prompt"])[facts["positions"]]
    worst = float(numpy.abs(again - stored).max())
    print(f"{case['name']:24} largest difference {worst:.2e}")
    return worst < 1e-3


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 3:
        fits = [check(case, out) for case in MODELS if is_readable(case)]
        sys.exit(0 if all(fits) else "some differ")
    for case in MODELS:
        make(case, out)


if __name__ == "__main__":
    main()
