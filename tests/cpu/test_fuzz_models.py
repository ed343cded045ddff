"""The fuzzer of accepted models: a slice of it with fixed seeds, what it reaches, and that it finds faults.

The whole is run with `scripts/fuzz_models.py`; what it found is tested where it belongs.
"""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.devices import CpuExecutor, ReferenceExecutor
from ie.model.config import ARCHITECTURES
from ie.program import View
from ie.program.step import StepInputs
from scripts import fuzz_models
from tests.fuzz.campaign import Campaign, Result, check_case, genes_reached, places, reduced, run_case
from tests.fuzz.case import FORMAT_NAMES, GENES, Case, draw, from_json
from tests.fuzz.checks import vanishing

SLICE = range(25)
CASES = [draw(seed) for seed in range(3000)]
PLAIN: Case = {"seed": 1}


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    fuzz_models.warm()


def test_a_slice_finds_nothing(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, reduce_seconds=0.0)
    campaign.run(SLICE)
    assert not campaign.findings, "\n".join(campaign.summary())
    assert campaign.made == len(SLICE) and campaign.outcomes["accepted"] > 0.6 * campaign.made
    assert {"compared", "generated", "command", "perplexity"} <= set(campaign.facts)


# ---- what it reaches ----


def test_every_value_of_every_gene_is_reached() -> None:
    wanted = {(name, repr(v)) for name, (usual, odd) in GENES.items() for v in odd if v != usual}
    assert wanted <= genes_reached(CASES)


def test_every_format_is_reached_in_every_architecture() -> None:
    reached = {pair for case in CASES[:1200] for pair in places(case)}
    assert {(a, f) for a in ARCHITECTURES for f in FORMAT_NAMES} <= reached


def test_a_seed_is_a_case() -> None:
    assert draw(7) == draw(7) != draw(8)
    assert from_json(json.loads(json.dumps(draw(7)))) == draw(7)


def test_gaps_are_told(tmp_path: Path) -> None:
    """A generator whose files are all refused, or of one kind, does not pass for a run without findings."""
    campaign = Campaign(tmp_path)
    campaign.made = 1000
    campaign.outcomes["refused"] = 1000
    found = list(fuzz_models.gaps(campaign))
    assert "only 0 of 1000 cases were accepted" in found and "never: compared" in found
    assert "no accepted model of architecture gemma3" in found
    assert "no accepted model with a tensor of format Q4_K" in found


# ---- planted faults ----


def outcome(tmp_path: Path, case: Case = PLAIN, check: Any = check_case, seconds: float = 60.0) -> Result:
    result = run_case(case, tmp_path, check, seconds)
    assert result.outcome == "finding", result
    return result


def planted(action: Callable[[], Any]) -> Any:
    def check(case: Case, path: Path) -> Any:
        action()
        return None, set(), set()

    return check


def test_the_ordinary_case_is_fine(tmp_path: Path) -> None:
    assert run_case(PLAIN, tmp_path).outcome == "accepted"


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "signal SIGSEGV"),
        (lambda: os._exit(3), "exit 3"),
        (lambda: {}[2], "exception KeyError"),
        (lambda: np.empty(1 << 40, np.uint8), "exception MemoryError"),
    ],
)
def test_crashes_are_found(action: Callable[[], Any], kind: str, tmp_path: Path) -> None:
    assert outcome(tmp_path, check=planted(action)).kind == kind


def test_a_hang_is_found(tmp_path: Path) -> None:
    assert outcome(tmp_path, check=planted(lambda: time.sleep(600)), seconds=0.5).kind == "hang"


def test_wrong_bits_of_a_chunk_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CpuExecutor.run

    def wrong(self: CpuExecutor, handle: int, step: StepInputs) -> None:
        right(self, handle, step)
        if self.threads == 3 and step.n_outs:
            self.read(handle, self.bound[handle].program.outputs["logits"], 1)[0, 0] += np.float32(1e-6)

    monkeypatch.setattr(CpuExecutor, "run", wrong)
    assert outcome(tmp_path).kind == "bits"


def test_a_wrong_command_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CpuExecutor.run_command

    def wrong(self: CpuExecutor, handle: int, step: StepInputs, index: int) -> None:
        right(self, handle, step, index)
        y = self.bound[handle].program.commands[index].args.get("y")
        if self.bound[handle].program.commands[index].op == "glu" and isinstance(y, View):
            self.read(handle, y, 1)[0, 5] += np.float32(0.01)

    monkeypatch.setattr(CpuExecutor, "run_command", wrong)
    result = outcome(tmp_path, {"seed": 1, "format": "F32"})
    assert result.kind == "tolerance" and "glu" in result.detail


def test_other_verdicts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ie.devices.weights.check", lambda gguf, weights: None)
    assert outcome(tmp_path, {"seed": 1, "poison": "nan", "poison_tensor": 2}).kind == "verdict"
    right = ReferenceExecutor.read
    monkeypatch.setattr(ReferenceExecutor, "read", lambda *args: right(*args) * np.float32(np.nan))
    assert outcome(tmp_path).kind == "verdict"


def test_other_tokens_with_drafts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ie.engine import generation as generate

    right = generate._accept
    monkeypatch.setattr(generate, "_accept", lambda logits, drafts, *rest: [*drafts, right(logits, [], *rest)[0]])
    assert outcome(tmp_path).kind == "drafts"


def test_warnings_and_bugs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ie.measure.ppl.disjoint", lambda *args: warnings.warn("odd", stacklevel=1))
    assert outcome(tmp_path).kind in ("warning", "exception AttributeError")
    monkeypatch.undo()
    monkeypatch.setattr("ie.cli.info.lines", lambda gguf: 1 // 0)
    result = outcome(tmp_path)
    assert result.kind == "bug" and "ZeroDivisionError" in result.detail


def test_findings_are_reduced_and_kept(tmp_path: Path) -> None:
    def check(case: Case, path: Path) -> Any:
        assert case.get("n_layer") != 3, "three layers"
        return None, set(), set()

    case = {"seed": 5, "arch": "qwen3", "n_layer": 3, "tied": True, "split": 2}
    assert reduced(case, "exception AssertionError", check, 60.0) == {"seed": 5, "n_layer": 3}
    campaign = Campaign(tmp_path, check=check)
    campaign.one(case)
    (found,) = campaign.findings
    assert found.case == {"seed": 5, "n_layer": 3} and "three layers" in found.detail
    assert from_json(json.loads((found.folder / "case.json").read_text())) == case
    assert (found.folder / "m-00002-of-00002.gguf").exists() and (found.folder / "reduced" / "m.gguf").exists()
    assert any(f"seed 5, exception AssertionError: {found.folder}" in line for line in campaign.summary())


@pytest.mark.parametrize("seed", [500268, 500350, 500684, 501160, 501796, 503183, 504358])
def test_what_a_long_run_found_once(seed: int, tmp_path: Path) -> None:
    """A note before a refusal, numbers that vanish, an inverse that is none, a note before a difference, scores beyond
    float32, squares beyond float32."""
    assert run_case(draw(seed), tmp_path).outcome in ("accepted", "refused")


def test_a_difference_of_numbers_that_vanish() -> None:
    said = "y: 7 of 2304 differ, first at [0, 86]: -0.0, expected -3e-36; worst at [1, 20], {} where 2e-36 is allowed"
    assert vanishing(said.format("7.160e-35")) and not vanishing(said.format("7.160e-29"))
    assert not vanishing("yq codes: 63 of 2304 differ")
