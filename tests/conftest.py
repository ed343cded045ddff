"""Gives each test the marker of the folder it stands in: the tiers are folders.

Owns: tiers, and the cache folder of the test processes, so that no test reads or writes the user's own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
TIERS = ("unit", "cpu", "cli", "sim", "model", "gpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folders = item.path.relative_to(TESTS).parts[:-1]
        for tier in TIERS:
            if tier in folders:
                item.add_marker(tier)


@pytest.fixture(autouse=True)
def _own_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests of the default tier get an empty cache of their own; a downloaded model is found in the user's."""
    if request.node.get_closest_marker("model") is None:
        patch = request.getfixturevalue("monkeypatch")
        patch.setenv("IE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.delenv("IE_LOG", raising=False)
