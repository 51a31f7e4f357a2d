"""Model folders with the weights of a Llama model that other families compute with in another way:
sliding windows, factors, layers without rotation. They change its texts."""
import json
import os

from safetensors_file import read_header, write_tensors


def _link_all(folder, like):
    os.makedirs(folder)
    for name in os.listdir(like):
        if name != "config.json":
            os.symlink(os.path.join(like, name), os.path.join(folder, name))
    with open(os.path.join(like, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def _write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file)


def write_windowed(folder, like, window):
    """All layers have the window: a Mistral."""
    config = _link_all(folder, like)
    config.update(architectures=["MistralForCausalLM"], model_type="mistral",
                  sliding_window=window)
    _write_json(folder, "config.json", config)
    return folder


def write_scaled(folder, like):
    """Factors near those that a Llama has: a Granite."""
    config = _link_all(folder, like)
    config.update(architectures=["GraniteForCausalLM"], model_type="granite",
                  attention_multiplier=0.9 * config["head_dim"] ** -0.5, residual_multiplier=0.97,
                  embedding_multiplier=1.1, logits_scaling=1.25)
    _write_json(folder, "config.json", config)
    return folder


def write_unrotated(folder, like):
    """The last layer has no rotation: a SmolLM3."""
    config = _link_all(folder, like)
    config.update(architectures=["SmolLM3ForCausalLM"], model_type="smollm3",
                  no_rope_layers=[1] * (config["num_hidden_layers"] - 1) + [0])
    _write_json(folder, "config.json", config)
    return folder


def write_mixed(folder, like, window):
    """Every other layer has the window: a Qwen 3, whose norms of q and k have weights of one."""
    config = _link_all(folder, like)
    n_layers, width = config["num_hidden_layers"], config["head_dim"]
    config.update(architectures=["Qwen3ForCausalLM"], model_type="qwen3", use_sliding_window=True,
                  sliding_window=window,
                  layer_types=[("full_attention", "sliding_attention")[i % 2]
                               for i in range(n_layers)])
    _write_json(folder, "config.json", config)
    header, _ = read_header(os.path.join(folder, "model.safetensors"))
    names = [name for name in header if name != "__metadata__"]
    whole, norms = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, whole))
    places = dict.fromkeys(names, whole)
    ones = ("BF16", [width], b"\x80\x3f" * width)
    tensors = {f"model.layers.{i}.self_attn.{part}_norm.weight": ones
               for i in range(n_layers) for part in ("q", "k")}
    write_tensors(os.path.join(folder, norms), tensors)
    places.update(dict.fromkeys(tensors, norms))
    _write_json(folder, "model.safetensors.index.json",
                {"metadata": {}, "weight_map": places})
    return folder
