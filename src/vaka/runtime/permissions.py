"""From what settings say about permissions to the policy that judges by it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from vaka.policy.layered import LayeredPolicy
from vaka.policy.rules import Layer

if TYPE_CHECKING:
    from vaka.config.permissions import PermissionLayer


def policy_of(layers: "Iterable[PermissionLayer]", *, cwd: str = "", home: str = "") -> LayeredPolicy:
    """Return the policy of layers, the weakest first. Raises ``ConfigError`` or ``InvalidInput`` for a wrong rule."""
    return LayeredPolicy((Layer(**msgspec.structs.asdict(layer)) for layer in layers), cwd=cwd, home=home)


def flag_policy(
    mode: str, allow: Iterable[str], ask: Iterable[str], deny: Iterable[str], *, cwd: str = "",
    directories: Iterable[str] = (),
) -> LayeredPolicy:  # fmt: skip
    """Return the policy of a program that gives its rules itself. Raises ``InvalidInput`` for a wrong one."""
    given = Layer(
        name="flag", mode=mode, allow=_texts(allow), ask=_texts(ask), deny=_texts(deny), directories=_texts(directories)
    )
    return LayeredPolicy([given], cwd=cwd)


def _texts(rules: Iterable[str]) -> tuple[str, ...]:
    return (rules,) if isinstance(rules, str) else tuple(rules)
