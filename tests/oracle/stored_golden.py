#!/usr/bin/env python3
"""Makes tests/golden/stored: small random models whose matrices are stored quantized, one folder
for each format, with elements that the format's definition gives and logits of transformers.

    python tests/oracle/stored_golden.py OUT            make those that are not there

needs torch, transformers 5 and compressed-tensors. The integers of compressed-tensors are packed by
its own pack_to_int32, fp8 is torch's; the words of AWQ and GPTQ are put together here as AutoAWQ
and GPTQModel do (packing_utils.py, qlinear). A folder has config.json, model.safetensors and
    elements.json  {"name": [[row, column, value as hex]]}: scale * (q - zero) or scale * fp8, in
                   float64, rounded once to float32
    prompt.json    as tests/golden/models have it; tolerance_rms is the distance of a run whose
                   inputs of every matrix are rounded to 8 bits in groups of 32, or for fp8 to bf16
    logits.f32     of transformers in fp32 with the dequantized matrices"""
import json
import pathlib
import shutil
import sys

import numpy
import safetensors.torch
import torch
import transformers
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

VOCAB, DIM, HEAD, FFN, LAYERS, PROMPT, SAMPLES = 96, 128, 32, 256, 1, 40, 24
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "phi3": "Phi3"}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7] # the row of each nibble of a word


# ---- rounding: (integers, zeros, scales), by groups of columns ----

