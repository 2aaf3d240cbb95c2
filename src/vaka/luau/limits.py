"""How much a script may use."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vaka.core.types.errors import InvalidInput

MIB = 1 << 20
LEAST_MEMORY = MIB
MOST_DEPTH = 500

_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_COUNT = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_TIME = {"": 1.0, "S": 1.0, "MS": 1e-3, "M": 60.0}


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """What one script may use; ``None`` is no limit. Time counts only while the script runs, not while it waits."""

    memory: int | None = 64 * MIB
    """Bytes its VM may hold; scripts that share a VM share them."""
    seconds: float | None = 5.0
    """Running time, from its start to its end."""
    instructions: int | None = None
    """Safe points (calls and turns of loops) it may pass: the same number on every machine, at a price in speed."""
    coroutines: int | None = 10_000
    """Coroutines it may have alive at once."""
    depth: int = 100
    """How deep tables may be nested that go to the host."""

    def __post_init__(self) -> None:
        if self.memory is not None and not _whole(self.memory, LEAST_MEMORY):
            raise InvalidInput(f"memory is {LEAST_MEMORY // MIB}M or more, not {self.memory!r}")
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InvalidInput(f"seconds is a number above 0, not {self.seconds!r}")
        for name in ("instructions", "coroutines"):
            value = getattr(self, name)
            if value is not None and not _whole(value, 1):
                raise InvalidInput(f"{name} is a whole number above 0, not {value!r}")
        if not _whole(self.depth, 1) or self.depth > MOST_DEPTH:
            raise InvalidInput(f"depth is a whole number from 1 to {MOST_DEPTH}, not {self.depth!r}")

    @classmethod
    def parse(cls, text: str) -> "ScriptLimits":
        """Read ``memory=64M,seconds=5,instructions=10M,coroutines=1000,depth=50``; what is not named is as usual."""
        given: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (word.strip() for word in part.partition("="))
            read = _READERS.get(name)
            if read is None or not equals:
                raise InvalidInput(f"limit {part!r} is not known: say {_ACCEPTED}")
            if name in given:
                raise InvalidInput(f"limit {name!r} is given twice")
            given[name] = None if value == "none" and name != "depth" else read(part, value)
        return cls(**given)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(part: str, text: str, units: Mapping[str, float], whole: bool) -> float:
    matched = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", text)
    unit = units.get(matched[2].upper()) if matched else None
    if matched is None or unit is None:
        known = ", ".join(sorted(filter(None, units)))
        raise InvalidInput(f"limit {part!r} is no number with a unit such as {known}: say {_ACCEPTED}")
    number = float(matched[1]) * unit
    if whole and not number.is_integer():
        raise InvalidInput(f"limit {part!r} is not a whole number")
    return number


def _counter(units: Mapping[str, float]) -> Callable[[str, str], int]:
    return lambda part, text: int(_number(part, text, units, whole=True))


_READERS: dict[str, Callable[[str, str], float]] = {
    "memory": _counter(_BYTES),
    "seconds": lambda part, text: _number(part, text, _TIME, whole=False),
    "instructions": _counter(_COUNT),
    "coroutines": _counter(_COUNT),
    "depth": _counter({"": 1}),
}
_ACCEPTED = "memory=64M, seconds=5, instructions=10M, coroutines=10K or depth=100 (or none), with commas between them"
