"""Limits of scripts, as text and as values."""

from typing import Any

import pytest

from vaka.core.types.errors import InvalidInput
from vaka.luau.program import ScriptLimits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ScriptLimits()),
        ("memory=16M", ScriptLimits(memory=16 << 20)),
        ("memory=1.5g , seconds=250ms", ScriptLimits(memory=3 << 29, seconds=0.25)),
        ("seconds=2s,instructions=10M", ScriptLimits(seconds=2, instructions=10_000_000)),
        ("seconds=1m,coroutines=1k,depth=20", ScriptLimits(seconds=60, coroutines=1000, depth=20)),
        ("memory=2097152", ScriptLimits(memory=2 << 20)),
        ("seconds=none,memory=none,coroutines=none", ScriptLimits(seconds=None, memory=None, coroutines=None)),
    ],
)
def test_limits_are_parsed_from_text(text: str, expected: ScriptLimits) -> None:
    assert ScriptLimits.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("memry=1M", "limit 'memry=1M' is unknown; expected memory=64M, seconds=5"),
        ("memory", "limit 'memory' is unknown"),
        ("memory=", "is not a number with a unit such as G, K, M"),
        ("memory=lots", "is not a number with a unit"),
        ("memory=-1M", "is not a number with a unit"),
        ("memory=1T", "is not a number with a unit"),
        ("memory=1K", "memory must be 1M or more, not 1024"),
        ("seconds=0", "seconds must be a number above 0, not 0.0"),
        ("seconds=1h", "is not a number with a unit such as M, MS, S"),
        ("instructions=1.5", "is not a whole number"),
        ("instructions=0", "instructions must be a whole number above 0, not 0"),
        ("depth=none", "is not a number"),
        ("depth=501", "depth must be a whole number from 1 to 500, not 501"),
        ("memory=1M,memory=2M", "limit 'memory' is given twice"),
    ],
)
def test_the_error_of_an_invalid_limit_names_the_accepted_forms(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        ScriptLimits.parse(text)


@pytest.mark.parametrize("wrong", [{"memory": True}, {"seconds": float("nan")}, {"coroutines": 1.5}, {"depth": 0}])
def test_invalid_limits_cannot_be_constructed(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ScriptLimits(**wrong)
