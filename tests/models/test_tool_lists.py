"""The tools of requests: an unchanged list is converted and encoded once, and the bytes are the same all the same."""

from collections.abc import AsyncGenerator, Callable, ItemsView
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import msgspec
import pytest

import vaka
from tests.models.conversations import WIRES, Wire, conversation
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import BadRequest
from vaka.core.types.tool import ParsedArguments, ToolSpec
from vaka.models.anthropic.model import Anthropic
from vaka.models.gemini.model import Gemini
from vaka.models.openai_chat.model import ChatWriter, OpenAIChat
from vaka.models.openai_chat.model import to_request as to_chat_request
from vaka.models.openai_chat.vendors import VendorProfile
from vaka.models.openai_responses.model import OpenAIResponses
from vaka.models.request_items import RequestMemo
from vaka.models.text_calls.model import TextCalls
from vaka.models.tool_lists import MAX_LISTS
from vaka.models.transport.client import Account
from vaka.models.transport.pool import ConnectionPool
from vaka.runtime.project_agents import ToolFilter
from vaka.testing import ScriptedModel, call, say
from vaka.testing.fake_provider import FakeProvider

MODELS: dict[str, Callable[[str, ConnectionPool], Model]] = {
    "anthropic": lambda url, http: Anthropic("claude-sonnet-5-5", Account(base_url=url), http=http),
    "chat": lambda url, http: OpenAIChat("gpt-6", Account(base_url=f"{url}/v1"), http=http),
    "responses": lambda url, http: OpenAIResponses("gpt-6", Account(base_url=f"{url}/v1"), http=http),
    "gemini": lambda url, http: Gemini("gemini-3-pro", Account(base_url=f"{url}/v1beta"), http=http),
    "text": lambda url, http: TextCalls(OpenAIChat("gpt-6", Account(base_url=f"{url}/v1"), http=http)),
}


@pytest.fixture
async def http() -> AsyncGenerator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    await pool.close()


class Readings:
    """Counts conversions of schemas: the requests for which each schema was read."""

    def __init__(self) -> None:
        self.request: Callable[[], int] = int
        """Returns the number of the request that is written."""
        self.found: set[tuple[int, int]] = set()

    def add(self, schema: object) -> None:
        self.found.add((id(schema), self.request()))


class CountedSchema(dict[str, Any]):
    """A schema that reports when it is read; an encoder reads it without a report."""

    def __init__(self, readings: Readings) -> None:
        path = {"type": "string", "description": "The path."}
        super().__init__(type="object", properties={"path": path}, required=["path"], additionalProperties=False)
        self._readings = readings

    def __contains__(self, key: object) -> bool:
        self._readings.add(self)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._readings.add(self)
        return super().get(key, default)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # the name of the type cannot be written
        self._readings.add(self)
        return super().items()


class CountedTool:
    """A tool whose schema is counted."""

    def __init__(self, number: int, readings: Readings) -> None:
        self.spec = ToolSpec(
            name=f"tool_{number}", description="Do it.", parameters=CountedSchema(readings), strict=True, effect="read"
        )

    def parse(self, raw: str | dict[str, Any]) -> ParsedArguments:
        return ParsedArguments(raw if isinstance(raw, dict) else msgspec.json.decode(raw))

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        return "done"


@pytest.mark.parametrize("name", MODELS)
async def test_the_tools_of_a_session_are_converted_once_for_all_its_model_calls(
    name: str, http: ConnectionPool
) -> None:
    readings = Readings()
    tools = [CountedTool(number, readings) for number in range(500)]
    steps = [call("tool_7", path=str(number)) for number in range(9)]
    async with FakeProvider(*steps, say("Done."), say("Again.")) as provider, vaka.Runtime() as rt:
        readings.request = lambda: len(provider.requests)
        agent = vaka.Agent("a", model=MODELS[name](provider.url, http), tools=tools)
        session = await rt.open(agent)
        assert (await session.run("Do it.")).text == "Done."
        assert (await session.run("And again?")).text == "Again."
        assert len(provider.requests) == 11
        assert len(readings.found) == 500


async def test_a_middleware_that_offers_some_tools_keeps_the_conversion_of_the_others(http: ConnectionPool) -> None:
    readings, asked = Readings(), list[str]()
    tools = [CountedTool(number, readings) for number in range(50)]
    steps = [call("tool_7", path=str(number)) for number in range(4)]

    def allows(spec: ToolSpec) -> bool:
        asked.append(spec.name)
        return spec.name != "tool_3"

    async with FakeProvider(*steps, say("Done.")) as provider:
        readings.request = lambda: len(provider.requests)
        agent = vaka.Agent("a", model=MODELS["chat"](provider.url, http), tools=tools, middleware=[ToolFilter(allows)])
        assert (await vaka.run(agent, "Do it.")).text == "Done."
        assert [len(request.body["tools"]) for request in provider.requests] == [49] * 5
        assert len(readings.found) == 49
        assert len(asked) == 50 + len(steps)  # each call is checked as well


