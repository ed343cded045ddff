"""Trains the small qwen35 model: trunk and MTP block together, on one GPU, in a fixed number of seconds or steps.

Owns: batches, losses, the schedule, evaluation on held-out text, checkpoints. It does not own the network
(`model.py`), the corpus (`data.py`) or the file that the engine reads (`export.py`).

    python -m tiny_models.train.train --ids DIR/ids --out DIR/run --seconds 800

The run ends at `--seconds`: after the first steps the speed is measured, the number of steps is fixed from it and
printed; `--steps` repeats such a run.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tiny_models.train.model import Config, Model, parameter_count

DEPTH = 3
#: Weight of each chain step's loss beside the trunk's.
CHAIN_WEIGHTS = (0.5, 0.35, 0.25)
#: Share of a chain step's loss that follows the trunk's distribution; the rest follows the text.
SOFT = 0.6
MEASURED_FROM, MEASURED_TO = 40, 140


def load_ids(folder: Path, name: str, device: str) -> Tensor:
    raw = lzma.decompress((folder / f"{name}.xz").read_bytes())
    return torch.from_numpy(np.frombuffer(raw, np.uint16).astype(np.int16)).to(device)


def load_all(folder: Path, device: str) -> dict[str, Tensor]:
    names = ["train-code", "train-prose", "held-code", "held-prose"]
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(lambda name: load_ids(folder, name, device), names), strict=True))


class Batches:
    """Windows of T+1 ids: each stream is cut at a random phase, its windows are shuffled, and used once per pass."""

    def __init__(self, streams: list[Tensor], rows: list[int], tokens: int, seed: int) -> None:
        self.streams, self.rows, self.tokens = streams, rows, tokens
        self.generator = torch.Generator(device=streams[0].device).manual_seed(seed)
        self.starts = [torch.empty(0, dtype=torch.int64, device=s.device) for s in streams]
        self.offsets = torch.arange(tokens + 1, device=streams[0].device)
        self.passes = [-1.0] * len(streams)

    def _draw(self, i: int) -> Tensor:
        stream, count = self.streams[i], self.rows[i]
        if len(self.starts[i]) < count:
            device = stream.device
            phase = int(torch.randint(self.tokens, (1,), generator=self.generator, device=device))
            windows = (len(stream) - phase - 1) // self.tokens
            order = torch.randperm(windows, generator=self.generator, device=device)
            self.starts[i] = torch.cat([self.starts[i], phase + order * self.tokens])
            self.passes[i] += 1
        now, self.starts[i] = self.starts[i][:count], self.starts[i][count:]
        return stream[now[:, None] + self.offsets]

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield torch.cat([self._draw(i) for i in range(len(self.streams))]).long()


def text_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross entropy against the next tokens, and the logits."""
    logits = F.linear(hidden, weight)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()), logits


def chain_loss(hidden: Tensor, weight: Tensor, targets: Tensor, teacher: Tensor) -> Tensor:
    """Cross entropy of a chain step's head against the text and against the trunk's own distribution."""
    logits = F.linear(hidden, weight).flatten(0, 1).float()
    norm = logits.logsumexp(-1)
    hard = norm - logits.gather(1, targets.flatten()[:, None])[:, 0]
    soft = norm - (torch.softmax(teacher.flatten(0, 1).float(), -1) * logits).sum(-1)
    return ((1 - SOFT) * hard + SOFT * soft).mean()


class Losses:
    """The loss of a batch. The heads are compiled apart from the blocks so that each is compiled once."""

    def __init__(self, model: Model, compiled: bool) -> None:
        self.model = model
        self.text, self.chain = text_loss, chain_loss
        if compiled:
            torch._dynamo.config.cache_size_limit = 64
            self.text, self.chain = torch.compile(text_loss), torch.compile(chain_loss)
            for block in model.blk:
                block.forward = torch.compile(block.forward, dynamic=False)
            model.mtp.step = torch.compile(model.mtp.step, dynamic=False)

    def __call__(self, window: Tensor) -> tuple[Tensor, Tensor]:
        """(training loss, trunk cross entropy in nats per token) of ids [B, T+1]."""
        ids, targets = window[:, :-1], window[:, 1:]
        weight = self.model.token_embd.weight
        hidden = self.model(ids)
        trunk, logits = self.text(hidden, weight, targets)
        logits = logits.detach()
        loss = trunk
        for factor, h in zip(CHAIN_WEIGHTS, self.model.drafts(ids, hidden, DEPTH), strict=True):
            loss = loss + factor * self.chain(h, weight, targets, logits)
        return loss, trunk.detach()


