"""The public constructors and methods: wrong arguments, dependencies, dynamic instructions, streams with a response."""

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vaka
from vaka.agentsdk import PermissionRequest, TokenStats
from vaka.config.options import Models, Workspace
from vaka.errors import AccessDenied, ConfigError, InvalidInput, NotFound, TurnError
from vaka.events import TextDelta
from vaka.genx import MatchAgent, Route
from vaka.middleware import Answer
from vaka.models import Prompt, Scripted
from vaka.runtime.one_shot import RuntimeOptions
from vaka.runtime.options import Environment, Options
from vaka.stores.memory import MemoryStore
from vaka.testing import FakeClock, ScriptedModel, call, say

untyped: Any = vaka
"""The module without its types: what the type checkers refuse must fail at run time, too."""

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "Agent": (
        lambda: untyped.Agent("a", modle="x"),
        "Agent() got an unexpected keyword argument 'modle'; did you mean 'model'?",
    ),
    "Runtime": (lambda: untyped.Runtime(stroe="memory:"), "did you mean 'store'?"),
    "Runtime without a near one": (
        lambda: untyped.Runtime(zzz=1),
        "Runtime() got an unexpected keyword argument 'zzz'",
    ),
    "tool": (lambda: untyped.tool(efect="read"), "did you mean 'effect'?"),
    "run_sync": (lambda: untyped.run_sync(untyped.Agent("a"), "Hi.", stroe="x"), "did you mean 'store'?"),
    "tools": (lambda: untyped.Agent("a", tools=[3]), "tools must be a sequence whose items are each a tool"),
    "tools, one name": (lambda: untyped.Agent("a", tools="Read"), "tools must be a sequence, not str: 'Read'"),
    "instructions": (
        lambda: untyped.Agent("a", instructions=7),
        "instructions must be a str or a function of the turn, not int",
    ),
    "middleware": (lambda: untyped.Agent("a", middleware=["x"]), "middleware must be Middleware, not str"),
    "limits": (lambda: untyped.Agent("a", limits=5), "limits must be Limits, not int"),
    "model": (lambda: untyped.Agent("a", model=5), "model must be a model, the name of one, or None, not int"),
    "store": (lambda: untyped.Runtime({"store": "memory:"}), "store must be a store or a URL, not dict"),
    "limits of a runtime": (lambda: untyped.Runtime(limits=5), "limits must be Limits, not int: 5"),
    "a group": (lambda: untyped.Runtime(models={"a": 1}), "models must be Models, not dict: {'a': 1}"),
    "no group": (lambda: untyped.Runtime(project=None), "project must be Project, not NoneType: None"),
    "another group": (
        lambda: untyped.Runtime(workspace=untyped.Permissions()),
        "workspace must be Workspace, not Permissions",
    ),
    "a rule that is not in a sequence": (
        lambda: untyped.Permissions(allow="Read"),
        "allow must be a sequence, not str: 'Read'",
    ),
}


def test_wrong_arguments_fail_at_construction_with_a_suggestion() -> None:
    failures = []
    for name, (construct, message) in WRONG.items():
        try:
            construct()
            failures.append(f"{name}: no error")
        except TypeError as error:
            if message not in str(error):
                failures.append(f"{name}: {error}")
    assert failures == []


async def test_session_methods_name_the_near_keyword() -> None:
    async with vaka.Runtime() as runtime:
        session = await runtime.open(vaka.Agent("a", model=Scripted([{"text": "Hello."}])))
        with pytest.raises(TypeError, match="did you mean 'on_busy'"):
            await session.run("Hi.", on_bussy="queue")  # type: ignore[call-arg]  # the mistake is the test
        with pytest.raises(TypeError, match="did you mean 'deps'"):
            await runtime.open(session.agent, dep=1)  # type: ignore[call-overload]  # the mistake is the test


class Shop:
    def __init__(self) -> None:
        self.sold: list[str] = []


@vaka.tool
async def sell(context: vaka.ToolContext[Shop], what: str) -> str:
    """Sell something."""
    context.deps.sold.append(what)
    return f"sold {what} in {context.metadata['city']}"


