#!/usr/bin/env python3
"""Makes tests/golden/features: the residual stream of some models of tests/golden/models as Hugging
Face transformers computes it.

    python tests/oracle/features_golden.py MODELS OUT     (needs torch, transformers 5)

Per model NAME.f32: little-endian float32 [16][columns][D] of the first 16 tokens of its
prompt.json, computed in fp32 with eager attention: before each layer, after the last one, and after
the final norm. versions.json says what made them."""
import json
import pathlib
import sys

import numpy
import torch
import transformers

N_TOKENS = 16
NAMES = ["llama_kv_one", "qwen3_norm_bias", "gemma2_softcap", "gemma3_two_ropes",
         "olmo2_shared_heads", "granite_factors", "phi3_partial"]


def features_of(folder, prompt):
    """[tokens][columns][D]"""
    net = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32, attn_implementation="eager").eval()
    seen = []

    def before(module, args, kwargs):
        seen.append((args[0] if args else kwargs["hidden_states"])[0])

    for layer in net.model.layers:
        layer.register_forward_pre_hook(before, with_kwargs=True)
    net.model.norm.register_forward_pre_hook(before, with_kwargs=True)
    net.model.norm.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    with torch.no_grad():
        net(torch.tensor([prompt]))
    assert len(seen) == len(net.model.layers) + 2, len(seen)
    return torch.stack(seen, dim=1).numpy()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    models, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        prompt = json.loads((models / name / "prompt.json").read_text())["prompt"][:N_TOKENS]
        features = features_of(models / name, prompt)
        features.astype("<f4").tofile(out / f"{name}.f32")
        print(f"{name:24} {features.shape}  std {numpy.std(features, axis=(0, 2)).round(3)}")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    (out / "versions.json").write_text(json.dumps(versions) + "\n")


if __name__ == "__main__":
    main()
