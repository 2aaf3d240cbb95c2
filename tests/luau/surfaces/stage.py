"""Scripts on a stage: run through the engine, with the surfaces and whatever parts a test lends them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from vaka.core.loop.nest import Request, Told
from vaka.core.ports.net import NetRequest, NetResponse, NetVerdict
from vaka.core.types.errors import NetworkUnreachable
from vaka.core.types.ids import JSON, Digest
from vaka.core.types.message import ToolResult
from vaka.luau.compat import surface_functions
from vaka.luau.host.notes import Notes
from vaka.luau.host.parts import Parts
from vaka.luau.prelude import main, prelude
from vaka.luau.program import Program
from vaka.luau.scheduler import Unrecorded, drive
from vaka.luau.script import Ledger
from vaka.luau.vm import Vms


class Values:
    """A key-value store in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[str, JSON] = {}

    async def get(self, key: str) -> JSON:
        """Return a value."""
        return self.kept.get(key)

    async def put(self, key: str, value: JSON) -> None:
        """Keep a value."""
        if value is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = value

    async def keys(self, prefix: str = "") -> Sequence[str]:
        """Return the names."""
        return sorted(key for key in self.kept if key.startswith(prefix))


class Echo:
    """A network whose servers answer what ``answers`` has for an address; ``sent`` is what they were sent."""

    def __init__(self, answers: Mapping[str, NetResponse] | None = None) -> None:
        self.answers = dict(answers or {})
        self.sent: list[NetRequest] = []

    def decide(self, url: str) -> NetVerdict:
        """Allow everything."""
        return NetVerdict(url=url)

    async def send(self, request: NetRequest) -> NetResponse:
        """Answer."""
        self.sent.append(request)
        answer = self.answers.get(request.url.partition("?")[0])
        if answer is None:
            raise NetworkUnreachable(f"nobody listens at {request.url!r}", reason="refused")
        return answer

    def stream(self, request: NetRequest) -> Any:
        """Not needed by scripts."""
        raise NotImplementedError(request.url)


class Book:
    """A ledger in a list, which can be read again."""

    def __init__(self, told: Sequence[Told] = ()) -> None:
        self.told = list(told)
        self._before = len(self.told)
        self.commits = 0

    def start(self, detail: JSON) -> Told:
        """Return the start."""
        if not self.told:
            self.told.append(Told(Request(0, "start", Digest("")), detail, "", 1_700_000_000_000))
            self._before = 1
        return self.told[0]

    async def replay(self) -> AsyncGenerator[Told]:
        """Yield what was told before."""
        for told in self.told[1 : self._before]:
            yield told

    async def tell(self, request: Request, value: JSON, error: str = "", result: ToolResult | None = None) -> Told:
        """Put down an answer."""
        told = Told(request, value, error, 1_700_000_000_000 + len(self.told), result)
        self.told.append(told)
        return told

    async def commit(self) -> None:
        """Count."""
        self.commits += 1


_vms = Vms()


async def run(
    source: str,
    *args: JSON,
    mode: str = "plain",
    parts: Parts | None = None,
    given: Mapping[str, JSON] | None = None,
    ledger: Ledger | None = None,
) -> Sequence[JSON]:
    """Run a script and return what it returned."""
    program = Program(source, "script", preludes=(prelude(),), main=main(), trusted=True)
    return await drive(
        _vms.open(program),
        surface_functions(parts or Parts()),
        ledger or Unrecorded(),
        [{"mode": mode, **(given or {})}, *args],
    )


async def result(source: str, *args: JSON, parts: Parts | None = None, given: Mapping[str, JSON] | None = None) -> JSON:
    """Run a plain script and return its first result."""
    values = await run(source, *args, parts=parts, given=given)
    return values[0] if values else None


async def caught(body: str, parts: Parts | None = None, given: Mapping[str, JSON] | None = None) -> str:
    """Run something that must fail, and return what it raised."""
    ok, why = await run(f"return pcall(function() {body} end)", parts=parts, given=given)
    assert ok is False
    assert isinstance(why, str)
    return why


class Talk:
    """An agent's ears and mouth: hears what it is given, then nothing."""

    def __init__(self, *heard: JSON) -> None:
        self.heard, self.said = list(heard), list[JSON]()

    async def recv(self, _: Request) -> JSON:
        """Return the next, or nothing when it is closed."""
        heard = self.heard.pop(0) if self.heard else None
        return {"parts": [{"type": "text", "text": heard}]} if isinstance(heard, str) else heard

    async def emit(self, chunk: JSON) -> None:
        """Note what was said."""
        self.said.append(chunk)

    @property
    def words(self) -> list[JSON]:
        """What was said, and whether a turn ended with it."""
        return [("".join(part["text"] for part in chunk["parts"]), chunk["eof"]) for chunk in self.said]

    @property
    def parts(self) -> Parts:
        """Lend them."""
        return Parts(recv=self.recv, emit=self.emit)


def noted(values: Values | None = None) -> Parts:
    """Parts with an agent's notes."""
    notes = Notes(values or Values(), "")
    return Parts(state=notes.state, history=notes.history, summary=notes.summary)
