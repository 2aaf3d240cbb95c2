"""Kill this process at a failpoint of a store, or count how often each failpoint is passed.

A test starts a child with ``VAKA_FAILPOINT`` set; the child calls ``enable()`` to make it effective:

- ``append.after_rows:7:kill``: the process kills itself (``SIGKILL``) at the seventh pass of that failpoint
- ``count:FILE``: after each pass FILE holds ``{"<failpoint>": <passes>, …}``
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
    """Install ``plan``, or the one in the environment, at the stores' failpoints; without a plan, nothing."""
    failpoint.hit = parse_plan(os.environ.get(VARIABLE, "") if plan is None else plan)


def disable() -> None:
    failpoint.hit = None


def parse_plan(plan: str) -> Callable[[str], None] | None:
    """Return the callback of a plan, ``None`` for an empty plan. Raises ``ConfigError`` for an invalid one."""
    if not plan:
        return None
    name, _, rest = plan.partition(":")
    if name == "count" and rest:
        return _count_passes(Path(rest))
    number, _, action = rest.partition(":")
    if name not in FAILPOINTS or not number.isdigit() or action != "kill":
        raise ConfigError(
            f"{VARIABLE}={plan!r} must be <failpoint>:<number>:kill or count:<file>; failpoints: {FAILPOINTS}"
        )
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
