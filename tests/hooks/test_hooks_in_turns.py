"""Hooks decide what happens in a turn: real commands, with exit codes and with JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.hooks.hook_fixtures import RECORD, decides, look, payloads, prints, prompts_of, run_with_hooks
from tests.runtime.runtime_fixtures import agent, event_types, results_by_call, runtime
from vaka.config.options import Workspace
from vaka.hooks import Hook
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say


async def test_a_hook_that_prints_nothing_decides_nothing_and_gets_the_whole_payload(tmp_path: Path) -> None:
    events = (
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "Stop",
        "SessionEnd",
    )
    model = ScriptedModel(calls(call("look", at="sea"), call("look", at="nowhere")), say("done"))
    log, response = await run_with_hooks(tmp_path, model, *(Hook(event=name, command=RECORD) for name in events))
    assert response is not None
    assert response.text == "done"
    assert results_by_call(log)["call_1"].text == "seen sea"
    found = {(p["hook_event_name"], p.get("tool_use_id")): p for p in payloads(tmp_path)}
    assert set(found) == {
        ("SessionStart", None),
        ("UserPromptSubmit", None),
        ("PreToolUse", "call_1"),
        ("PreToolUse", "call_2"),
        ("PostToolUse", "call_1"),
        ("PostToolUseFailure", "call_2"),
        ("Stop", None),
        ("SessionEnd", None),
    }
    common = {"session_id": "s", "cwd": str(tmp_path), "permission_mode": "default"}
    assert all(common.items() <= payload.items() for payload in found.values())
    assert found[("SessionStart", None)]["source"] == "startup"
    assert found[("UserPromptSubmit", None)]["prompt"] == "Go."
    assert found[("PreToolUse", "call_1")]["tool_input"] == {"at": "sea"}
    assert found[("PostToolUse", "call_1")]["tool_response"] == "seen sea"
    assert "there is nothing" in found[("PostToolUseFailure", "call_2")]["error"]
    assert found[("Stop", None)]["stop_hook_active"] is False
    assert found[("SessionEnd", None)]["reason"] == "other"
    ran = [event.data for event in log if event.type == "hook.ran"]
    assert {body.event for body in ran} == set(events) - {"SessionEnd"}


async def test_the_transcript_has_everything_up_to_the_hook(tmp_path: Path) -> None:
    keep = """cp "$(sed 's/.*"transcript_path":"\\([^"]*\\)".*/\\1/')" kept"""
    model = ScriptedModel(call("look", at="sea") | {"text": "Let me look."}, say("done"))
    await run_with_hooks(
        tmp_path, model, Hook(event="Stop", command=keep), project=Project(transcript_folder=str(tmp_path / "t"))
    )
    lines = [json.loads(line) for line in (tmp_path / "kept").read_text().splitlines()]
    assert [(line["type"], [block["type"] for block in line["message"]["content"]]) for line in lines] == [
        ("user", ["text"]),
        ("assistant", ["text"]),
        ("assistant", ["tool_use"]),
        ("user", ["tool_result"]),
        ("assistant", ["text"]),
    ]
    assert lines[-1]["message"]["content"][0]["text"] == "done"
    assert lines[0]["sessionId"] == "s"


async def test_exit_code_2_before_a_tool_refuses_the_call_and_the_model_reads_stderr(tmp_path: Path) -> None:
    refuse = Hook(event="PreToolUse", matcher="look", command="echo 'not there' >&2; exit 2")
    other = Hook(event="PreToolUse", matcher="loo", command="exit 2")
    log, response = await run_with_hooks(tmp_path, ScriptedModel(call("look"), say("done")), refuse, other)
    assert results_by_call(log)["call_1"].text == "not there"
    assert response is not None
    assert response.denied == ("call_1",)
    assert "tool.started" not in event_types(log)


@pytest.mark.parametrize(
    ("decision", "result"),
    [
        ({"permissionDecision": "deny", "permissionDecisionReason": "no"}, "no"),
        ({"permissionDecision": "allow", "updatedInput": {"at": "moon"}}, "seen moon"),
        ({"permissionDecision": "ask", "permissionDecisionReason": "sure?"}, "no person can be asked here"),
        ({"updatedInput": {"at": "moon"}}, "no person can be asked here"),
        ({"additionalContext": "It is dark."}, "no person can be asked here"),
    ],
)
async def test_json_before_a_tool_decides_about_a_call_that_a_rule_asks_about(
    tmp_path: Path, decision: dict[str, Any], result: str
) -> None:
    hook = Hook(event="PreToolUse", command=decides("PreToolUse", **decision))
    log, _ = await run_with_hooks(
        tmp_path,
        ScriptedModel(call("look", at="sea"), say("done")),
        hook,
        permissions=vaka.Permissions(confirm=("look",), ask="deny"),
    )
    assert result in results_by_call(log)["call_1"].text


async def test_an_allow_of_a_hook_overrides_no_deny_rule(tmp_path: Path) -> None:
    hook = Hook(event="PreToolUse", command=prints({"decision": "approve"}))
    _, response = await run_with_hooks(
        tmp_path, ScriptedModel(call("look"), say("done")), hook, permissions=vaka.Permissions(deny=("look(*)",))
    )
    assert response is not None
    assert response.denied == ("call_1",)


async def test_the_strictest_of_several_hooks_wins_and_the_last_changed_arguments_count(tmp_path: Path) -> None:
    allow = Hook(
        event="PreToolUse", command=decides("PreToolUse", permissionDecision="allow", updatedInput={"at": "a"})
    )
    change = Hook(event="PreToolUse", command=decides("PreToolUse", updatedInput={"at": "b"}))
    deny = Hook(event="PreToolUse", matcher="l.*", command=decides("PreToolUse", permissionDecision="deny"))
    log, _ = await run_with_hooks(tmp_path, ScriptedModel(call("look"), say("done")), allow, change)
    assert results_by_call(log)["call_1"].text == "seen b"
    _, response = await run_with_hooks(tmp_path, ScriptedModel(call("look"), say("done")), allow, deny, change)
    assert response is not None
    assert response.denied == ("call_1",)


async def test_a_permission_request_is_decided_by_behavior_and_not_by_silence(tmp_path: Path) -> None:
    async def run(command: str) -> str:
        hook = Hook(event="PermissionRequest", command=command)
        model = ScriptedModel(call("look", at="sea"), say("done"))
        log, _ = await run_with_hooks(
            tmp_path, model, hook, permissions=vaka.Permissions(confirm=("look",), ask="deny")
        )
        return results_by_call(log)["call_1"].text

    allow = {"behavior": "allow", "updatedInput": {"at": "moon"}}
    assert await run(decides("PermissionRequest", decision=allow)) == "seen moon"
    assert await run(decides("PermissionRequest", decision={"behavior": "deny", "message": "never"})) == "never"
    assert await run("echo no >&2; exit 2") == "no"
    assert "no person can be asked" in await run("echo just a log line")


async def test_context_of_hooks_reaches_the_first_request_and_the_results(tmp_path: Path) -> None:
    hooks = (
        Hook(event="SessionStart", matcher="startup", command="echo The build is red."),
        Hook(event="SessionStart", matcher="resume", command="echo Never."),
        Hook(event="UserPromptSubmit", command=decides("UserPromptSubmit", additionalContext="It is Monday.")),
        Hook(event="PostToolUse", command=prints({"decision": "block", "reason": "That is old."})),
    )
    model = ScriptedModel(call("look", at="sea"), say("done"))
    log, _ = await run_with_hooks(tmp_path, model, *hooks)
    assert prompts_of(model, 0) == ["Go.\n\nThe build is red.\n\nIt is Monday."]
    assert results_by_call(log)["call_1"].text == "seen sea\n\nThat is old."


async def test_a_blocked_prompt_is_not_part_of_the_conversation(tmp_path: Path) -> None:
    refuse = Hook(event="UserPromptSubmit", command="grep -q secret && { echo 'no secrets' >&2; exit 2; }; exit 0")
    store = MemoryStore()
    model = ScriptedModel(say("done"))
    async with runtime(store, project=Project(hooks=[refuse]), workspace=Workspace(cwd=str(tmp_path))) as rt:
        session = await rt.open(agent(model), id="s")
        with pytest.raises(vaka.TurnError, match="no secrets"):
            await session.run("The secret is 42.")
        await session.run("Hello.")
    assert prompts_of(model) == ["Hello."]


async def test_a_stop_hook_sends_the_agent_on_and_is_capped(tmp_path: Path) -> None:
    hook = Hook(event="Stop", command=f"{RECORD}; " + 'echo \'{"decision": "block", "reason": "Run the tests."}\'')
    model = ScriptedModel(*(say(f"answer {n}") for n in range(20)))
    _, response = await run_with_hooks(tmp_path, model, hook)
    assert response is not None
    assert response.text == "answer 8"
    assert prompts_of(model) == ["Go.", *["Run the tests."] * 8]
    assert [payload["stop_hook_active"] for payload in payloads(tmp_path)] == [False, *[True] * 7]


async def test_continue_false_ends_the_turn_with_its_reason(tmp_path: Path) -> None:
    hook = Hook(event="PostToolUse", command=prints({"continue": False, "stopReason": "enough"}))
    log, _ = await run_with_hooks(tmp_path, ScriptedModel(call("look"), say("never")), hook)
    assert log[-1].type == "turn.interrupted"
    assert log[-1].data.note == "enough"


async def test_hooks_that_fail_hang_or_print_garbage_do_not_stop_the_turn(tmp_path: Path) -> None:
    commands = (
        "exit 1",
        "no-such-program",
        "kill -9 $$",
        "sleep 100 & sleep 100",
        "yes | head -c 3000000",
        "printf '{\\377'",
        "printf '[1, 2]'",
        'echo \'{"hookSpecificOutput": 3, "decision": [1]}\'',
    )
    hooks = [Hook(event="PreToolUse", command=command, timeout=2) for command in commands]
    log, response = await run_with_hooks(tmp_path, ScriptedModel(call("look", at="sea"), say("done")), *hooks)
    assert response is not None
    assert results_by_call(log)["call_1"].text == "seen sea"
    warnings = [event.data.message for event in log if event.type == "log"]
    assert any("took longer than 2 s" in text for text in warnings)
    assert any("exit status 127" in text for text in warnings)


async def test_a_failing_hook_of_the_administrator_refuses_if_it_is_closed(tmp_path: Path) -> None:
    hook = Hook(event="PreToolUse", command="exit 1", managed=True)
    _, response = await run_with_hooks(
        tmp_path, ScriptedModel(call("look"), say("done")), hook, project=Project(hook_failure="closed")
    )
    assert response is not None
    assert response.denied == ("call_1",)


async def test_a_once_hook_runs_once_in_each_session_and_a_condition_selects_calls(tmp_path: Path) -> None:
    once = Hook(event="PreToolUse", command="echo once >> ran", once=True)
    other = Hook(event="PreToolUse", command="echo also once >> ran", once=True)
    conditional = Hook(event="PreToolUse", command="echo conditional >> ran", condition="look(moon)")
    store = MemoryStore()
    async with runtime(
        store, project=Project(hooks=[once, other, conditional]), workspace=Workspace(cwd=str(tmp_path))
    ) as rt:
        for name in ("a", "b"):
            model = ScriptedModel(call("look", at="sea"), call("look", at="sun"), say("done"))
            await (await rt.open(agent(model, look), id=name)).run("Go.")
    assert sorted((tmp_path / "ran").read_text().splitlines()) == ["also once"] * 2 + ["once"] * 2


async def test_a_detached_hook_decides_nothing_and_ends_before_the_runtime_does(tmp_path: Path) -> None:
    hook = Hook(event="PreToolUse", command="cat > kept; exit 2", detached=True)
    log, _ = await run_with_hooks(tmp_path, ScriptedModel(call("look", at="sea"), say("done")), hook)
    assert results_by_call(log)["call_1"].text == "seen sea"
    assert json.loads((tmp_path / "kept").read_text())["tool_name"] == "look"


async def test_hooks_of_the_runtime_govern_child_agents_and_see_them_begin_and_end(tmp_path: Path) -> None:
    events = ("SubagentStart", "SubagentStop")
    hooks = [Hook(event=name, matcher="child", command=RECORD) for name in events]
    refuse = Hook(event="PreToolUse", matcher="look", command="echo 'not there' >&2; exit 2")
    child = agent(ScriptedModel(agents={"child": [call("look"), say("child done")]}), look, name="child")
    model = ScriptedModel(call("child", prompt="Look."), say("done"))
    kept = str(tmp_path / "transcripts")
    log, _ = await run_with_hooks(
        tmp_path, model, *hooks, refuse, tools=(child,), project=Project(transcript_folder=kept)
    )
    assert "not there" in {result.text for result in results_by_call(log).values()}
    started, stopped = payloads(tmp_path)
    assert (started["hook_event_name"], started["agent_type"], started["prompt"]) == ("SubagentStart", "child", "Look.")
    assert stopped["last_assistant_message"] == "child done"
    assert '"text":"Go."' in Path(stopped["transcript_path"]).read_text()
    lines = Path(stopped["agent_transcript_path"]).read_text().splitlines()
    assert json.loads(lines[0])["message"]["content"][0]["text"] == "Look."


async def test_a_prompt_hook_asks_the_model(tmp_path: Path) -> None:
    hook = Hook(event="PreToolUse", kind="prompt", prompt="Is this safe? $ARGUMENTS")
    refuse = '{"ok": false, "reason": "not safe"}'
    for answer, result in ((refuse, "not safe"), ('{"ok": true}', "seen ")):
        model = ScriptedModel(call("look"), say("done"), agents={"hook": [say(answer)]})
        log, _ = await run_with_hooks(tmp_path, model, hook)
        assert results_by_call(log)["call_1"].text == result


async def test_hook_middleware_wraps_the_hooks_of_an_event(tmp_path: Path) -> None:
    seen: list[str] = []

    async def outer(event: str, payload: Any, run: Any) -> Any:
        seen.append(f"outer {event}")
        return await run()

    async def inner(event: str, payload: Any, run: Any) -> Any:
        seen.append(f"inner {payload['tool_name']}")
        return await run()

    hook = Hook(event="PreToolUse", command="exit 2")
    model = ScriptedModel(call("look"), say("done"))
    await run_with_hooks(tmp_path, model, hook, project=Project(hook_middleware=(outer, inner)))
    assert seen == ["outer PreToolUse", "inner look"]
