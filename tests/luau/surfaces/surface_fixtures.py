"""Run scripts with the three surfaces and chosen host services; a fake network, store and journal."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from vaka.core.loop.script_journal import ScriptAnswer, ScriptRequest
from vaka.core.ports.model import Model
from vaka.core.ports.net import NetRequest, NetResponse, NetVerdict
from vaka.core.types.errors import ConfigError, NetworkUnreachable
from vaka.core.types.ids import JSON, Digest
from vaka.core.types.message import ToolResult
from vaka.luau.host import surface_functions
from vaka.luau.host.storage import StoredMemory
from vaka.luau.program import Program, main_source, prelude_source
from vaka.luau.protocol import ReplayJournal
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.services import HostServices, MemoryCache, ScriptIo, ScriptServices
from vaka.luau.vm import VmRunner


class DictValues:
    """A key-value store in a dictionary."""

    def __init__(self) -> None:
        self.entries: dict[str, JSON] = {}

    async def get(self, key: str) -> JSON:
        return self.entries.get(key)

    async def put(self, key: str, value: JSON) -> None:
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value

    async def put_if_absent(self, key: str, value: JSON) -> JSON:
        return self.entries.setdefault(key, value)

    async def compare_and_set(self, key: str, old: JSON, new: JSON, *, expires: str = "") -> bool:
        if self.entries.get(key) == old:
            await self.put(key, new)
        return bool(self.entries.get(key) == new)

    async def keys(self, prefix: str = "") -> Sequence[str]:
        return sorted(key for key in self.entries if key.startswith(prefix))


class FakeNetwork:
    """A network whose servers send the ``answers`` by address; ``sent`` are the requests."""

    def __init__(self, answers: Mapping[str, NetResponse] | None = None) -> None:
        self.answers = dict(answers or {})
        self.sent: list[NetRequest] = []

    def decide(self, url: str) -> NetVerdict:
        return NetVerdict(url=url)

    async def send(self, request: NetRequest) -> NetResponse:
        self.sent.append(request)
        answer = self.answers.get(request.url.partition("?")[0])
        if answer is None:
            raise NetworkUnreachable(f"no server at {request.url!r}", reason="refused")
        return answer

    def stream(self, request: NetRequest) -> Any:
        raise NotImplementedError(request.url)


class MemoryJournal:
    """A journal in a list, which can be replayed."""

    def __init__(self, answers: Sequence[ScriptAnswer] = ()) -> None:
        self.answers = list(answers)
        self._recorded_count = len(self.answers)
        self.replaying = len(self.answers) > 1
        self.commits = 0

    def record_start(self, detail: JSON) -> ScriptAnswer:
        if not self.answers:
            self.answers.append(ScriptAnswer(ScriptRequest(0, "start", Digest("")), detail, "", 1_700_000_000_000))
            self._recorded_count = 1
        return self.answers[0]

    async def replay(self) -> AsyncGenerator[ScriptAnswer]:
        for answer in self.answers[1 : self._recorded_count]:
            yield answer

    async def record_answer(
        self, request: ScriptRequest, value: JSON, error: str = "", result: ToolResult | None = None
    ) -> ScriptAnswer:
        answer = ScriptAnswer(request, value, error, 1_700_000_000_000 + len(self.answers), result)
        self.answers.append(answer)
        return answer

    async def commit(self) -> None:
        self.commits += 1


class EchoAgents:
    """Child agents that answer with what they were asked, and the number of answers before it."""

    async def send(self, request: ScriptRequest, name: str, config: JSON, after: str, message: str) -> tuple[str, str]:
        return f"{name}/{config}/{after}/{message}", f"{after}+"

    def child_of(self, request: ScriptRequest) -> str:
        return ""

    async def text_of(self, child: str) -> str:
        return ""

    async def wait(self) -> None:
        """Return at once."""
        await asyncio.sleep(0)

    def wake(self) -> None:
        """Do nothing: nothing waits."""


_vm_runner = VmRunner()


def find_no_model(name: str) -> Model:
    raise ConfigError(f"generate is not available here: there is no model {name!r}")


def make_services(**fields: Any) -> HostServices:
    """Return host services with these fields of ``ScriptServices`` and ``HostServices``; the others are fakes."""
    runtime: dict[str, Any] = {
        "runner": _vm_runner,
        "find_model": find_no_model,
        "network": FakeNetwork(),
        "values": DictValues(),
        "cache": MemoryCache(),
        "argument_parser": None,
        "find_schema_problem": lambda *_: "",
        "find_agent": None,
        "env": {},
        "builtin_transformers": {},
        "transformers": {},
    }
    runtime |= {name: fields.pop(name) for name in runtime if name in fields}
    others = {"memory": StoredMemory(DictValues(), ""), "exit_stack": AsyncExitStack(), **fields}
    return HostServices(runtime=ScriptServices(**runtime), **others)


async def run_script(
    source: str,
    *args: JSON,
    mode: str = "plain",
    services: HostServices | None = None,
    startup_info: Mapping[str, JSON] | None = None,
    journal: ReplayJournal | None = None,
) -> Sequence[JSON]:
    """Run a script and return its results."""
    program = Program(source, "script", preludes=(prelude_source(),), main=main_source(), trusted=True)
    services = services or make_services()
    async with services.exit_stack:
        return await drive(
            _vm_runner.open(program),
            surface_functions(services),
            journal or NullJournal(),
            [{"mode": mode, **(startup_info or {})}, *args],
        )


async def run_for_result(
    source: str, *args: JSON, services: HostServices | None = None, startup_info: Mapping[str, JSON] | None = None
) -> JSON:
    """Run a plain script and return its first result."""
    values = await run_script(source, *args, services=services, startup_info=startup_info)
    return values[0] if values else None


async def run_for_error(
    body: str, services: HostServices | None = None, startup_info: Mapping[str, JSON] | None = None
) -> str:
    """Run a function body that must fail, and return its error."""
    ok, why = await run_script(f"return pcall(function() {body} end)", services=services, startup_info=startup_info)
    assert ok is False
    assert isinstance(why, str)
    return why


class AgentConversation:
    """The conversation of an agent: delivers the inputs, then the end of input, and records emitted chunks."""

    def __init__(self, *inputs: JSON) -> None:
        self.inputs, self.emitted_chunks = list(inputs), list[JSON]()

    async def recv(self, _: ScriptRequest) -> JSON:
        chunk = self.inputs.pop(0) if self.inputs else None
        return {"parts": [{"type": "text", "text": chunk}]} if isinstance(chunk, str) else chunk

    async def emit(self, chunk: JSON) -> None:
        self.emitted_chunks.append(chunk)

    @property
    def emitted_texts(self) -> list[JSON]:
        """The emitted texts, and whether each ended a message."""
        return [("".join(part["text"] for part in chunk["parts"]), chunk["eof"]) for chunk in self.emitted_chunks]

    @property
    def host_services(self) -> HostServices:
        return make_services(io=ScriptIo(recv=self.recv, emit=self.emit))


def memory_services(values: DictValues | None = None) -> HostServices:
    return make_services(memory=StoredMemory(values or DictValues(), ""))
