#!/usr/bin/env python3
"""Makes tests/golden/place_heads: small random heads that guess several places from one feature,
with the logits that the formats' own code computes for them.

    python tests/oracle/place_heads_golden.py OUT MODELS          make those that are not there
    python tests/oracle/place_heads_golden.py OUT MODELS --check  recompute and compare

Needs torch and safetensors. The nets are re-typed from Medusa's medusa_model.py (ResBlock, and
[ResBlock] * n, which repeats one block), TGI's medusa.py (MedusaHeadV2, which shares the target's
lm_head), vLLM's medusa.py (blocks of their own, other names), and tensor2tensor's
transformer_parallel.py (dense_relu_dense, and the residual of layer_postprocess). Medusa's own
heads are saved as its training saves them and come from tools/convert_medusa.py. MODELS is
tests/golden/models, of which some are the targets that lend lm_head.

Per head: config.json and model.safetensors; features.bf16 = [rows][D]; golden.json = {"versions",
"target", "rows", "places", "columns", "tolerance_rms"}; logits.f32 = float32 [rows][places]
[columns] in fp32 from the stored weights. For each property the script also computes what a program
without it would get, and refuses to write a head where that differs less than ten times as much as
a bf16 run does, which is tolerance_rms."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import safetensors.torch
import torch
from torch import nn

VOCAB, DIM, ROWS = 320, 64, 5
CONVERTER = pathlib.Path(__file__).resolve().parents[2] / "tools/convert_medusa.py"


class ResBlock(nn.Module):
    """medusa_model.py."""

    def __init__(self, hidden_size):
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size)
        self.act = nn.SiLU()

    def forward(self, x):
        return x + self.act(self.linear(x))


class Medusa(nn.ModuleList):
    """medusa_model.py: self.medusa_head."""

    def __init__(self, heads, layers):
        super().__init__([nn.Sequential(*([ResBlock(DIM)] * layers),
                                        nn.Linear(DIM, VOCAB, bias=False)) for _ in range(heads)])

    def forward(self, g):
        return torch.stack([head(g) for head in self], dim=1)


class MedusaShared(nn.ModuleList):
    """TGI's MedusaHeadV2: the blocks alone, and the target's lm_head."""

    def __init__(self, heads, layers, lm_head):
        super().__init__([nn.Sequential(*([ResBlock(DIM)] * layers)) for _ in range(heads)])
        self.lm_head = [lm_head]

    def forward(self, g):
        return torch.stack([head(g) for head in self], dim=1) @ self.lm_head[0].to(g.dtype).T


class ResidualBlock(nn.Module):
    """vLLM's medusa.py."""

    def __init__(self, num_layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(DIM, DIM, bias=False) for _ in range(num_layers))
        self.act = nn.SiLU()

    def forward(self, x):
        for layer in self.layers:
            x = x + self.act(layer(x))
        return x


class MedusaListed(nn.Module):
    """vLLM's medusa.py."""

    def __init__(self, heads, layers):
        super().__init__()
        self.blocks = nn.ModuleList(ResidualBlock(layers) for _ in range(heads))
        self.lm_heads = nn.ModuleList(nn.Linear(DIM, VOCAB, bias=False) for _ in range(heads))

    def forward(self, g):
        return torch.stack([head(block(g)) for block, head in zip(self.blocks, self.lm_heads)],
                           dim=1)


class Blockwise(nn.Module):
    """transformer_parallel.py's body: dense_relu_dense to [block][D], plus decoder_output, then the
    projection of the model. The first output, p_1, is the model's and left out."""

    def __init__(self, places, width, lm_head):
        super().__init__()
        self.hidden = nn.Linear(DIM, width)
        self.output = nn.Linear(width, places * DIM)
        self.lm_head = [lm_head]
        self.places = places

    def forward(self, g):
        block = self.output(torch.relu(self.hidden(g))).reshape(len(g), self.places, DIM)
        return (g[:, None] + block) @ self.lm_head[0].to(g.dtype).T


def head(name, kind, places, layers=1, target=None, dtype="bfloat16", width=0, without=None):
    """without: what a program without the property does: "layers": it computes one block; "hidden":
    it adds nothing to g; "order": place k is computed by head k + 1."""
    return dict(name=name, kind=kind, places=places, layers=layers, target=target, dtype=dtype,
                width=width, without=without)


HEADS = [
    head("medusa", "medusa", 4, dtype="float16", without="order"),
    head("medusa_repeated", "medusa", 2, layers=3, without="layers"),
    head("medusa_shared", "shared", 3, layers=2, target="llama_untied", without="layers"),
    head("medusa_listed", "listed", 2, layers=2, dtype="float32", without="layers"),
    head("blockwise", "blockwise", 3, target="llama_tied", width=160, without="hidden"),
]


def lm_head_of(case, models):
    if not case["target"]:
        return None
    weights = safetensors.torch.load_file(models / case["target"] / "model.safetensors")
    return weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).float()


