"""How a type of event is declared: ``class ToolCompleted(Progress, tag="tool.completed")``, with its fields.

The metaclass exists for the declarations, not for speed: without it each of them would repeat four options of msgspec.
``gc=False`` keeps bodies out of the garbage collector, which would otherwise look at every event of every open session;
a body has no reference cycle, since it is what JSON can say.
"""

from typing import TYPE_CHECKING, Any, dataclass_transform

import msgspec

if TYPE_CHECKING:
    from vaka.core.types.event import Body

BODY_TYPES: "dict[str, type[Body]]" = {}
"""Every known body, by type."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class BodyMeta(msgspec.StructMeta):
    """Makes ``class X(Progress, tag="x.happened", durable=False)`` a frozen struct and registers its type."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, tag: str = "", durable: bool = True
    ) -> "BodyMeta":
        body = super().__new__(mcls, name, bases, namespace, frozen=True, kw_only=True, omit_defaults=True, gc=False)
        body.type, body.durable = tag, durable  # type: ignore[attr-defined]  # declared on Body, set for each class
        if tag:
            BODY_TYPES[tag] = body  # type: ignore[assignment]  # only subclasses of Body have this metaclass
        return body
