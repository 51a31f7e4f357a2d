#!/usr/bin/env python3
"""Makes tests/golden/models: one small random model per property of a config, with the logits that
Hugging Face transformers computes for it.

    python tests/oracle/golden_models.py OUT            make those that are not there (needs torch,
                                                        transformers 5)
    python tests/oracle/golden_models.py OUT --check    recompute and compare; with transformers 4
                                                        only what that version can read

Per model: config.json and safetensors as the property asks for; prompt.json = {"versions",
"prompt": [ids], "positions": [...], "vocab": V, "tolerance_rms"}; logits.f32 = little-endian
float32, one row of V logits per listed position, computed in fp32 from the stored weights with
eager attention. With a prompt of 300 tokens also "greedy", the 24 tokens that follow, and
"margins", the distances of their logits from the second best ones. Norms and biases are random, so
that a program that leaves one out or misplaces it gets other logits. For each property the script
also computes what a program without it would get, and refuses to write a model where that differs
less than ten times as much as a bf16 run does from the fp32 one, because such a golden file could
not tell right from wrong. tolerance_rms in prompt.json is the distance of the bf16 run."""
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
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3",
           "gemma2": "Gemma2", "gemma3_text": "Gemma3", "phi3": "Phi3", "ministral": "Ministral",
           "ministral3": "Ministral3", "olmo2": "Olmo2", "olmo3": "Olmo3", "granite": "Granite",
           "granitemoehybrid": "GraniteMoeHybrid", "smollm3": "SmolLM3"}
CONFIGS = {"gemma3_text": "Gemma3TextConfig"}
SEEING = {"gemma3_text": ("Gemma3ForConditionalGeneration", "gemma3"),
          "ministral3": ("Mistral3ForConditionalGeneration", "mistral3")}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        "rope_theta": 1e4}
YARN_MSCALE = dict(YARN, truncate=False, beta_fast=4.0, beta_slow=0.25, mscale=1.5,
                   mscale_all_dim=0.5)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 500.0}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
SMALL = dict(vocab_size=128, hidden_size=32, intermediate_size=32, num_hidden_layers=3,
             max_position_embeddings=512)
WIDE = dict(SMALL, hidden_size=64, num_hidden_layers=2)
COMPACT = dict(vocab_size=160, hidden_size=32, intermediate_size=64)


def two_ropes(full, theta=1e4):
    """Rotations of the layers without and with a window."""
    return {"full_attention": full, "sliding_attention": dict(PLAIN, rope_theta=theta)}


def long_rope(original, pairs):
    return {"rope_type": "longrope", "rope_theta": 1e4,
            "original_max_position_embeddings": original,
            "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
            "long_factor": [1.5 + 1.25 * i for i in range(pairs)]}


def tuned(beta):
    return dict(YARN, llama_4_scaling_beta=beta, mscale=1.0, mscale_all_dim=1.0)