def make_net(case, models, layers):
    lm_head = lm_head_of(case, models)
    kinds = {"medusa": lambda: Medusa(case["places"], layers),
             "shared": lambda: MedusaShared(case["places"], layers, lm_head),
             "listed": lambda: MedusaListed(case["places"], layers),
             "blockwise": lambda: Blockwise(case["places"], case["width"], lm_head)}
    return kinds[case["kind"]]().eval()


def build(case, models):
    """The net with its stored weights."""
    generator = torch.Generator().manual_seed(int.from_bytes(case["name"].encode()[-6:], "little"))
    net = make_net(case, models, case["layers"])
    for _, value in sorted(net.named_parameters()):
        scale = 0.5 if value.dim() == 1 else 2.0 / value.shape[-1] ** 0.5
        random = scale * torch.randn(value.shape, generator=generator)
        value.data = random.to(getattr(torch, case["dtype"])).float()
    return net


def features_of(case):
    generator = torch.Generator().manual_seed(len(case["name"]))
    return (1.5 * torch.randn((ROWS, DIM), generator=generator)).bfloat16()


def run(case, net, dtype):
    with torch.no_grad():
        return net.to(dtype)(features_of(case).to(dtype)).float()


def run_without(case, models):
    net = build(case, models)
    if case["without"] == "layers":
        other = make_net(case, models, 1)
        stored = net.state_dict()
        names = {name: name.replace(f".{case['layers']}.weight", ".1.weight") for name in stored}
        other.load_state_dict({new: stored[old] for old, new in names.items()
                               if new in other.state_dict()})
        return run(case, other, torch.float32)
    if case["without"] == "order":
        return run(case, net, torch.float32).roll(-1, dims=1)
    nn.init.zeros_(net.output.weight)
    nn.init.zeros_(net.output.bias)
    return run(case, net, torch.float32)


def config_of(case):
    if case["kind"] == "blockwise":
        return {"model_type": "blockwise", "block_size": case["places"] + 1,
                "base_model_name_or_path": "random"}
    if case["kind"] == "listed":
        return {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": DIM,
                "vocab_size": VOCAB, "num_heads": case["places"],
                "num_hidden_layers": case["layers"], "medusa_fc_bias": False}
    return {"medusa_num_heads": 2, "medusa_num_layers": case["layers"],
            "base_model_name_or_path": "random", "transformers_version": "4.31.0"}


def save(case, net, folder):
    kind = getattr(torch, case["dtype"])
    tensors = {name: value.to(kind) for name, value in net.state_dict().items()}
    text = json.dumps(config_of(case), indent=1, sort_keys=True) + "\n"
    if case["kind"] in ("listed", "blockwise"):
        safetensors.torch.save_file(tensors, folder / "model.safetensors",
                                    metadata={"format": "pt"})
        (folder / "config.json").write_text(text)
        return
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch)
        torch.save(tensors, source / "medusa_lm_head.pt")
        (source / "config.json").write_text(text)
        subprocess.run([sys.executable, CONVERTER, source, folder], check=True)
    if case["name"] == "medusa":  # as it is published, with another number of heads than there are
        (folder / "config.json").write_text(text)
        (folder / "model.safetensors").rename(folder / "medusa_lm_head.safetensors")


def rms(a, b):
    return float(((a - b) ** 2).mean().sqrt())


def make(case, out, models):
    folder = out / case["name"]
    net = build(case, models)
    logits = run(case, net, torch.float32)
    noise = rms(run(case, build(case, models), torch.bfloat16), logits)
    effect = rms(run_without(case, models), logits)
    line = f"{case['name']:16} logits {logits.std():.2f}  bf16 {noise:.4f}  without {effect:.3f}"
    if effect < 10 * noise:
        sys.exit(line + ": this head cannot tell")
    print(line)
    folder.mkdir(parents=True)
    save(case, net, folder)
    features_of(case).view(torch.int16).numpy().tofile(folder / "features.bf16")
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")
    facts = {"versions": {"torch": torch.__version__}, "target": case["target"], "rows": ROWS,
             "places": case["places"], "columns": VOCAB, "tolerance_rms": round(noise, 5)}
    (folder / "golden.json").write_text(json.dumps(facts) + "\n")


def check(case, out, models):
    stored = numpy.fromfile(out / case["name"] / "logits.f32", "<f4")
    again = run(case, build(case, models), torch.float32).numpy().ravel()
    worst = float(numpy.abs(again - stored).max())
    print(f"{case['name']:16} largest difference {worst:.2e}")
    return worst < 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        sys.exit(0 if all([check(case, args.out, args.models) for case in HEADS]) else 1)
    for case in HEADS:
        if not (args.out / case["name"]).exists():
            make(case, args.out, args.models)


if __name__ == "__main__":
    main()