async def test_dependencies_and_metadata_reach_tools_and_the_log_has_only_the_metadata() -> None:
    shop = Shop()
    agent = vaka.Agent[Shop]("clerk", model=ScriptedModel(call("sell", what="tea"), say("Done.")), tools=[sell])
    async with vaka.Runtime() as runtime:
        session = await runtime.open(agent, id="s", deps=shop, metadata={"city": "Hilo"})
        async with session.stream("Sell tea.") as turn:
            events = [event async for event in turn]
        stored = b"".join([event.to_json() for event in events])
    assert shop.sold == ["tea"]
    assert b"sold tea in Hilo" in stored
    assert b"Shop" not in stored


async def test_metadata_of_a_session_is_read_from_its_log_when_it_is_opened_again() -> None:
    agent = vaka.Agent[Shop](
        "clerk", model=ScriptedModel(say("Hi."), call("sell", what="tea"), say("Done.")), tools=[sell]
    )
    async with vaka.Runtime() as runtime:
        await (await runtime.open(agent, id="s", deps=Shop(), metadata={"city": "Hilo"})).run("Hello.")
        again = await runtime.open(agent, id="s", deps=Shop())
        events = [event.to_json() async for event in again.stream("Sell tea.")]
    assert any(b"sold tea in Hilo" in event for event in events)


