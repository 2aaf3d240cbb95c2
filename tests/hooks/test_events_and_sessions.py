"""Every event fires where it should, sessions begin and end once, and results have the fields that hooks expect."""

import asyncio
import json
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.hooks.hook_fixtures import RECORD, decides, look, payloads, prints, run_with_hooks
from tests.runtime.runtime_fixtures import agent, check_log, read_log, results_by_call, runtime
from vaka.config.options import Commands, Models, Workspace
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.message import Text, ToolCall, ToolResult
from vaka.core.types.monitor import McpChanged
from vaka.errors import InvalidInput
from vaka.hooks import EVENTS, Hook, HookEngine, HookSettings, make_middleware
from vaka.hooks.payload import tool_response
from vaka.hooks.transcript import Transcripts
from vaka.middleware import ToolSource
from vaka.runtime.options import Environment, Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say
from vaka.tools import ToolTraits

LATER_EVENTS = ("PreCompact", "ContextCompacted", "PostCompact")
"""Events of compaction, which fire where a conversation is compacted."""


class ChangingTools(vaka.Middleware, ToolSource):
    """Reports once that a server has changed its tools, as a client of servers does before a model call."""

    inherited = ()

    async def tools_for_step(self, turn: Any) -> Any:
        if turn.values.setdefault("reported", turn) is turn and not turn.values.get("done"):
            turn.values["done"] = True
            turn.log.defer(turn.scope, McpChanged(server="files", change="tools", detail={"tools": ["read"]}))
        return ()