def round_groups(weight, bits, group, symmetric, dtype):
    """q in 0 .. 2^bits - 1 [N][K], zero [N][G] in the same units, scale [N][G]."""
    rows, cols = weight.shape
    runs = weight.reshape(rows, cols // group, group).double()
    low, high = runs.amin(2), runs.amax(2)
    top = 2 ** bits - 1
    if symmetric:
        scale = torch.maximum(low.abs(), high.abs()) / (top / 2)
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        scale = (high.clamp(min=0) - low.clamp(max=0)) / top
        zero = (-low.clamp(max=0) / scale).round().clamp(0, top)
    scale = scale.to(dtype).double()
    q = (runs / scale[:, :, None] + zero[:, :, None]).round().clamp(0, top)
    return q.reshape(rows, cols).to(torch.int64), zero.to(torch.int64), scale


def value_of(q, zero, scale, group_of):
    """Elements, exact in float64. group_of[k] is the group of column k."""
    return (q - zero[:, group_of]).double() * scale[:, group_of]


def words(parts, bits):
    """[..., 32 / bits] integers to one word, the first in the lowest bits."""
    total = torch.zeros(parts.shape[:-1], dtype=torch.int64)
    for i in range(parts.shape[-1]):
        total |= parts[..., i] << (bits * i)
    return torch.where(total >= 2 ** 31, total - 2 ** 32, total).to(torch.int32)


def shuffled(order, module):
    """Groups of columns in an order that matrices with the same input share."""
    inputs = ("o_proj", "down_proj", "gate_proj|up_proj|gate_up_proj",
              "q_proj|k_proj|v_proj|qkv_proj")
    seed = [any(part in module for part in names.split("|")) for names in inputs].index(True)
    return order[torch.randperm(len(order), generator=torch.Generator().manual_seed(seed))]


# ---- formats: each gives the tensors of a matrix and its elements ----

def awq(weight, case):
    q, zero, scale = round_groups(weight, 4, case["group"], False, torch.float16)
    def pack(table): # [lines][N]
        return words(table.reshape(table.shape[0], -1, 8)[:, :, AWQ_ORDER], 4)
    tensors = {"qweight": pack(q.T), "qzeros": pack(zero.T), "scales": scale.T.half()}
    return tensors, value_of(q, zero, scale, torch.arange(q.shape[1]) // case["group"])


def gptq(weight, case):
    bits, cols = case["bits"], weight.shape[1]
    group = case["group"] if case["group"] > 0 else cols
    per = 32 // bits
    order = torch.arange(cols) // group
    if case.get("shuffled"):
        order = shuffled(order, case["module"])
    at = torch.argsort(order, stable=True)
    sorted_q, zero, scale = round_groups(weight[:, at], bits, group, case["sym"], torch.float16)
    if not case.get("v2"):
        zero = zero.clamp(min=1) # the first version of the format cannot say 0
        sorted_q = (weight[:, at].double() / scale[:, order[at]] + zero[:, order[at]]).round()
        sorted_q = sorted_q.clamp(0, 2 ** bits - 1).to(torch.int64)
    q = torch.empty_like(sorted_q)
    q[:, at] = sorted_q
    low = 0 if case.get("v2") else 1
    tensors = {
        "qweight": words(q.T.reshape(cols // per, per, -1).transpose(1, 2), bits),
        "qzeros": words((zero.T - low).reshape(zero.shape[1], -1, per), bits),
        "scales": scale.T.half(), "g_idx": order.to(torch.int32)}
    if case.get("zero_bias"):
        tensors["bias"] = torch.zeros(weight.shape[0], dtype=torch.float16)
    return tensors, value_of(q, zero, scale, order)


def packed(weight, case):
    bits, cols = case["bits"], weight.shape[1]
    group = case["group"] if case["group"] > 0 else cols
    dtype = getattr(torch, case.get("scale", "bfloat16"))
    order = torch.arange(cols) // group
    if case.get("shuffled"):
        order = shuffled(order, case["module"])
    at = torch.argsort(order, stable=True)
    sorted_q, zero, scale = round_groups(weight[:, at], bits, group, case["sym"], dtype)
    q = torch.empty_like(sorted_q)
    q[:, at] = sorted_q
    middle = 2 ** (bits - 1)
    tensors = {"weight_packed": pack_to_int32((q - middle).to(torch.int8), bits),
               "weight_scale": scale.to(dtype),
               "weight_shape": torch.tensor(weight.shape, dtype=torch.int64)}
    if not case["sym"]:
        tensors["weight_zero_point"] = pack_to_int32((zero - middle).to(torch.int8), bits, 0)
    if case.get("shuffled"):
        tensors["weight_g_idx"] = order.to(torch.int32)
    return tensors, value_of(q, zero, scale, order)


def whole_bytes(weight, case):
    cols = weight.shape[1]
    q, zero, scale = round_groups(weight, 8, cols, case["sym"], torch.float32)
    tensors = {"weight": (q - 128).to(torch.int8), "weight_scale": scale.float()}
    if not case["sym"]:
        tensors["weight_zero_point"] = (zero - 128).to(torch.int8)
    return tensors, value_of(q, zero, scale, torch.zeros(cols, dtype=torch.int64))


def fp8(weight, case):
    rows, cols = weight.shape
    block_rows, block_cols = {"tensor": (rows, cols), "channel": (1, cols)}.get(
        case["strategy"], (128, 128))
    dtype = getattr(torch, case.get("scale", "float32"))
    scale = torch.empty(-(-rows // block_rows), -(-cols // block_cols), dtype=torch.float64)
    q = torch.empty(rows, cols, dtype=torch.float8_e4m3fn)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            rows_of = slice(i * block_rows, (i + 1) * block_rows)
            cols_of = slice(j * block_cols, (j + 1) * block_cols)
            block = weight[rows_of, cols_of].double()
            scale[i, j] = (block.abs().max() / 448).to(dtype).double()
            q[rows_of, cols_of] = (block / scale[i, j]).float().to(torch.float8_e4m3fn)
    of = scale.repeat_interleave(block_rows, 0)[:rows].repeat_interleave(block_cols, 1)[:, :cols]
    stored = scale.to(dtype)
    if case["strategy"] == "tensor":
        stored = stored.reshape(())
    tensors = {"weight": q, case["scale_name"]: stored}
    if case.get("input_scale"):
        tensors["input_scale"] = torch.tensor([0.01])
    return tensors, q.double() * of


# ---- models ----

def compressed(kind, bits, strategy, group=None, symmetric=True, number="int", **more):
    weights = {"num_bits": bits, "type": number, "symmetric": symmetric, "strategy": strategy,
               "group_size": group, "dynamic": False, "actorder": None, "observer": "minmax"}
    activations = more.pop("activations", None)
    return {"quant_method": "compressed-tensors", "format": kind, "ignore": ["lm_head"],
            "quantization_status": "compressed", "kv_cache_scheme": None,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                          "input_activations": activations,
                                          "output_activations": None}}, **more}


DYNAMIC = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True,
        "damp_percent": 0.1, "lm_head": False}

CASES = [
    dict(name="awq", family="llama", store=awq, group=64, plain=["k_proj"],
         config={"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm",
                 "zero_point": True, "modules_to_not_convert": ["k_proj"]}),
    dict(name="gptq", family="llama", store=gptq, bits=4, group=32, sym=True, zero_bias=True,
         config=dict(GPTQ, checkpoint_format="gptq")),
    dict(name="gptq_v2", family="qwen2", store=gptq, bits=4, group=64, sym=False, v2=True,
         config=dict(GPTQ, group_size=64, sym=False, checkpoint_format="gptq_v2")),
    dict(name="gptq_8", family="llama", store=gptq, bits=8, group=-1, sym=False,
         config=dict(GPTQ, bits=8, group_size=-1, sym=False)),
    dict(name="gptq_order", family="llama", store=gptq, bits=4, group=32, sym=False, shuffled=True,
         config=dict(GPTQ, desc_act=True, sym=False)),
    dict(name="packed_zeros", family="llama", store=packed, bits=4, group=32, sym=False,
         scale="float16", plain=["down_proj"],
         config=compressed("pack-quantized", 4, "group", 32, False)),
    dict(name="packed_rows", family="qwen2", store=packed, bits=4, group=-1, sym=True,
         config=compressed("pack-quantized", 4, "channel")),
    dict(name="packed_order", family="llama", store=packed, bits=4, group=32, sym=True,
         shuffled=True, config=compressed("pack-quantized", 4, "group", 32)),
    dict(name="packed_8", family="llama", store=packed, bits=8, group=64, sym=False,
         config=compressed("pack-quantized", 8, "group", 64, False)),
    dict(name="bytes", family="qwen3", store=whole_bytes, sym=True,
         config=compressed("int-quantized", 8, "channel", activations=DYNAMIC)),
    dict(name="bytes_zeros", family="llama", store=whole_bytes, sym=False,
         config=compressed("naive-quantized", 8, "channel", symmetric=False)),
    dict(name="fp8_blocks", family="qwen3", store=fp8, strategy="block",
         scale_name="weight_scale_inv", scale="float32",
         config={"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                 "weight_block_size": [128, 128]}),
    dict(name="fp8_rows", family="llama", store=fp8, strategy="channel", scale="bfloat16",
         scale_name="weight_scale", plain=["q_proj"],
         config=compressed("float-quantized", 8, "channel", number="float",
                           activations=dict(DYNAMIC, type="float"))),
    dict(name="fp8_tensor", family="llama", store=fp8, strategy="tensor", input_scale=True,
         scale_name="weight_scale",
         config=compressed("float-quantized", 8, "tensor", number="float",
                           activations=dict(DYNAMIC, type="float", dynamic=False))),
    # q, k and v, and gate and up, are one quantized matrix each.
    dict(name="fused_awq", family="phi3", store=awq, group=64,
         config={"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm",
                 "zero_point": True}),
    dict(name="fused_gptq", family="phi3", store=gptq, bits=4, group=32, sym=False, shuffled=True,
         config=dict(GPTQ, desc_act=True, sym=False)),
    dict(name="fused_packed", family="phi3", store=packed, bits=4, group=32, sym=False,
         plain=["gate_up_proj"], config=compressed("pack-quantized", 4, "group", 32, False)),
    dict(name="fused_fp8", family="phi3", store=fp8, strategy="block", heads=4,
         scale_name="weight_scale_inv", scale="float32",
         config={"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                 "weight_block_size": [128, 128]}),
]


def make_net(case):
    own = {"pad_token_id": 0} if case["family"] == "phi3" else {"head_dim": HEAD}
    config = getattr(transformers, CLASSES[case["family"]] + "Config")(
        vocab_size=VOCAB, hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=DIM // HEAD, num_key_value_heads=case.get("heads", 2), **own,
        max_position_embeddings=256,
        rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, rope_parameters=dict(PLAIN),
        dtype="bfloat16", architectures=[CLASSES[case["family"]] + "ForCausalLM"],
        attn_implementation="eager")
    net = getattr(transformers, CLASSES[case["family"]] + "ForCausalLM")(config).eval().float()
    for name, value in net.state_dict().items():
        noise = torch.randn(value.shape, generator=case["draw"])
        if "norm" in name:
            noise = 1.0 + 0.3 * noise
        elif name.endswith(".bias"):
            noise = 0.5 * noise
        elif "embed_tokens" not in name:
            scale = 2.5 if "lm_head" in name else 1.5 if "q_proj" in name else 1.0
            noise = scale * noise / value.shape[1] ** 0.5
        value.copy_(noise.bfloat16().float())
    return config, net


def part_of(case, name, row):
    """The matrix that a row of a fused one is of, and the first row of it."""
    kv = case.get("heads", 2) * HEAD
    parts = {"qkv_proj": [("q_proj", DIM), ("k_proj", kv), ("v_proj", kv)],
             "gate_up_proj": [("gate_proj", FFN), ("up_proj", FFN)]}
    stem, _, last = name.rpartition(".")
    first = 0
    for part, rows in parts.get(last, []):
        if row < first + rows:
            return f"{stem}.{part}", first
        first += rows
    return name, 0


def store(case, net):
    """Quantizes the matrices of the layers in place. Returns the tensors and sampled elements."""
    tensors, elements, whole = {}, {}, set()
    plain = case.get("plain", []) + ["lm_head"]
    for name, module in net.named_modules():
        if not isinstance(module, torch.nn.Linear) or any(part in name for part in plain):
            continue
        case["module"] = name
        parts, value = case["store"](module.weight.detach(), case)
        tensors.update({f"{name}.{part}": tensor.contiguous() for part, tensor in parts.items()})
        module.weight.data = value.float()
        places = [(int(torch.randint(value.shape[0], (), generator=case["draw"])),
                   int(torch.randint(value.shape[1], (), generator=case["draw"])))
                  for _ in range(SAMPLES)]
        whole.add(f"{name}.weight")
        for row, col in places:
            own, first = part_of(case, name, row)
            elements.setdefault(f"{own}.weight", []).append(
                [row - first, col, float(value[row, col].float()).hex()])
    for name, value in net.state_dict().items():
        if name not in whole:
            tensors[name] = value.bfloat16()
    return tensors, elements


def rounded(x, is_fp8):
    """Inputs of a matrix as they are rounded here."""
    x = x.bfloat16().float()
    if is_fp8:
        return x
    runs = x.reshape(*x.shape[:-1], -1, 32)
    scale = runs.abs().amax(-1, keepdim=True) / 127
    return ((runs / scale).round() * scale).reshape(x.shape)


def logits_of(net, prompt):
    with torch.no_grad():
        return net(torch.tensor([prompt])).logits[0].float().numpy()


def make(case, out):
    case["draw"] = torch.Generator().manual_seed(int.from_bytes(case["name"].encode()[-6:], "big"))
    folder = out / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config, net = make_net(case)
    tensors, elements = store(case, net)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    values = json.loads(config.to_json_string())
    values["quantization_config"] = case["config"]
    (folder / "config.json").write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")
    (folder / "elements.json").write_text(json.dumps(elements) + "\n")
    prompt = numpy.random.default_rng(len(case["name"])).integers(8, VOCAB, PROMPT).tolist()
    positions = sorted({0, 1, 2, 15, 16, PROMPT // 2, PROMPT - 2, PROMPT - 1})
    logits = logits_of(net, prompt)
    hooks = [module.register_forward_pre_hook(
        lambda module, x: (rounded(x[0], case["store"] is fp8),))
             for module in net.modules() if isinstance(module, torch.nn.Linear)]
    noise = numpy.sqrt(numpy.mean((logits_of(net, prompt) - logits)[positions] ** 2))
    for hook in hooks:
        hook.remove()
    print(f"{case['name']:16} logits {logits.std():.2f}  rounded inputs {noise:.4f}")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    (folder / "prompt.json").write_text(json.dumps(
        {"versions": versions, "prompt": prompt, "positions": positions, "vocab": VOCAB,
         "tolerance_rms": round(float(noise), 5)}) + "\n")
    logits[positions].astype("<f4").tofile(folder / "logits.f32")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    for case in CASES:
        if not (out / case["name"]).exists():
            make(case, out)


if __name__ == "__main__":
    main()
