"""A tool context for tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vaka.core.ports.files import Files
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.tool import World
from vaka.core.types.control import QuestionKind
from vaka.core.types.errors import NotFound
from vaka.core.types.ids import JSON, AgentPath, CallId, Digest, SessionId, TurnId
from vaka.core.types.message import Stored
from vaka.core.types.progress import OutputStream
from vaka.core.types.tool import NO_ACCESS, CommandAccess

SESSION = SessionId("s")
TURN = TurnId("t")
CALL = CallId("c1")


class Values(dict[str, JSON]):
    """The values of a session, in memory."""

    def set(self, key: str, value: JSON) -> None:
        self[key] = value

    async def set_now(self, key: str, value: JSON) -> None:
        self[key] = value


@dataclass
class FakeContext:
    """Records emitted text and answers every question with ``answer``."""

    session: SessionId = SESSION
    turn: TurnId = TURN
    path: AgentPath = ()
    call: CallId = CALL
    key: str = "s/c1"
    attempt: int = 1
    folder: str | None = None
    access: CommandAccess = NO_ACCESS
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    emitted: list[str] = field(default_factory=list[str])
    stopping: bool = False
    answer: JSON = None
    world: World = field(default_factory=World)
    deps: Any = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    state: Values = field(default_factory=Values)

    @property
    def files(self) -> Files:
        assert self.world.files is not None
        return self.world.files

    async def store_text(self, text: str) -> Stored:
        raise NotFound("this context keeps no texts")

    async def load_text(self, digest: Digest) -> str:
        raise NotFound("this context keeps no texts")

    async def ask_model(self, model: Model, prompt: Prompt) -> str:
        raise NotFound("this context asks no models")

    def emit(self, text: str, *, stream: OutputStream = "stdout") -> None:
        self.emitted.append(text)

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        expires_in: float | None = None,
        kind: QuestionKind = "question",
    ) -> JSON:
        return self.answer
