"""Defaults of a runtime: the system clock, random ids, and the policy made of permission rules."""

import asyncio
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer

if TYPE_CHECKING:
    from vaka.config.claude_settings import PermissionLayer


class SystemClock:
    """The machine's clocks."""

    def time(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Names that sort by time and are not guessed."""

    def __init__(self) -> None:
        self._pool = ""
        self._offset = 0

    def new(self, prefix: str) -> str:
        """Return ``prefix_`` with the time in milliseconds and 40 random bits."""
        if self._offset + 10 > len(self._pool):
            self._pool, self._offset = os.urandom(1000).hex(), 0  # one system call for two hundred names
        drawn = self._pool[self._offset : self._offset + 10]
        self._offset += 10
        return f"{prefix}_{time.time_ns() // 1_000_000:011x}{drawn}"


def policy_from_layers(layers: "Iterable[PermissionLayer]", *, cwd: str = "", home: str = "") -> LayeredPolicy:
    """Return the policy of layers, the weakest first. Raises ``ConfigError`` or ``InvalidInput`` for a wrong rule."""
    return LayeredPolicy((Layer(**msgspec.structs.asdict(layer)) for layer in layers), cwd=cwd, home=home)


def policy_from_rules(
    mode: str, allow: Iterable[str], ask: Iterable[str], deny: Iterable[str], *, cwd: str = "",
    directories: Iterable[str] = (),
) -> LayeredPolicy:  # fmt: skip
    """Return the policy of a program that gives its rules itself. Raises ``InvalidInput`` for a wrong one."""
    given = Layer(
        name="flag",
        mode=mode,
        allow=_as_tuple(allow),
        ask=_as_tuple(ask),
        deny=_as_tuple(deny),
        directories=_as_tuple(directories),
    )
    return LayeredPolicy([given], cwd=cwd)


def _as_tuple(rules: Iterable[str]) -> tuple[str, ...]:
    return (rules,) if isinstance(rules, str) else tuple(rules)
