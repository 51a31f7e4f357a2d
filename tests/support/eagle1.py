"""An EAGLE-1 head for the tales target, whose layer does nothing: it repeats what the target has
just said, so it is hardly ever right."""
import json
import os
import struct

DIM, VOCAB = 256, 4096


def write_head(folder):
    zero = {f"layers.0.{name}.weight": [DIM, DIM]
            for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                         "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")}
    zero["layers.0.post_attention_layernorm.weight"] = [DIM]
    fc = bytearray(DIM * 2 * DIM * 2)
    for i in range(DIM):
        at = 2 * (i * 2 * DIM + DIM + i)
        fc[at:at + 2] = b"\x80\x3f"  # 1 in bf16
    header, data = {}, bytearray()
    for name, shape in {"fc.weight": [DIM, 2 * DIM], **zero}.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shape,
                        "data_offsets": [len(data), len(data) + size]}
        data += fc if name == "fc.weight" else bytes(size)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "bias": False,
                   "hidden_size": DIM, "intermediate_size": DIM, "num_attention_heads": 8,
                   "num_hidden_layers": 1, "rms_norm_eps": 1e-05, "hidden_act": "silu",
                   "max_position_embeddings": 1024, "vocab_size": VOCAB}, file)