@torch.no_grad()
@torch.compiler.set_stance("force_eager")
def held_out(model: Model, stream: Tensor, tokens: int, windows: int, rows: int = 16) -> dict[str, object]:
    """Loss in nats per token, and for each chain depth how often the draft equals the trunk's choice while all
    drafts before it did (the text stands for the chain's own tokens)."""
    total, count = 0.0, 0
    agree = np.zeros(DEPTH)
    starts = torch.arange(min(windows, (len(stream) - 1) // tokens), device=stream.device) * tokens
    for some in starts.split(rows):
        window = stream[some[:, None] + torch.arange(tokens + 1, device=stream.device)].long()
        ids, targets = window[:, :-1], window[:, 1:]
        with torch.autocast(stream.device.type, dtype=torch.bfloat16):
            hidden = model(ids)
            logits = model.head(hidden)
            total += F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum").item()
            choice = logits.argmax(-1)
            for s, h in enumerate(model.drafts(ids, hidden, DEPTH)):
                agree[s] += (model.head(h).argmax(-1) == choice).float().sum().item()
        count += ids.numel()
    return {"loss": total / count, "agreement": [round(float(a), 4) for a in agree / count]}


def optimiser(model: Model, rate: float) -> torch.optim.Optimizer:
    """AdamW; matrices decay, vectors, the convolution and the embedding do not."""
    decay, plain = [], []
    for name, p in model.named_parameters():
        (decay if p.ndim == 2 and "conv" not in name and "embd" not in name else plain).append(p)
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    fused = next(model.parameters()).device.type == "cuda"
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def rate_at(step: int, steps: int, warm: int = 150) -> float:
    """Share of the peak rate: linear warm-up, then a cosine to 2 %."""
    if step < warm:
        return (step + 1) / warm
    return 0.02 + 0.49 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))


def save(model: Model, out: Path, parts: int = 4) -> None:
    """Float32 weights as a few files of flat values plus their names and shapes, each part under 16 MiB."""
    out.mkdir(parents=True, exist_ok=True)
    state = {k: v.detach().float().cpu().numpy() for k, v in model.state_dict().items()}
    flat = np.concatenate([v.ravel() for v in state.values()])
    for i, piece in enumerate(np.array_split(flat, parts)):
        piece.tofile(out / f"weights-{i}.f32")
    table = {"config": model.c.as_dict(), "parts": parts, "tensors": {k: list(v.shape) for k, v in state.items()}}
    (out / "weights.json").write_text(json.dumps(table))


def restore(out: Path) -> Model:
    """The model that `save` wrote."""
    table = json.loads((out / "weights.json").read_text())
    flat = np.concatenate([np.fromfile(out / f"weights-{i}.f32", np.float32) for i in range(table["parts"])])
    state, at = {}, 0
    for name, shape in table["tensors"].items():
        size = math.prod(shape)
        state[name] = torch.from_numpy(flat[at : at + size].reshape(shape).copy())
        at += size
    model = Model(Config(**table["config"]))
    model.load_state_dict(state)
    return model


def run(args: argparse.Namespace) -> None:
    """One training run, from reading the ids to the saved weights."""
    device = args.device
    begun = time.monotonic()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    ids = load_all(args.ids, device)
    model = Model(Config(**json.loads(args.config))).to(device)
    prose_rows = round(args.rows * args.prose)
    streams = [ids["train-code"], ids["train-prose"]]
    batches = Batches(streams, [args.rows - prose_rows, prose_rows], args.tokens, args.seed)
    losses, adam = Losses(model, args.compile), optimiser(model, args.rate)
    report = {"parameters": parameter_count(model), "args": {k: str(v) for k, v in vars(args).items()}}
    print(f"{report['parameters']} parameters, ids in {time.monotonic() - begun:.1f} s", flush=True)
    steps, shown, marks = args.steps or 10**9, [], {}
    for step, window in enumerate(batches):
        if step >= steps:
            break
        if step in (MEASURED_FROM, MEASURED_TO):
            if device == "cuda":
                torch.cuda.synchronize()
            marks[step] = time.monotonic()
        if step == MEASURED_TO:
            each = (marks[MEASURED_TO] - marks[MEASURED_FROM]) / (MEASURED_TO - MEASURED_FROM)
            speed = args.rows * args.tokens / each
            if not args.steps:
                steps = step + int((args.seconds - (time.monotonic() - begun)) / each)
            print(f"{each * 1e3:.1f} ms a step, {speed / 1e3:.0f} k tokens/s, {steps} steps", flush=True)
        for group in adam.param_groups:
            group["lr"] = args.rate * rate_at(step, steps)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss, trunk = losses(window)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        shown.append(trunk)
        if step % args.every == args.every - 1:
            mean = torch.stack(shown).mean().item()
            shown = []
            print(f"{time.monotonic() - begun:6.1f} s step {step + 1} loss {mean:.4f}", flush=True)
            if not math.isfinite(mean):
                raise SystemExit("the loss is not finite")
            if (step + 1) % (10 * args.every) == 0:
                save(model, args.out)
    save(model, args.out)
    report |= {"steps": steps, "tokens": steps * args.rows * args.tokens, "passes": batches.passes}
    for name in ("held-code", "held-prose"):
        report[name] = held_out(model, ids[name], args.tokens, 320)
    report["seconds"] = round(time.monotonic() - begun, 1)
    (args.out / "report.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=800, help="length of the run when --steps is not given")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rows", type=int, default=64, help="sequences in a batch")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens in a sequence, a multiple of 64")
    parser.add_argument("--prose", type=float, default=0.25, help="share of the rows that is prose")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--every", type=int, default=100, help="steps between lines of output")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--config", default="{}", help="JSON with fields of Config that differ from the defaults")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
