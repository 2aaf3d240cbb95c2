"""Functions with deferred annotations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NotRequired, TypedDict

from vaka.tools import tool

if TYPE_CHECKING:
    from decimal import Decimal

    from vaka.core.ports.tool import ToolContext


@dataclass
class Leaf:
    size: int
    twigs: list[Leaf] = field(default_factory=list)


class Options(TypedDict):
    deep: NotRequired[bool]
    far: int


@tool
async def count(context: ToolContext, leaf: Leaf, options: Options | None = None) -> int:
    """Count leaves."""
    context.emit("counting")
    return leaf.size + sum(twig.size for twig in leaf.twigs)


@tool
def lost(amount: Decimal) -> None:
    """Take an amount."""