async def test_child_agents_have_the_dependencies_of_their_parent() -> None:
    shop = Shop()
    child = vaka.Agent(
        "child",
        model=ScriptedModel(call("sell", what="tea") | {"agent": "child"}, say("Sold.", agent="child")),
        tools=[sell],
    )
    parent = vaka.Agent("parent", model=ScriptedModel(call("child", prompt="Sell."), say("Done.")), tools=[child])
    async with vaka.Runtime() as runtime:
        await (await runtime.open(parent, deps=shop, metadata={"city": "Hilo"})).run("Go.")
    assert shop.sold == ["tea"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_instructions_may_be_a_function_of_the_turn(is_async: bool) -> None:
    seen: list[str] = []

    def instruct(turn: vaka.Turn) -> str:
        return f"You serve {turn.deps['user']}."

    async def instruct_later(turn: vaka.Turn) -> str:
        return instruct(turn)

    async def look(turn: vaka.Turn, prompt: Prompt) -> Prompt:
        seen.append(prompt.system)
        return prompt

    watch = vaka.Middleware.from_functions("watch", before_model=look)
    agent = vaka.Agent(
        "a",
        model=ScriptedModel(say("Hi."), say("Hi.")),
        instructions=instruct_later if is_async else instruct,
        middleware=[watch],
    )
    async with vaka.Runtime() as runtime:
        for user in ("Ann", "Bob"):
            session = await runtime.open(agent, deps={"user": user})
            await session.run("Hello.")
    assert seen == ["You serve Ann.", "You serve Bob."]


async def test_instructions_that_are_not_text_fail_the_turn() -> None:
    agent = vaka.Agent("a", model=ScriptedModel(say("Hi.")), instructions=lambda turn: 7)  # type: ignore[arg-type,return-value]  # the mistake is the test
    with pytest.raises(TurnError, match="instructions of agent 'a' must be a str, not int"):
        await vaka.run(agent, "Hello.")


async def test_a_stream_has_the_response_at_its_end() -> None:
    async with vaka.Runtime() as runtime:
        session = await runtime.open(vaka.Agent("a", model=ScriptedModel(say("Hello."), say("Again."))))
        async with session.stream("Hi.") as turn:
            with pytest.raises(InvalidInput, match="no response yet"):
                _ = turn.response
            texts = [event.data.text async for event in turn if isinstance(event.data, TextDelta)]
        assert "".join(texts) == turn.response.text == "Hello."
        assert (await session.stream("And?").wait()).text == "Again."


async def test_a_turn_continues_when_its_reader_leaves() -> None:
    async with vaka.Runtime() as runtime:
        session = await runtime.open(vaka.Agent("a", model=ScriptedModel(say("Hello."))), id="s")
        async with session.stream("Hi.") as turn:
            async for _ in turn:
                break
        response = await session.resume().wait()
    assert response.text == "Hello."


async def test_resume_without_an_unfinished_turn_has_the_response_of_the_last_one() -> None:
    async with vaka.Runtime() as runtime:
        session = await runtime.open(vaka.Agent("a", model=ScriptedModel(say("Hello."))), id="s")
        await session.run("Hi.")
        async with session.resume() as turn:
            assert [event async for event in turn] == []
        assert turn.response.text == "Hello."


async def test_stream_text_yields_the_text_and_nothing_else() -> None:
    model = ScriptedModel(call("sell", what="tea") | say("One moment. "), say("Done."))
    async with vaka.Runtime() as runtime:
        session = await runtime.open(vaka.Agent("a", model=model, tools=[sell]), deps=Shop(), metadata={"city": "Hilo"})
        assert "".join([text async for text in session.stream_text("Sell.")]) == "One moment. Done."


async def test_stream_text_has_the_answer_of_a_middleware_too() -> None:
    async def answer(turn: vaka.Turn, content: Any) -> Answer:
        return Answer("Not today.")

    closed = vaka.Middleware.from_functions("closed", before_agent=answer)
    async with vaka.Runtime() as runtime:
        session = await runtime.open(vaka.Agent("a", model=ScriptedModel(), middleware=[closed]))
        assert [text async for text in session.stream_text("Hi.")] == ["Not today."]


@vaka.tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@pytest.mark.parametrize(
    ("answer", "result"), [("allow", "paid 5"), ("deny", "a person refused this call: denied by host")]
)
async def test_a_permission_request_handler_decides_approvals(answer: Any, result: str) -> None:
    asked: list[PermissionRequest] = []

    async def decide(request: PermissionRequest) -> Any:
        asked.append(request)
        return answer

    agent = vaka.Agent("a", model=ScriptedModel(call("pay", amount=5), say("Done.")), tools=[pay])
    async with vaka.Runtime(
        permissions=vaka.Permissions(confirm=("pay",), handler=decide), environment=Environment(entry_point="ci")
    ) as runtime:
        session = await runtime.open(agent)
        events = [event async for event in session.stream("Pay.")]
    results = [event.to_json() for event in events if event.type in ("tool.completed", "tool.failed")]
    assert len(asked) == len(results) == 1
    assert (asked[0].tool_name, asked[0].tool_params) == ("pay", {"amount": 5})
    assert result.encode() in results[0]


async def test_a_permission_request_handler_that_fails_or_answers_nonsense_denies() -> None:
    async def fail(request: PermissionRequest) -> Any:
        raise ValueError("no connection")

    async def answer_nonsense(request: PermissionRequest) -> Any:
        return "perhaps"

    for handler, fault in ((fail, b"ValueError('no connection')"), (answer_nonsense, b"'perhaps'")):
        agent = vaka.Agent("a", model=ScriptedModel(call("pay", amount=5), say("Done.")), tools=[pay])
        async with vaka.Runtime(permissions=vaka.Permissions(confirm=("pay",), handler=handler)) as runtime:
            events = [event async for event in (await runtime.open(agent)).stream("Pay.")]
        [failed] = [event.to_json() for event in events if event.type == "tool.failed"]
        assert b"denied by host" in failed
        assert fault in failed


async def test_an_error_of_the_token_callback_does_not_reach_the_turn() -> None:
    errors: list[Any] = []

    def fail(stats: TokenStats) -> None:
        raise ValueError("no disk")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    usage = {"usage": {"input": 10, "output": 2}}
    agent = vaka.Agent("a", model=ScriptedModel(call("pay", amount=1) | usage, say("Done.") | usage), tools=[pay])
    response = await vaka.run(agent, "Pay.", models=Models(on_usage=fail))
    assert (response.text, [str(error) for error in errors]) == ("Done.", ["no disk", "no disk"])


async def test_the_token_callback_sees_every_model_call() -> None:
    seen: list[TokenStats] = []
    usage = {"usage": {"input": 10, "output": 2}}
    agent = vaka.Agent("a", model=ScriptedModel(call("pay", amount=1) | usage, say("Done.") | usage), tools=[pay])
    response = await vaka.run(agent, "Pay.", models=Models(on_usage=seen.append))
    assert [stats.usage.input for stats in seen] == [10, 10]
    assert {stats.session_id for stats in seen} == {response.session_id}


def test_the_fields_of_the_options_are_the_arguments_of_runtime_and_run() -> None:
    fields = set(Options.__struct_fields__)
    assert len(fields) == 16
    assert set(inspect.signature(vaka.Runtime).parameters) == fields
    assert set(RuntimeOptions.__annotations__) == fields - {"agent"}


def test_the_limits_are_those_of_the_default_agent() -> None:
    agent = vaka.Runtime(model="openai/x", limits=vaka.Limits(max_steps=7)).options.default_agent()
    assert agent is not None
    assert agent.limits.max_steps == 7


def test_the_project_root_is_found_by_its_markers(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "project" / "deep")
    assert Workspace(project_root="").folder == str(tmp_path / "project")
    monkeypatch.setenv("AGENTSDK_PROJECT_ROOT", str(tmp_path))
    assert Workspace(project_root=".").folder == str(tmp_path)
    assert Workspace(project_root=str(tmp_path / "x")).folder == str(tmp_path / "x")
    assert Workspace(cwd="/elsewhere", project_root=".").folder == "/elsewhere"


def test_an_event_is_a_server_sent_event() -> None:
    event = vaka.Event(data=TextDelta(message_id="m", block=0, offset=0, text="a\nb"), session="s", ts="t")  # type: ignore[arg-type]  # ids are strings
    assert event.to_sse() == b"event: text.delta\ndata: " + event.to_json() + b"\n\n"


def test_fake_clock_is_part_of_the_testing_face() -> None:
    assert FakeClock().time() > 0


async def test_a_session_without_a_turn_has_nothing_to_resume() -> None:
    async with vaka.Runtime() as rt:
        session = await rt.open(vaka.Agent("a", model=ScriptedModel(say("Hi."))), id="s")
        await session.run("Hello.")
        await session.rewind("1.1")
        assert [event async for event in session.resume()] == []
        with pytest.raises(NotFound, match="session 's' has no turn to resume; give it a prompt"):
            await session.resume().wait()


async def test_a_session_is_opened_for_an_owner_and_only_for_that_one() -> None:
    store = MemoryStore()
    async with vaka.Runtime(store=store) as rt:
        bot = vaka.Agent("a", model=ScriptedModel(say("Hello.") | {"repeat": True}))
        session = await rt.open(bot, id="s", owner="ana")
        assert await store.sessions.find(session.id) is None
        await session.run("Hi.")
        info = await store.sessions.find(session.id)
        assert info is not None
        assert info.owner == "ana"
        assert (await (await rt.open(bot, id="s", owner="ana")).run("Again.")).text == "Hello."
        with pytest.raises(AccessDenied, match="session 's' does not belong to the owner 'eve'"):
            await rt.open(bot, id="s", owner="eve")
        await (await rt.open(bot, id="unowned")).run("Hi.")
        with pytest.raises(AccessDenied, match="session 'unowned' does not belong to the owner 'ana'"):
            await rt.open(bot, id="unowned", owner="ana")
        with pytest.raises(InvalidInput, match="must be printable"):
            await rt.open(bot, id="new", owner="a\nb")


async def test_a_session_that_begins_with_a_description_has_the_owner_it_was_opened_for() -> None:
    store = MemoryStore()
    async with vaka.Runtime(store=store) as rt:
        session = await rt.open(vaka.Agent("a", model=ScriptedModel()), id="s", owner="ana")
        await session.update(title="Tea")
        info = await store.sessions.find(session.id)
        assert info is not None
        assert (info.owner, info.title) == ("ana", "Tea")


def test_a_child_whose_scripted_model_has_no_lines_for_it_is_an_error_at_construction() -> None:
    child = vaka.Agent("child", model=ScriptedModel(say("This line has no agent.")))
    message = 'scripted model scripted has no lines for agent \'child\'; add lines with "agent": "child"'
    for make in (
        lambda: vaka.Agent("parent", tools=[child]),
        lambda: vaka.Agent("parent", tools=[child.as_tool(name="helper")]),
        lambda: vaka.SubAgents(child),
        lambda: MatchAgent("router", rules=[{"name": "r"}], routes=[Route(["r"], child)]),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value) == message
    vaka.Agent("parent", tools=[vaka.Agent("child", model=ScriptedModel(agents={"child": [say("Here.")]}))])


async def test_a_child_whose_scripted_file_has_no_lines_for_it_fails_before_the_parent_is_asked(tmp_path: Path) -> None:
    (tmp_path / "child.jsonl").write_text('{"text": "Here."}\n')
    model = ScriptedModel(say("Done."))
    child = vaka.Agent("child", model=f"scripted:{tmp_path / 'child.jsonl'}")
    with pytest.raises(ConfigError, match=r"child.jsonl has no lines for agent 'child'"):
        await vaka.run(vaka.Agent("parent", model=model, tools=[child]), "Go.")
    assert model.prompts == []
