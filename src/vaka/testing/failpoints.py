"""Kill the own process at a chosen place of a store, or count how often each place is passed.

A test starts a child with ``VAKA_FAILPOINT`` set; the child calls ``arm()``, and only then something can happen:

- ``append.after_rows:7:kill``: at the seventh pass of that place the process kills itself (``SIGKILL``)
- ``count:FILE``: after each pass FILE holds ``{"<place>": <passes>, …}``
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from vaka.core.types.errors import ConfigError
from vaka.stores import failpoint

VARIABLE = "VAKA_FAILPOINT"
FAILPOINTS = ("append.before_begin", "append.after_rows", "append.after_commit", "append.before_ack")


def enable(plan: str | None = None) -> None:
    """Do at the stores' failpoints what ``plan`` says, or else the environment; without a plan, nothing."""
    failpoint.hit = parse_plan(os.environ.get(VARIABLE, "") if plan is None else plan)


def disable() -> None:
    """Let every failpoint be passed in silence again."""
    failpoint.hit = None


def parse_plan(plan: str) -> Callable[[str], None] | None:
    """Return what a plan does at each pass, ``None`` for an empty plan."""
    if not plan:
        return None
    name, _, rest = plan.partition(":")
    if name == "count" and rest:
        return _count_passes(Path(rest))
    number, _, action = rest.partition(":")
    if name not in FAILPOINTS or not number.isdigit() or action != "kill":
        raise ConfigError(f"{VARIABLE}={plan!r} must be <place>:<number>:kill or count:<file>; places: {FAILPOINTS}")
    return _kill_at(name, int(number))


def _kill_at(place: str, number: int) -> Callable[[str], None]:
    passes: Counter[str] = Counter()

    def hit(name: str) -> None:
        passes[name] += 1
        if name == place and passes[name] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return hit


def _count_passes(file: Path) -> Callable[[str], None]:
    passes: Counter[str] = Counter()

    def hit(name: str) -> None:
        passes[name] += 1
        file.write_bytes(msgspec.json.encode(passes))

    return hit
