#!/usr/bin/env python3
"""Trains a head for a target from recordings of `outrider record` (docs/train.md).

    python tools/train/train_head.py --target MODEL --recordings FOLDER --out HEAD [OPTION...]

HEAD gets config.json, model.safetensors, the log train.log, and train.pt, from which the same
command goes on where it was; --steps, --guesses, recordings and rates may be others then. SIGTERM
and Ctrl-C write all of them before the end. Before the first step, at the end, and with --evaluate
alone, the held-out texts say for each guess, counted from 1, how often the best of q is the best of
p, and how often a guess drawn from q is kept (sum min(p, q)) at temperatures 1 and 0.4."""
import argparse
import json
import math
import os
import pathlib
import random
import signal
import sys
import time

try:
    import safetensors.torch
    import torch
except ModuleNotFoundError as missing:
    sys.exit(f"train_head.py: there is no {missing.name}: pip install torch safetensors")

import eagle3
import parallel
import places
from losses import LOSSES, acceptance_of, loss_of, target_rows
from nets import Lender, open_model
from recordings import Recordings, Unfit

KINDS = {"eagle3": eagle3.make, "medusa": places.make_medusa, "blockwise": places.make_blockwise,
         "pass": parallel.make_pass, "pard": parallel.make_pard}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--kind", choices=KINDS, default="eagle3")
    add("--target", required=True, help="a folder with config.json and safetensors, or a GGUF file")
    add("--recordings", required=True, action="append",
        help="a folder; may be given more than once")
    add("--out", required=True, help="the folder of the head; what is there is gone on with")
    add("--begin", help="EAGLE-3: the folder of a head that goes on learning; it decides its sizes")
    add("--guesses", type=int, default=5,
        help="1 to 16 that are trained, a token further each; default 5")
    add("--columns", type=int, default=0, help="size of a reduced vocabulary; default: all")
    add("--lm-head", choices=("auto", "own", "lent"), default="auto",
        help="auto: own where the vocabulary is reduced, which other engines need")
    add("--ffn", type=int, default=0, help="width of EAGLE-3's MLP, by default the target's, or of "
        "the hidden layer of blockwise heads, by default the places' together")
    add("--layers", type=int, default=1, help="blocks of each of Medusa's heads; default 1")
    add("--draft", help="PARD: the folder of the draft model that it begins as")
    add("--mask-token", type=int, help="PARD: its id; default: the rarest of the texts")
    add("--loss", choices=LOSSES, default="hybrid", help="docs/train.md; default hybrid")
    add("--decay", type=float, default=0.9, help="weight of a guess over that before; default 0.9")
    add("--temperatures", default="0.4,0.7,1",
        help="of p and q while training, one of them a step; default 0.4,0.7,1")
    add("--steps", type=int, default=2000, help="in all, with those of before; default 2000")
    add("--texts", type=int, default=8, help="of a step; default 8")
    add("--length", type=int, default=256, help="tokens of a text that are read; default 256")
    add("--rate", type=float, default=3e-3, help="the largest learning rate; default 0.003")
    add("--warm-up", type=int, default=50, help="steps to that rate; default 50")
    add("--held-out", type=int, default=16, help="one of about so many texts; default 16")
    add("--evaluate-texts", type=int, default=64, help="held-out texts that are read at most")
    add("--save-every", type=int, default=200, help="steps; default 200")
    add("--seed", type=int, default=1, help="of the order of the texts; default 1")
    add("--threads", type=int, default=2, help="of torch; 1 beside a server; default 2")
    add("--device", default="cpu", help="cpu or cuda")
    add("--compute", choices=("bfloat16", "float32"), default="bfloat16",
        help="of the matrices while training; bfloat16 is faster where the machine has it")
    add("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of the file")
    add("--evaluate", action="store_true", help="only evaluate what train.pt holds")
    options = parser.parse_args(arguments)
    for name, least, most in (("guesses", 1, 16), ("held_out", 2, None), ("texts", 1, None),
                              ("length", 8, None), ("steps", 0, None), ("save_every", 1, None),
                              ("threads", 1, None)):
        value = getattr(options, name)
        if value < least or most is not None and value > most:
            limit = f"{least} to {most}" if most is not None else f"{least} or more"
            parser.error(f"--{name.replace('_', '-')} is {value}, must be {limit}")
    return options