class WaitingReads:
    """An event store whose reads wait, as those of a server do."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read(self, *given: Any, **more: Any) -> Any:
        async with aclosing(self._inner.read(*given, **more)) as events:
            async for event in events:
                await asyncio.sleep(0)
                yield event


async def test_every_event_fires_with_its_own_fields(tmp_path: Path) -> None:
    hooks = [Hook(event=name, command=f"cat > {name}.$$") for name in EVENTS]
    child = agent(ScriptedModel(agents={"child": [say("child done")]}), name="child")
    steps = [
        calls(call("look", at="sea"), call("look", at="nowhere"), call("guarded"), call("child", prompt="Look.")),
        say("done"),
    ]
    pool = {"high": ScriptedModel(*steps)}
    store = MemoryStore()

    @vaka.tool(effect="once")
    async def guarded() -> str:
        """Do something that is guarded."""
        return "done"

    async def allow(request: Any) -> Any:
        return "allow"

    async with runtime(
        store,
        project=Project(hooks=hooks),
        workspace=Workspace(cwd=str(tmp_path)),
        models=Models(tiers=pool),
        permissions=vaka.Permissions(confirm=("guarded",), handler=allow),
    ) as rt:
        worker = vaka.Agent("assistant", tools=[look, guarded, child], middleware=[ChangingTools()])
        session = await rt.open(worker, id="s")
        await session.run("Go.", model="high")
        await session.close("clear")
        await session.close("clear")
    check_log(await read_log(store, "s"))
    found = {name: [json.loads(file.read_text()) for file in tmp_path.glob(f"{name}.*")] for name in EVENTS}
    assert [name for name in EVENTS if not found[name]] == list(LATER_EVENTS)
    common = {"session_id", "transcript_path", "cwd", "permission_mode", "hook_event_name"}
    assert all(common <= set(payload) for several in found.values() for payload in several)
    own = {name: {key for payload in found[name] for key in payload} - common for name in EVENTS}
    tool = {"tool_name", "tool_input", "tool_use_id"}
    assert own["PreToolUse"] == tool
    assert own["PostToolUse"] == tool | {"tool_response", "tool_result", "duration_ms"}
    assert own["PostToolUseFailure"] == tool | {"error", "is_error", "is_interrupt", "duration_ms"}
    assert own["PermissionRequest"] == tool | {"reason", "permission_suggestions"}
    assert own["UserPromptSubmit"] == {"prompt", "user_prompt"}
    assert own["SessionStart"] == {"source", "model", "agent_type"}
    assert own["SessionEnd"] == {"reason"}
    assert own["Stop"] == {"stop_hook_active", "last_assistant_message"}
    names = {"agent_id", "agent_type", "agent_name", "agent_transcript_path"}
    assert own["SubagentStart"] == names | {"prompt"}
    assert own["SubagentStop"] == names | {"stop_hook_active", "last_assistant_message", "reason"}
    assert own["Notification"] == {"message", "title", "notification_type"}
    assert own["TokenUsage"] >= {"total_tokens"}
    assert [payload["reason"] for payload in found["SessionEnd"]] == ["clear"]
    assert found["ModelSelected"][0]["model_tier"] == "high"
    assert (found["MCPToolsChanged"][0]["server"], found["MCPToolsChanged"][0]["tools"]) == ("files", ["read"])


async def test_a_question_of_a_tool_is_a_notification(tmp_path: Path) -> None:
    hook = Hook(event="Notification", matcher="elicitation_dialog", command="cat > asked")

    @vaka.tool(effect="resume")
    async def ask(context: vaka.ToolContext) -> str:
        """Ask the user."""
        return str(await context.ask("Which colour?"))

    async with runtime(
        project=Project(hooks=[hook]), workspace=Workspace(cwd=str(tmp_path)), permissions=vaka.Permissions(ask="deny")
    ) as rt:
        await (await rt.open(agent(ScriptedModel(call("ask"), say("done")), ask))).run("Go.")
    assert not (tmp_path / "asked").exists()  # no person is asked, so there is nothing to notify
    async with runtime(project=Project(hooks=[hook]), workspace=Workspace(cwd=str(tmp_path))) as rt:
        session = await rt.open(agent(ScriptedModel(call("ask"), say("done")), ask), id="s")
        turn = asyncio.create_task(session.run("Go."))
        async with aclosing(rt.follow("s")) as events:
            await anext(event async for event in events if event.type == "question.asked")
        await rt.answer((await rt.decisions("s"))[0].id, "red")
        await turn
    assert json.loads((tmp_path / "asked").read_text())["message"] == "Which colour?"


async def test_the_sessions_of_a_long_lived_runtime_are_bounded_and_each_ends_once(tmp_path: Path) -> None:
    hooks = [
        Hook(event="SessionStart", command='read -r line; echo "$line" >> started'),
        Hook(event="SessionEnd", command='read -r line; echo "$line" >> ended'),
    ]
    settings = HookSettings(cwd=str(tmp_path), max_sessions=2)
    engine = HookEngine(hooks, settings, Transcripts(str(tmp_path / "t"), ""))
    middleware = make_middleware(engine)
    assert middleware
    async with runtime() as rt:
        for name in ("a", "b", "a", "c", "d", "a"):
            model = ScriptedModel(say("done"), say("done"), say("done"))
            await (await rt.open(agent(model, middleware=middleware), id=name)).run("Go.")
        await engine.close()
    started, ended = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()] for name in ("started", "ended")
    )
    sources = [(payload["session_id"], payload["source"]) for payload in started]
    assert sources == [("a", "startup"), ("b", "startup"), ("c", "startup"), ("d", "startup"), ("a", "resume")]
    assert sorted(payload["session_id"] for payload in ended) == ["a", "a", "b", "c", "d"]


async def test_a_person_is_asked_while_notifications_run_and_their_failures_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "asked")  # the hook ends only after the person was asked

    async def answer(request: Any) -> Any:
        await asyncio.to_thread((tmp_path / "asked").write_text, "now")
        return "allow"

    hook = Hook(event="Notification", command="cat asked; exit 3")
    options: dict[str, Any] = {"permissions": vaka.Permissions(confirm=("look",), handler=answer)}
    log, _ = await run_with_hooks(tmp_path, ScriptedModel(call("look", at="sea"), say("done")), hook, **options)
    assert results_by_call(log)["call_1"].text == "seen sea"
    assert "hook of Notification: exit status 3" in caplog.text


async def test_a_hook_of_an_unknown_event_is_reported_and_a_wrong_matcher_is_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with runtime(project=Project(hooks=[Hook(event="PreTolUse", command="true")])):
        assert "did you mean 'PreToolUse'?" in caplog.text
    with pytest.raises(InvalidInput, match="'\\(' of a hook is not a regular expression"):
        runtime(project=Project(hooks=[Hook(event="PreToolUse", matcher="(", command="true")]))


async def test_a_session_that_is_left_ends_for_hooks_and_a_cleared_one_has_a_successor(tmp_path: Path) -> None:
    hooks = [
        Hook(event="SessionStart", matcher="clear", command='read -r line; echo "$line" >> ran'),
        Hook(event="SessionEnd", matcher="clear|prompt_input_exit", command='read -r line; echo "$line" >> ran'),
    ]
    async with runtime(project=Project(hooks=hooks), workspace=Workspace(cwd=str(tmp_path))) as rt:
        first, second = [await rt.open(agent(ScriptedModel(say("done"))), id=name) for name in ("a", "b")]
        await first.leave("prompt_input_exit")  # it has not begun
        await first.run("Go.")
        await first.leave("clear", successor=second)
        await second.run("Go.")
        await second.leave("prompt_input_exit")
    ran = [json.loads(line) for line in (tmp_path / "ran").read_text().splitlines()]
    assert [(one["hook_event_name"], one["session_id"], one.get("reason") or one["source"]) for one in ran] == [
        ("SessionEnd", "a", "clear"),
        ("SessionStart", "b", "clear"),
        ("SessionEnd", "b", "prompt_input_exit"),
    ]


async def test_equal_commands_run_once_whatever_their_conditions_and_the_last_line_of_defence_stays(
    tmp_path: Path,
) -> None:
    hooks = (
        Hook(event="PreToolUse", command="echo ran >> ran; exit 1", condition="look(moon)"),
        Hook(event="PreToolUse", command="echo ran >> ran; exit 1", matcher="look"),
        Hook(event="PreToolUse", command="echo ran >> ran; exit 1", managed=True),
    )
    model = ScriptedModel(call("look", at="sea"), say("done"))
    _, response = await run_with_hooks(tmp_path, model, *hooks, project=Project(hook_failure="closed"))
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert response is not None
    assert response.denied == ("call_1",)


async def test_a_hook_that_ends_the_session_at_its_start_refuses_the_prompt(tmp_path: Path) -> None:
    hook = Hook(event="SessionStart", command=prints({"continue": False, "stopReason": "closed on Sundays"}))
    async with runtime(project=Project(hooks=[hook]), workspace=Workspace(cwd=str(tmp_path))) as rt:
        with pytest.raises(vaka.TurnError, match="closed on Sundays"):
            await (await rt.open(agent(ScriptedModel(say("done"))))).run("Go.")


async def test_output_that_a_hook_suppresses_is_not_in_the_log(tmp_path: Path) -> None:
    quiet = Hook(event="PreToolUse", command=prints({"suppressOutput": True, "systemMessage": "checked"}))
    log, _ = await run_with_hooks(tmp_path, ScriptedModel(call("look"), say("done")), quiet)
    [ran] = [event.data for event in log if event.type == "hook.ran"]
    assert (ran.status, ran.output) == (0, "")
    assert [event.data.message for event in log if event.type == "log"] == ["hook of PreToolUse: checked"]


async def test_two_sessions_with_similar_names_have_different_transcripts(tmp_path: Path) -> None:
    files = Transcripts(str(tmp_path), "")
    names: list[Any] = ["a/b", "a_b", "a:b", "s-agent-1", "x" * 400, "x" * 401, ".."]
    paths = [files.path_of(name) for name in names] + [files.path_of(names[0], ("agent-1",))]
    assert len({*paths, files.path_of("s", ("agent-1",))}) == len(paths) + 1  # type: ignore[arg-type]  # a session id
    assert all(path.is_relative_to(tmp_path) and ".." not in path.parts for path in paths)


async def test_the_hooks_of_calls_at_the_same_time_find_each_line_once_in_the_transcript(tmp_path: Path) -> None:
    kept = str(tmp_path / "t")
    model = ScriptedModel(calls(*(call("look", at=str(number)) for number in range(6))), say("done"))
    store = MemoryStore()
    waiting: Any = WaitingReads(store.events)
    store.events = waiting
    hook = Hook(event="PostToolUse", command="true")
    project = Project(hooks=[hook], transcript_folder=kept)
    async with runtime(store, workspace=Workspace(cwd=str(tmp_path)), project=project) as rt:
        await (await rt.open(agent(model, look), id="s")).run("Go.")
    lines = [json.loads(line) for line in (tmp_path / "t/s.jsonl").read_text().splitlines()]
    assert len(lines) == len({line["seq"] for line in lines})
    # Another log with the same session id, as in another store, begins its own transcript.
    stop = Hook(event="Stop", command="true")
    await run_with_hooks(tmp_path, ScriptedModel(say("other")), stop, project=Project(transcript_folder=kept))
    lines = [json.loads(line) for line in (tmp_path / "t/s.jsonl").read_text().splitlines()]
    texts = [line["message"]["content"][0].get("text") for line in lines]
    assert texts == ["Go.", "other"]


async def test_a_temporary_transcript_is_removed_with_the_runtime_and_a_deleted_one_leaves_nothing(
    tmp_path: Path,
) -> None:
    hooks = (Hook(event="Stop", command=RECORD), Hook(event="SessionStart", command="true"))
    await run_with_hooks(tmp_path, ScriptedModel(say("done")), *hooks)
    [payload] = payloads(tmp_path)
    assert not Path(payload["transcript_path"]).parent.exists()
    folder = tmp_path / "t"
    await run_with_hooks(tmp_path, ScriptedModel(say("done")), *hooks, project=Project(transcript_folder=str(folder)))
    assert {file.name for file in folder.iterdir()} == {"s.jsonl", "s.env"}
    Transcripts(str(folder), "").delete(SessionId("s"))
    assert list(folder.iterdir()) == []


async def test_variables_of_a_session_start_hook_reach_later_commands(tmp_path: Path) -> None:
    writes = r"""printf 'export COLOUR="deep blue"\nexport PATH="/opt/x:$PATH"\necho noise\n' >> "$CLAUDE_ENV_FILE" """
    also = 'echo "declare -x SIZE=\\"it\'s big\\"" > "$CLAUDE_ENV_FILE"'
    hooks = [Hook(event="SessionStart", command=writes), Hook(event="SessionStart", command=also)]
    show = call("Bash", command='echo "$COLOUR/$SIZE/${PATH%%:*}"')
    options: dict[str, Any] = {
        "workspace": Workspace(cwd=str(tmp_path)),
        "permissions": vaka.Permissions(allow=("Bash(*)",)),
        "commands": Commands(sandbox="off"),
    }
    store = MemoryStore()
    for _ in range(2):  # the second runtime resumes the session
        async with runtime(store, project=Project(hooks=hooks, transcript_folder=str(tmp_path / "t")), **options) as rt:
            model = ScriptedModel(show, say("done"), show, say("done"))
            await (await rt.open(agent(model, "Bash"), id="s")).run("Go.")
    texts = [result.text for result in results_by_call(await read_log(store, "s")).values()]
    assert len(texts) == 2
    assert all(text.startswith("deep blue/it's big//opt/x\n") for text in texts)


async def test_hooks_get_the_environment_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIP_API_KEY", "k-123")
    monkeypatch.setenv("HARBOUR_TOKEN", "t-123")
    monkeypatch.setenv("HARBOUR_NAME", "Hilo")
    remote = Hook(event="Stop", command='echo "$CLAUDE_CODE_REMOTE" > remote')
    hook = Hook(
        event="Stop",
        env={"OWN": "mine"},
        command='echo "$SHIP_API_KEY,$HARBOUR_TOKEN,$HARBOUR_NAME,$OWN,$CLAUDE_PROJECT_DIR,${CLAUDE_ENV_FILE-}" > seen',
    )
    options: dict[str, Any] = {
        "commands": Commands(env=("HARBOUR_TOKEN",)),
        "environment": Environment(entry_point="platform"),
    }
    await run_with_hooks(tmp_path, ScriptedModel(say("done")), hook, remote, **options)
    assert (tmp_path / "remote").read_text() == "true\n"
    assert (tmp_path / "seen").read_text().strip() == f",t-123,Hilo,mine,{tmp_path},"


async def test_results_of_built_in_tools_have_the_fields_that_hooks_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a.txt")
    steps = [
        call("Write", file_path="a.txt", content="one\ntwo\n"),
        call("Read", file_path="a.txt"),
        call("Edit", file_path=path, old_string="two", new_string="three"),
        call("Bash", command="cat a.txt; echo oops >&2"),
        call("Glob", pattern="*.txt"),
        say("done"),
    ]
    hooks = [Hook(event="PostToolUse", command=RECORD), Hook(event="PreToolUse", command="cat > before.$$")]
    tools = ("Write", "Read", "Edit", "Bash", "Glob")
    await run_with_hooks(
        tmp_path,
        ScriptedModel(*steps),
        *hooks,
        tools=tools,
        permissions=vaka.Permissions(mode="bypassPermissions"),
        commands=Commands(sandbox="off"),
    )
    seen = {payload["tool_name"]: payload for payload in payloads(tmp_path)}
    assert [seen[name]["tool_input"]["file_path"] for name in ("Write", "Read", "Edit")] == [path] * 3
    before = [json.loads(file.read_text())["tool_input"] for file in tmp_path.glob("before.*")]
    assert {given["file_path"] for given in before if "file_path" in given} == {path}
    response = {name: payload["tool_response"] for name, payload in seen.items()}
    assert response["Write"].items() >= {"type": "create", "filePath": path, "success": True}.items()
    assert response["Read"]["file"] == {
        "filePath": path,
        "content": "one\ntwo",
        "numLines": 2,
        "startLine": 1,
        "totalLines": 2,
    }
    assert response["Edit"].items() >= {"filePath": path, "oldString": "two", "newString": "three"}.items()
    shown = {"stdout": "one\nthree\noops", "stderr": "", "interrupted": False, "isImage": False}
    assert response["Bash"].items() >= shown.items()
    assert response["Glob"]["filenames"] == ["a.txt"]
    assert all(isinstance(payload["duration_ms"], int) for payload in seen.values())


@vaka.tool(traits=ToolTraits(writes=True, paths=("name",), content="text"))
def save_note(name: str, text: str) -> dict[str, str]:
    """Save a note."""
    return {"saved": name}


async def test_a_hook_reads_the_absolute_path_of_a_tool_that_declares_it_and_the_value_of_the_tool(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("save_note", name="a.txt", text="x"), say("done"))
    hook = Hook(event="PostToolUse", command=RECORD)
    await run_with_hooks(tmp_path, model, hook, tools=(save_note,), permissions=vaka.Permissions(mode="acceptEdits"))
    [payload] = payloads(tmp_path)
    assert payload["tool_input"] == {"name": str(tmp_path / "a.txt"), "text": "x"}
    assert payload["tool_response"] == {"saved": "a.txt"}


async def test_a_changed_path_of_a_hook_is_the_one_that_is_written(tmp_path: Path) -> None:
    change = {"file_path": str(tmp_path / "b.txt"), "content": "x"}
    hook = Hook(event="PreToolUse", matcher="Write", command=decides("PreToolUse", updatedInput=change))
    model = ScriptedModel(call("Write", file_path="a.txt", content="x"), say("done"))
    await run_with_hooks(tmp_path, model, hook, tools=("Write",), permissions=vaka.Permissions(mode="acceptEdits"))
    assert [file.name for file in tmp_path.glob("*.txt")] == ["b.txt"]


def test_the_results_of_other_tools_have_the_shapes_that_hooks_read() -> None:
    def response(name: str, text: str, value: Any = None, **arguments: Any) -> Any:
        called = ToolCall(id=CallId("c"), name=name, arguments=arguments)
        result = ToolResult(call=CallId("c"), content=(Text(text=text),), value=value)
        return tool_response(called, result, "/project")

    assert response("mcp__files__read", "one") == [{"type": "text", "text": "one"}]
    assert response("mcp__files__read", "one", {"lines": 1}) == {"lines": 1}
    assert response("weather", "rain") == "rain"
    edits = [{"old_string": "a", "new_string": "b"}]
    changed = response("MultiEdit", "done", {"replaced": 1}, file_path="a.py", edits=edits)
    assert changed == {"replaced": 1, "filePath": "/project/a.py", "edits": edits, "success": True}
    assert response("NotebookEdit", "done", None, notebook_path="/n.ipynb")["filePath"] == "/n.ipynb"
    found = response("Grep", "a.py", {"output_mode": "files_with_matches", "total_files": 1, "files": ["a.py"]})
    assert (found["mode"], found["numFiles"], found["filenames"]) == ("files_with_matches", 1, ["a.py"])
    assert response("Task", "It works.", prompt="Try.")["content"] == [{"type": "text", "text": "It works."}]
    picture = response("Read", "[a.png]", {"media_type": "image/png"}, file_path="a.png")
    assert (picture["type"], picture["file"]) == ("image", {"filePath": "/project/a.png"})
    started = response("Bash", "bash_1 runs in the background.", {"task_id": "bash_1"}, command="sleep 9")
    assert (started["stdout"], started["task_id"]) == ("bash_1 runs in the background.", "bash_1")
