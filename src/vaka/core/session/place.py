"""Where in a session something happens."""

import msgspec

from vaka.core.types.ids import Path, TurnId


class Place(msgspec.Struct, frozen=True):
    """A turn, a step of it, and the agent at ``path``."""

    turn: TurnId = TurnId("")
    step: int = 0
    path: Path = ()


NOWHERE = Place()
