"""All sample kernels: importing this fills `CASES`."""

from __future__ import annotations

from functools import cache

from tests.sim import cases_engine, cases_lanes, cases_memory, cases_numbers
from tests.sim.case import CASES, Case, build_case

__all__ = ["CASES", "NAMES", "cases_engine", "cases_lanes", "cases_memory", "cases_numbers", "made"]
NAMES = sorted(CASES)


@cache
def made(name: str) -> Case:
    return build_case(name)
