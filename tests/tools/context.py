"""A tool context for tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vaka.core.types.ids import JSON, CallId, Path, SessionId, TurnId

SESSION, TURN, CALL = SessionId("s"), TurnId("t"), CallId("c1")


@dataclass
class FakeContext:
    """Keeps what was emitted and answers every question with ``answer``."""

    session: SessionId = SESSION
    turn: TurnId = TURN
    path: Path = ()
    call: CallId = CALL
    key: str = "s/c1"
    attempt: int = 1
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    emitted: list[str] = field(default_factory=list[str])
    stopping: bool = False
    answer: JSON = None

    def emit(self, text: str) -> None:
        self.emitted.append(text)

    async def ask(self, question: str, *, options: Sequence[str] = (), expires_in: float | None = None) -> JSON:
        return self.answer