class Training:
    def __init__(self, options):
        self.options = options
        self.temperatures = [float(t) for t in options.temperatures.split(",")]
        self.out = pathlib.Path(options.out)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unfit(f"--out {self.out}: {error.strerror}") from error
        self.recordings = Recordings(options.recordings, options.held_out)
        self.lender = Lender(open_model(options.target)).to(options.device)
        self.net = KINDS[options.kind](options, self.lender, self.recordings).to(options.device)
        self.learnt = [p for p in self.net.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.learnt, lr=options.rate, betas=(0.9, 0.95),
                                           weight_decay=0.01)
        self.step, self.seconds, self.is_over = 0, 0.0, False
        self.resume()
        self.log = (self.out / "train.log").open("a", encoding="utf-8")

    def say(self, text):
        print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def resume(self):
        path = self.out / "train.pt"
        if not path.exists():
            return
        state = torch.load(path, map_location=self.options.device, weights_only=True)
        if state["kind"] != self.options.kind:
            raise Unfit(f"{path} is of --kind {state['kind']}: name another --out")
        try:
            self.net.load_state_dict(state["net"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise Unfit(f"{path} is of a net of other sizes ({str(error).splitlines()[0]}): give "
                        "the same options, or another --out") from error
        self.step, self.seconds = state["step"], state["seconds"]

    def save(self):
        state = {"kind": self.options.kind, "net": self.net.state_dict(), "step": self.step,
                 "optimizer": self.optimizer.state_dict(), "seconds": self.seconds}
        replace(self.out / "train.pt", lambda path: torch.save(state, path))
        config, tensors = self.net.files(self.lender, self.recordings,
                                         getattr(torch, self.options.dtype))
        tensors = {name: value.contiguous().cpu() for name, value in tensors.items()}
        if hasattr(self.net, "copy_rest"):
            self.net.copy_rest(self.out)
        replace(self.out / "config.json", lambda path: path.write_text(
            json.dumps(config, indent=1) + "\n", encoding="utf-8"))
        replace(self.out / "model.safetensors",
                lambda path: safetensors.torch.save_file(tensors, path))

    def rate(self):
        o = self.options
        if self.step < o.warm_up:
            return o.rate * (self.step + 1) / o.warm_up
        done = min(1.0, (self.step - o.warm_up) / max(1, o.steps - o.warm_up))
        return o.rate * (0.02 + 0.98 * (1 + math.cos(math.pi * done)) / 2)

    def guesses(self, batch, chance, n_guesses):
        normed = self.lender.normed(self.recordings, batch)
        kind = torch.device(self.options.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.options.compute == "bfloat16"):
            rows, logits = self.net.guesses(self.lender, batch, normed, n_guesses, chance)
        return normed, rows, [row.float() for row in logits]

    def take_step(self, batch):
        """The loss and the acceptance of each guess."""
        o, chance = self.options, random.Random(f"{self.options.seed} step {self.step}")
        temperature = chance.choice(self.temperatures)
        normed, rows, logits = self.guesses(batch, chance, o.guesses)
        p = target_rows(self.lender, normed, self.net.ids, temperature)
        total, kept, weights = 0.0, [], 0.0
        for guess, row in enumerate(logits):
            has = batch.has(rows, guess)
            at = (rows + 1 + guess).clamp(max=p.shape[1] - 1)
            loss, mean = loss_of(o.loss, p[:, at], row, has, temperature)
            total, weights = total + loss * o.decay ** guess, weights + o.decay ** guess
            kept.append(mean.item())
        loss = total / weights
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.learnt, 1.0)
        self.optimizer.step()
        return loss.item(), kept

    def train(self):
        o = self.options
        batches = self.recordings.batches(o.texts, o.length, o.seed, self.step)
        before, sums = self.seconds, []
        start = time.process_time()
        while self.step < o.steps and not self.is_over:
            loss, kept = self.take_step(next(batches).to(o.device))
            if not math.isfinite(loss):
                raise Unfit(f"the loss of step {self.step} is {loss}: a smaller --rate helps")
            self.step += 1
            self.seconds = before + time.process_time() - start
            sums.append([loss, *kept])
            if self.step % 20 == 0 or self.step == o.steps:
                means = [sum(column) / len(sums) for column in zip(*sums)]
                self.say(f"step {self.step}  loss {means[0]:.4f}  kept " +
                         " ".join(f"{mean:.3f}" for mean in means[1:]) +
                         f"  {self.seconds:.0f} s of CPU")
                sums = []
            if self.step % o.save_every == 0:
                self.save()
        self.save()

    @torch.no_grad()
    def evaluate(self):
        """Lines of kept and best for each guess, at temperatures 1 and 0.4."""
        o, chance = self.options, random.Random(self.options.seed)
        sums = {}
        for batch in self.recordings.held_out_batches(o.texts, o.length, o.evaluate_texts):
            if self.is_over:
                return
            batch = batch.to(o.device)
            normed, rows, logits = self.guesses(batch, chance, o.guesses)
            whole = normed @ self.lender.lm_head.T
            for guess, row in enumerate(logits):
                has = batch.has(rows, guess)
                at = (rows + 1 + guess).clamp(max=normed.shape[1] - 1)
                best = row.argmax(-1)
                best = best if self.net.ids is None else self.net.ids[best]
                values = [has.sum(), ((best == whole.argmax(-1)[:, at]) & has).sum()]
                for temperature in (1.0, 0.4):
                    p = target_rows(self.lender, normed, self.net.ids, temperature)[:, at]
                    q = torch.softmax(row / temperature, dim=-1)
                    values.append((acceptance_of(p, q) * has).sum())
                old = sums.get(guess, [0.0] * 4)
                sums[guess] = [a + b.item() for a, b in zip(old, values)]
        self.say(f"held-out texts after step {self.step}")
        for name, column in (("best", 1), ("kept at 1", 2), ("kept at 0.4", 3)):
            self.say(f"{name:12s}" + " ".join(f"{row[column] / row[0]:.3f}" if row[0] else "-"
                                              for row in sums.values()) +
                     f"  of {sums[0][0]:.0f} held-out guesses")


def replace(path, write):
    """Writes a file so that there is a whole one whenever the program ends."""
    part = path.with_name(path.name + ".part")
    part.touch()
    mode = part.stat().st_mode
    write(part)
    part.chmod(mode)  # safetensors writes files for their owner alone
    os.replace(part, path)


def main(arguments):
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    training = Training(options)

    def end(number, frame):
        training.is_over = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    if not options.evaluate and training.step == 0:
        training.evaluate()
    if not options.evaluate:
        training.train()
    training.evaluate()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Unfit as unfit:
        sys.exit(f"train_head.py: {unfit}")