def specs(count: int, **fields: Any) -> tuple[ToolSpec, ...]:
    schema = {"properties": {"path": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"const": "é"}}}
    names = [f"tool_{number}" for number in range(count)]
    return tuple(ToolSpec(name=name, description=f"Do {name}.", parameters=schema, **fields) for name in names)


OUTPUT = {"schema": {"type": "object", "properties": {"x": {"type": "string"}}}, "strict": False}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"cache": False},
    {"output": OUTPUT},
    {"extra": {"tools": [{"type": "web_search"}]}},
    {"extra": {"tools": 1}},
    {"parallel_calls": False},
]
LISTS = [specs(3), specs(1), (), specs(2, strict=True), specs(2, native={"anthropic": "bash_20250124"})]


ANSWERING_BY_CALL = VendorProfile(output="tool", choice_named=False)


def outcome(wire: Wire, prompt: Prompt, memo: RequestMemo[Any] | None = None) -> bytes | str:
    try:
        return wire.encode(prompt, memo)
    except BadRequest as error:
        return str(error)


@pytest.mark.parametrize(
    "wire",
    [
        *WIRES.values(),
        Wire(
            "messages",
            lambda prompt, memo: to_chat_request("m", prompt, ANSWERING_BY_CALL, memo=memo),
            lambda: ChatWriter("m", ANSWERING_BY_CALL),
        ),
    ],
)
def test_tools_that_were_sent_before_have_the_same_bytes_in_every_request(wire: Wire) -> None:
    memo = wire.new_memo()
    for number, (options, tools, choice) in enumerate(product(OPTIONS, LISTS * 2, ("auto", "none", "tool_0"))):
        prompt = Prompt(
            messages=conversation(number + 1),
            tools=tools,
            options=options,
            session="s",
            system="Be brief.",
            tool_choice=choice if tools else "auto",
        )
        expected = outcome(wire, prompt)
        assert outcome(wire, prompt, memo) == expected
        assert outcome(wire, msgspec.structs.replace(prompt, tools=(*tools,)), memo) == expected


def test_equal_tools_whose_schemas_are_written_in_another_order_are_not_taken_for_the_same() -> None:
    wire, memo = WIRES["chat"], WIRES["chat"].new_memo()
    one = ToolSpec(name="a", parameters={"type": "object", "title": "x", "minProperties": 1})
    other = ToolSpec(name="a", parameters={"type": "object", "minProperties": True, "title": "x"})
    assert one == other
    bodies = [wire.encode(Prompt(messages=conversation(1), tools=(tool,)), memo) for tool in (one, other)]
    assert bodies == [wire.encode(Prompt(messages=conversation(1), tools=(tool,))) for tool in (one, other)]
    assert bodies[0] != bodies[1]


def test_the_lists_that_were_sent_last_are_kept() -> None:
    wire = WIRES["chat"]
    memo = WIRES["chat"].new_memo()
    readings = Readings()
    tools = [CountedTool(number, readings).spec for number in range(MAX_LISTS + 1)]
    sent: list[int] = []
    readings.request = lambda: len(sent)

    def is_converted(number: int) -> bool:
        before = len(readings.found)
        wire.encode(Prompt(messages=conversation(1), tools=(tools[number],)), memo)
        sent.append(number)
        return len(readings.found) > before

    assert [is_converted(number) for number in range(MAX_LISTS)] == [True] * MAX_LISTS
    assert [is_converted(number) for number in range(MAX_LISTS)] == [False] * MAX_LISTS
    assert is_converted(MAX_LISTS)
    assert not is_converted(MAX_LISTS - 1)
    assert is_converted(0)


@pytest.mark.parametrize("name", WIRES)
def test_a_tool_that_cannot_be_sent_is_reported_as_without_a_memo(name: str) -> None:
    wire, memo = WIRES[name], WIRES[name].new_memo()
    unencodable = ToolSpec(name="a", parameters={"type": "object", "default": object()})
    body = wire.write(Prompt(messages=conversation(1), tools=(unencodable,)), memo)
    with pytest.raises(TypeError, match="Encoding objects of type object is unsupported"):
        msgspec.json.encode(body)
    for _ in range(2):
        with pytest.raises(BadRequest, match="a b"):
            wire.write(Prompt(messages=conversation(1), tools=(ToolSpec(name="a b"),)), memo)


def test_threads_that_share_a_memo_get_the_bytes_of_their_tools() -> None:
    wire, memo = WIRES["anthropic"], WIRES["anthropic"].new_memo()
    prompts = [Prompt(messages=conversation(1), tools=specs(number), session=str(number)) for number in range(12)]

    def write_all(start: int) -> bool:
        return all(wire.encode(prompt, memo) == wire.encode(prompt) for prompt in prompts[start:] + prompts[:start])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write_all, [*range(12)] * 4))


def test_calls_as_text_describe_the_tools_of_each_prompt() -> None:
    model = TextCalls(ScriptedModel(say("Hi.")))
    prompts = [Prompt(messages=conversation(1), tools=tools) for tools in LISTS * 2]
    new = [TextCalls(ScriptedModel(say("Hi."))).rewrite(prompt) for prompt in prompts]
    assert [model.rewrite(prompt) for prompt in prompts] == new
