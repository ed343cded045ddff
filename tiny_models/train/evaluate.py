"""Measures drafting: tokens per step of the MTP chain on the model's own greedy continuations of held-out text.

Owns: greedy continuation in torch, the walk that counts accepted drafts, prompts. It does not own the engine's loop;
it says what that loop should reach.

    python -m tiny_models.train.evaluate --run DIR/run --ids DIR/ids [--device cuda]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tiny_models.train.model import CHUNK, Model
from tiny_models.train.train import load_ids, restore

Array = np.ndarray[Any, Any]


def padded(ids: Tensor) -> Tensor:
    """Ids with zeros behind up to a multiple of the chunk; causal layers do not see them."""
    return torch.nn.functional.pad(ids, (0, -ids.shape[1] % CHUNK))


@torch.no_grad()
def greedy(model: Model, prompts: Tensor, count: int) -> Tensor:
    """Prompts [B, P] with `count` most likely tokens each behind them; runs the whole sequence for every token."""
    ids = prompts
    for _ in range(count):
        hidden = model(padded(ids))[:, ids.shape[1] - 1]
        ids = torch.cat([ids, model.head(hidden).argmax(-1, keepdim=True)], 1)
    return ids


@torch.no_grad()
def proposals(model: Model, ids: Tensor, depth: int) -> tuple[Array, Array]:
    """(token, probability) of chain step s at every position, each [depth, B, T]: the guess for position + 1 after
    consuming the sequence up to it, by a chain that started s − 1 positions earlier."""
    whole = padded(ids)
    tokens, chances = [], []
    for h in model.drafts(whole, model(whole), depth):
        best = torch.softmax(model.head(h)[:, : ids.shape[1]].float(), -1).max(-1)
        tokens.append(best.indices.cpu().numpy())
        chances.append(best.values.cpu().numpy())
    return np.stack(tokens), np.stack(chances)


def walk(ids: Array, tokens: Array, chances: Array, start: int, p_min: float) -> list[int]:
    """Accepted drafts of each step when decoding one sequence from `start`; a chain stops before a guess < p_min.

    ids [T] is a greedy continuation, so a draft is accepted exactly when it equals the next id; steps whose drafts
    would reach behind the end are not counted.
    """
    depth, at, accepted = len(tokens), start, []
    while at + depth + 1 < len(ids):
        a = 0
        while a < depth and chances[a, at + a] >= p_min and tokens[a, at + a] == ids[at + a + 1]:
            a += 1
        accepted.append(a)
        at += a + 1
    return accepted


def distinct(ids: Array) -> float:
    """Share of different 4-grams: near 0 when a continuation loops."""
    grams = {tuple(ids[i : i + 4]) for i in range(len(ids) - 3)}
    return len(grams) / max(1, len(ids) - 3)


def measure(model: Model, stream: Tensor, prompts: int, length: int, count: int, depth: int) -> dict[str, object]:
    """Tokens per step (accepted + 1) and acceptance by depth for prompts spread evenly over a stream of ids."""
    starts = torch.linspace(0, len(stream) - length - 1, prompts).long()
    rows = stream[(starts[:, None] + torch.arange(length)).to(stream.device)].long()
    ids = greedy(model, rows, count)
    tokens, chances = proposals(model, ids, depth)
    lines = ids.cpu().numpy()
    report: dict[str, object] = {"prompts": prompts, "depth": depth}
    for p_min in (0.0, 0.6):
        steps = [walk(lines[b], tokens[:, b], chances[:, b], length - 1, p_min) for b in range(prompts)]
        flat = np.concatenate([np.array(s) for s in steps])
        report[f"tokens_per_step_pmin_{p_min}"] = round(float(flat.mean()) + 1, 3)
        if not p_min:
            report["prefix_accepted"] = [round(float((flat >= d).mean()), 3) for d in range(1, depth + 1)]
    report["distinct_4grams"] = round(float(np.mean([distinct(row[length:]) for row in lines])), 3)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--ids", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--length", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--count", type=int, default=128, help="tokens generated")
    args = parser.parse_args()
    model = restore(args.run).to(args.device).eval()
    for name in ("held-code", "held-prose"):
        stream = load_ids(args.ids, name, args.device)
        for depth in (3, 7):
            result = measure(model, stream, args.prompts, args.length, args.count, depth)
            print(name, json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