def model(name, kind, without=None, *, long=False, style=5, dtype="bfloat16", shards=0,
          generation=None, edit=None, **config):
    """A row of MODELS: what one golden model is.

    name        of its folder
    kind        its family, a key of CLASSES
    without     config values of a program that ignores the property, or a set of parameter suffixes
                that it would leave out
    long        a prompt of 150 tokens instead of 48; a number: of so many, with more positions
    style       the version of transformers whose keys config.json has, 4 or 5
    dtype       of the stored weights
    shards      how many safetensors files; 0 = one without an index
    generation  what is in generation_config.json, if there is one
    edit        num_key_value_heads, head_dim, layer_types: left out of config.json; legacy_type:
                the old name of rope_type; sliding_window_pattern: is there in place of layer_types;
                nested: as the text part of a model that also sees
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
    model("llama_wide_heads", "llama", **dict(COMPACT, hidden_size=64), num_attention_heads=4,
          num_key_value_heads=2, head_dim=32),
    model("llama_rope_llama3", "llama", {"rope_parameters": dict(PLAIN, rope_theta=500.0)},
          long=True, **COMPACT, num_attention_heads=2, num_key_value_heads=2, head_dim=32,
          rope_parameters=LLAMA3),
    model("llama_rope_llama3_old", "llama", {"rope_parameters": dict(PLAIN, rope_theta=500.0)},
          long=True, style=4, **COMPACT, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
          rope_parameters=dict(LLAMA3, factor=4.0, original_max_position_embeddings=48),
          tie_word_embeddings=True),
    model("llama_rope_linear", "llama", {"rope_parameters": PLAIN}, long=True, style=4,
          **COMPACT, num_key_value_heads=2, head_dim=16,
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
          **dict(COMPACT, hidden_size=64, intermediate_size=128),
          num_attention_heads=8, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True),
    model("qwen3_norm", "qwen3", {"q_norm.weight", "k_norm.weight"}, **COMPACT,
          num_key_value_heads=2, head_dim=32, tie_word_embeddings=True),
    model("qwen3_norm_bias", "qwen3", {"o_proj.bias"}, style=4, num_key_value_heads=1, head_dim=16,
          attention_bias=True),
    model("llama_bias", "llama", {"o_proj.bias", "gate_proj.bias"}, **COMPACT,
          num_key_value_heads=1, head_dim=16, attention_bias=True, mlp_bias=True),
    model("mistral", "mistral", style=4, **COMPACT, num_attention_heads=8, num_key_value_heads=1,
          head_dim=16, sliding_window=None),
    model("mistral_window", "mistral", num_key_value_heads=2, sliding_window=100),
    model("mistral_slides", "mistral", {"sliding_window": None}, long=True, **COMPACT,
          num_key_value_heads=2, head_dim=16, sliding_window=8),
    model("qwen2_slides_from", "qwen2", {"use_sliding_window": False}, long=True, style=4,
          **COMPACT, num_hidden_layers=3, num_key_value_heads=2, head_dim=16,
          use_sliding_window=True, sliding_window=17, max_window_layers=1,
          edit={"layer_types": None}),
    model("qwen3_slides_listed", "qwen3", {"layer_types": ["full_attention"] * 3}, long=True,
          **COMPACT, num_hidden_layers=3, num_key_value_heads=1, head_dim=16,
          use_sliding_window=True, sliding_window=33, max_window_layers=3,
          layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    model("llama_f16", "llama", dtype="float16", **COMPACT, num_key_value_heads=2, head_dim=16),
    model("llama_f32", "llama", dtype="float32", **COMPACT, num_key_value_heads=2, head_dim=16),
    model("llama_sharded", "llama", shards=3, num_key_value_heads=2),
    model("gemma2_softcap", "gemma2", {"attn_logit_softcapping": None}, long=300, **SMALL,
          num_key_value_heads=2, head_dim=16, sliding_window=33, query_pre_attn_scalar=8,
          attn_logit_softcapping=1.5, final_logit_softcapping=6.0, tie_word_embeddings=True),
    model("gemma2_open", "gemma2", {"query_pre_attn_scalar": 64}, long=300, **SMALL,
          num_key_value_heads=1, head_dim=32, sliding_window=512, query_pre_attn_scalar=24,
          attn_logit_softcapping=None, final_logit_softcapping=None, tie_word_embeddings=True),
    model("gemma3_two_ropes", "gemma3_text", {"rope_parameters": two_ropes(PLAIN)}, long=300,
          **SMALL, num_key_value_heads=1, head_dim=32, sliding_window=33, query_pre_attn_scalar=32,
          tie_word_embeddings=True,
          rope_parameters=two_ropes({"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5}, 1e3),
          layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    model("gemma3_old", "gemma3_text", {"sliding_window": 512}, long=300, style=4,
          **dict(SMALL, num_hidden_layers=4),
          num_key_value_heads=2, head_dim=16, sliding_window=24, query_pre_attn_scalar=16,
          tie_word_embeddings=True, final_logit_softcapping=8.0,
          rope_parameters=two_ropes(dict(PLAIN, rope_theta=1e6)),
          layer_types=["sliding_attention", "full_attention"] * 2,
          edit={"layer_types": None, "sliding_window_pattern": 2}),
    model("gemma3_seeing", "gemma3_text", {"q_norm.weight", "k_norm.weight"}, long=300, **SMALL,
          num_key_value_heads=4, head_dim=16, sliding_window=64, query_pre_attn_scalar=16,
          tie_word_embeddings=True, rope_parameters=two_ropes(dict(PLAIN, rope_theta=1e6)),
          layer_types=["sliding_attention", "sliding_attention", "full_attention"],
          edit={"nested": True}),
    model("phi3_partial", "phi3", {"rope_parameters": PLAIN}, long=300, style=4,
          **WIDE, num_key_value_heads=2, sliding_window=None, pad_token_id=0,
          rope_parameters=dict(PLAIN, partial_rotary_factor=0.5)),
    model("phi3_long_factors", "phi3", {"rope_parameters": PLAIN}, long=300,
          **WIDE, num_key_value_heads=4, sliding_window=120, pad_token_id=0,
          original_max_position_embeddings=64,
          rope_parameters=dict(long_rope(64, 6), partial_rotary_factor=0.75)),
    model("phi3_short_factors", "phi3", {"rope_parameters": PLAIN}, long=300, style=4,
          **WIDE, num_key_value_heads=1, pad_token_id=0,
          original_max_position_embeddings=512, rope_parameters=long_rope(512, 8),
          edit={"legacy_type": True}),
    model("ministral_listed", "ministral", {"layer_types": ["full_attention"] * 3}, long=300,
          **SMALL, num_key_value_heads=2, head_dim=16, sliding_window=40,
          layer_types=["full_attention", "sliding_attention", "sliding_attention"]),
    model("ministral3_tuned", "ministral3", {"rope_parameters": tuned(0.0)}, long=300, **SMALL,
          num_key_value_heads=2, head_dim=16, pad_token_id=0, rope_parameters=tuned(0.9)),
    model("ministral3_seeing", "ministral3", {"rope_parameters": dict(PLAIN, **{
              "llama_4_scaling_beta": 0.0, "original_max_position_embeddings": 64})}, long=300,
          **SMALL, num_key_value_heads=1, head_dim=32, pad_token_id=0, rope_parameters=tuned(0.1),
          edit={"nested": True}),
    model("olmo2_norms", "olmo2", {"q_norm.weight", "k_norm.weight"}, long=300, **SMALL,
          num_key_value_heads=2, pad_token_id=0, num_attention_heads=2),
    model("olmo2_shared_heads", "olmo2", {"post_feedforward_layernorm.weight"}, long=300, style=4,
          **WIDE, num_attention_heads=4, num_key_value_heads=1,
          pad_token_id=0),
    model("olmo3_yarn", "olmo3", {"rope_parameters": two_ropes(PLAIN)}, long=300,
          **WIDE, num_attention_heads=4,
          num_key_value_heads=2, pad_token_id=0, sliding_window=50,
          rope_parameters=two_ropes(YARN),
          layer_types=["sliding_attention", "full_attention"]),
    model("olmo3_plain", "olmo3", {"sliding_window": 512}, long=300, style=4,
          **dict(SMALL, num_hidden_layers=4), num_attention_heads=2, num_key_value_heads=2,
          pad_token_id=0, sliding_window=20,
          rope_parameters=two_ropes(dict(PLAIN, rope_theta=5e5), 5e5), edit={"layer_types": None}),
    model("granite_factors", "granite", {"residual_multiplier": 1.0}, long=300, **SMALL,
          num_attention_heads=2, num_key_value_heads=1, embedding_multiplier=3.0,
          logits_scaling=0.5, residual_multiplier=0.4, attention_multiplier=0.1),
    model("granite_bias", "granite", {"attention_multiplier": 1.0}, long=300, style=4, **SMALL,
          num_attention_heads=2, num_key_value_heads=2, attention_bias=True, mlp_bias=True,
          tie_word_embeddings=True, embedding_multiplier=12.0, attention_multiplier=0.25,
          logits_scaling=8.0),
    model("granite4_rope", "granitemoehybrid", {"position_embedding_type": None}, long=300, **SMALL,
          num_attention_heads=2, num_key_value_heads=1, num_local_experts=0, num_experts_per_tok=0,
          shared_intermediate_size=48, layer_types=["full_attention"] * 3, mamba_n_heads=4,
          position_embedding_type="rope", embedding_multiplier=2.0, logits_scaling=0.7,
          residual_multiplier=0.6, attention_multiplier=0.2),
    model("granite4_nope", "granitemoehybrid", {"position_embedding_type": "rope"}, long=300,
          **dict(SMALL, num_hidden_layers=2), num_attention_heads=2, num_key_value_heads=2,
          num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=32,
          layer_types=["full_attention"] * 2, mamba_n_heads=4, attention_multiplier=0.25),
    model("smollm3_nope", "smollm3", {"no_rope_layers": [1, 1, 1]}, long=300, **SMALL,
          num_attention_heads=2, num_key_value_heads=1, pad_token_id=0, no_rope_layer_interval=2,
          tie_word_embeddings=True),
    model("smollm3_slides", "smollm3", {"use_sliding_window": False}, long=300, style=4, **SMALL,
          num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, no_rope_layers=[0, 1, 0],
          use_sliding_window=True, sliding_window=30, tie_word_embeddings=False,
          edit={"layer_types": None}),
]


def make_config(case):
    defaults = dict(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1,
        eos_token_id=2, rope_parameters=dict(PLAIN), dtype=case["dtype"],
        architectures=[CLASSES[case["kind"]] + "ForCausalLM"])
    values = dict(defaults, **copy.deepcopy(case["config"]))
    if case["kind"] in ("gemma3_text", "olmo3") and "rope_parameters" not in case["config"]:
        del values["rope_parameters"]
    name = CONFIGS.get(case["kind"], CLASSES[case["kind"]] + "Config")
    return getattr(transformers, name)(**values)


def class_of(case):
    return getattr(transformers, CLASSES[case["kind"]] + "ForCausalLM")


def random_weights(case, net):
    """Wide enough that attention is neither flat nor one-hot and logits differ by several nats."""
    draw = torch.Generator().manual_seed(int.from_bytes(case["name"].encode()[-7:], "little"))
    weights = {}
    for name, value in net.state_dict().items():
        noise = torch.randn(value.shape, generator=draw)
        if "norm" in name:
            value = 0.3 * noise + (0.0 if case["kind"].startswith("gemma") else 1.0)
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
    if "full_attention" in rope:
        if config["model_type"] == "gemma3_text":
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
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
    if "sliding_window_pattern" in case["edit"]:
        values["sliding_window_pattern"] = case["edit"]["sliding_window_pattern"]
        values.pop("_sliding_window_pattern", None)
    if "nested" in case["edit"]:
        architecture, model_type = SEEING[case["kind"]]
        values = {"architectures": [architecture], "model_type": model_type,
                  "eos_token_id": values.pop("eos_token_id"), "image_token_index": 300,
                  "text_config": values, "vision_config": {"model_type": "none"}}
    (folder / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
    if case["generation"]:
        text = json.dumps(dict(case["generation"], do_sample=True), indent=2)
        (folder / "generation_config.json").write_text(text + "\n")


def save_weights(case, weights, folder):
    weights = {name: value.contiguous() for name, value in weights.items()}
    if "nested" in case["edit"]:
        weights = {"language_model." + name: value for name, value in weights.items()}
        weights["vision_tower.patch.weight"] = torch.zeros(4, 4)
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
    if "nested" in case["edit"]:
        net = class_of(case)._from_config(make_config(case), attn_implementation="eager")
        net.load_state_dict(random_weights(case, net), strict=False)
        net.tie_weights()
        return net.to(dtype).eval()
    return class_of(case).from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def logits_of(net, prompt):
    with torch.no_grad():
        return net(torch.tensor([prompt])).logits[0].float().numpy()


def greedy_of(net, prompt, n):
    """The greedy continuation, and how far each choice is from the second best."""
    ids, margins = list(prompt), []
    for _ in range(n):
        best = torch.topk(torch.tensor(logits_of(net, ids)[-1]), 2)
        ids.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 4))
    return ids[len(prompt):], margins


def rms(a, b):
    return float(numpy.sqrt(numpy.mean((a - b) ** 2)))


def logits_without(case, folder, prompt):
    """The logits of a program that does not know the property."""
    net = load(case, folder, torch.float32)
    if isinstance(case["without"], dict):
        blind = dict(case, config=dict(case["config"], **case["without"]))
        other = class_of(case)._from_config(make_config(blind), attn_implementation="eager").eval()
        other.load_state_dict(net.state_dict())
        return logits_of(other.float(), prompt)
    with torch.no_grad():
        for name, value in net.named_parameters():
            if any(name.endswith(part) for part in case["without"]):
                value.fill_(1.0 if "norm" in name and "gemma" not in case["kind"] else 0.0)
    return logits_of(net, prompt)


def make(case, out):
    folder = out / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = make_config(case)
    save_weights(case, random_weights(case, class_of(case)(config)), folder)
    save_config(case, config, folder)
    n = {False: 48, True: 150}.get(case["long"], case["long"])
    vocab = case["config"].get("vocab_size", VOCAB)
    prompt = numpy.random.default_rng(len(case["name"])).integers(8, vocab, n).tolist()
    positions = sorted({0, 1, 2, 15, 16, 31, n // 2, 3 * n // 4, n - 2, n - 1})
    if n > 150:
        positions = sorted({0, 1, 2, 15, 16, 63, 64, 255, 256, n - 1, *range(9, n, 25)})
    logits = logits_of(load(case, folder, torch.float32), prompt)
    noise = rms(logits_of(load(case, folder, torch.bfloat16), prompt)[positions], logits[positions])
    line = f"{case['name']:24} logits {logits.std():.2f}  bf16 {noise:.4f}"
    if case["without"]:
        effect = rms(logits_without(case, folder, prompt)[positions], logits[positions])
        line += f"  without {effect:.3f}"
        if effect < 10 * noise:
            sys.exit(line + ": this model cannot tell")
    print(line)
    facts = {}
    if n > 150:
        facts["greedy"], facts["margins"] = greedy_of(load(case, folder, torch.float32), prompt, 24)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    (folder / "prompt.json").write_text(json.dumps(
        {"versions": versions, "prompt": prompt, "positions": positions, "vocab": vocab,
         "tolerance_rms": round(noise, 5), **facts}) + "\n")
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
        if not (out / case["name"]).exists():
            make(case, out)


if __name__ == "__main__":
    main()
