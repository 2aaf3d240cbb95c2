"""``Door``: the routes of one protocol."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from starlette.routing import BaseRoute

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from vaka.server.kit.service import AgentService


class Door(msgspec.Struct, frozen=True):
    """The routes of one protocol, and what runs while the server does."""

    routes: Sequence[BaseRoute]
    run: "Callable[[], AbstractAsyncContextManager[None]]" = nullcontext


DoorFactory: TypeAlias = "Callable[[AgentService], Door]"
"""Makes the routes of a protocol for a server."""
