"""From what settings say about permissions to the policy that judges by it."""

from collections.abc import Iterable

import msgspec

from vaka.config.permissions import PermissionLayer
from vaka.policy.layered import LayeredPolicy
from vaka.policy.rules import Layer


def policy_of(layers: Iterable[PermissionLayer], *, cwd: str = "", home: str = "") -> LayeredPolicy:
    """Return the policy of layers, the weakest first. Raises ``ConfigError`` or ``InvalidInput`` for a wrong rule."""
    return LayeredPolicy((Layer(**msgspec.structs.asdict(layer)) for layer in layers), cwd=cwd, home=home)
