"""ie-doctor: what it reports where all is well, and that it notices when it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ie import paths
from ie.cli import doctor
from ie.cli.selftest import TOKENS, SelfTest, model_bytes


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement of bandwidth takes seconds and proves nothing here."""
    monkeypatch.setattr("ie.devices.cpu.read_bandwidth", lambda threads=None: 33.1e9)


def report(capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    status = doctor.main([])
    out, err = capfd.readouterr()
    assert err == ""
    return status, {line[:10].strip(): line[11:] for line in out.splitlines()}


def test_all_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    status, lines = report(capfd)
    assert status == 0
    assert lines["cpu"].startswith("PASS  ") and lines["cpu"].endswith("reads 33.1 GB/s")
    assert lines["reference"].startswith("PASS")
    assert lines["hip"].startswith("no ") and lines["cuda"].startswith("no ")
    assert "libie_cpu.so" in lines["kernels"]
    assert str(paths.cache_dir()) in lines["cache"]
    assert lines["versions"].strip().startswith("ie 0.")
    assert list(lines) == ["cpu", "reference", "hip", "cuda", "machine", "kernels", "compiler", "cache", "versions"]


@pytest.mark.parametrize("wrong", [lambda x: x * 1.01, lambda x: x[:-1], lambda x: np.where(x == x.max(), np.nan, x)])
def test_a_wrong_result_is_noticed(capfd, monkeypatch: pytest.MonkeyPatch, wrong) -> None:  # type: ignore[no-untyped-def]
    right = SelfTest.cpu
    monkeypatch.setattr(SelfTest, "cpu", lambda self, isa: wrong(right(self, isa)))
    status, lines = report(capfd)
    assert status == 1 and lines["cpu"].startswith("FAIL")
    assert lines["reference"].startswith("PASS")


def test_instruction_sets_that_differ_are_noticed(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    from ie.devices.cpu import available_isas

    if len(available_isas()) < 2:
        pytest.skip("this machine has one instruction set only")
    right = SelfTest.cpu
    monkeypatch.setattr(SelfTest, "cpu", lambda self, isa: right(self, isa) + np.float32(isa == "portable") * 1e-6)
    status, lines = report(capfd)
    assert status == 1 and "do not give the same bits" in lines["cpu"]


def test_a_missing_library_hides_nothing_else(capfd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ie import native

    monkeypatch.setattr(native, "LIB_DIR", tmp_path)
    monkeypatch.setattr(paths, "library_dir", lambda: tmp_path)
    monkeypatch.setattr(native, "lib", native.lib.__wrapped__)  # not the opened library that other tests hold on to
    status, lines = report(capfd)
    assert status == 1
    assert lines["cpu"].startswith("FAIL") and "make setup" in lines["cpu"]
    assert lines["kernels"].startswith("FAIL") and lines["versions"]


def test_the_model_is_the_same_everywhere_and_not_trivial() -> None:
    assert model_bytes() == model_bytes()
    with SelfTest() as test:
        assert test.expected.shape[0] == len(TOKENS) and Path(test.path).exists()
        assert len(set(test.expected.argmax(axis=1).tolist())) > 5
        assert test.fault(test.expected) == ""
    assert not Path(test.path).exists()


def test_no_folder_needs_to_be_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert doctor.check_cpu().verdict == "PASS"
