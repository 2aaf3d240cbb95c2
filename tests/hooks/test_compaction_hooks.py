"""Hooks of compactions: they see why and when, add instructions, or prevent it, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.hook_fixtures import prints, prompts_of
from tests.runtime.runtime_fixtures import agent, check_log, event_types, read_log, runtime
from vaka.config.options import Workspace
from vaka.core.types.context import ContextCompacted
from vaka.core.types.event import Event
from vaka.hooks import Hook
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, say

WORDS = "word " * 1_200
COMMON = {"session_id", "transcript_path", "cwd", "permission_mode", "hook_event_name"}


def long_model(turns: int) -> ScriptedModel:
    """Return a model whose window a few turns of ``WORDS`` fill."""
    summaries = [say(f"<summary>Summary {number}.</summary>") for number in range(turns)]
    return ScriptedModel(
        *[say(f"Answer {n}.") for n in range(turns)], agents={"summary": summaries}, context_window=6_000
    )


async def converse(folder: Path, *hooks: Hook, turns: int = 5) -> tuple[ScriptedModel, list[Event]]:
    """Say something long several times, and return the model and the log."""
    store, model = MemoryStore(), long_model(turns)
    async with runtime(store, project=Project(hooks=hooks), workspace=Workspace(cwd=str(folder))) as rt:
        session = await rt.open(agent(model), id="s")
        for number in range(turns):
            assert (await session.run(f"Prompt {number}. {WORDS}")).text == f"Answer {number}."
    log = await read_log(store, "s")
    check_log(log)
    return model, log


def compactions(log: list[Event]) -> list[ContextCompacted]:
    return [event.data for event in log if isinstance(event.data, ContextCompacted)]


def read_payloads(folder: Path, event: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / event).read_text().splitlines()]


async def test_hooks_see_a_compaction_before_and_after_and_add_instructions(tmp_path: Path) -> None:
    names = ("ContextCompacted", "PostCompact", "SessionStart")
    hooks = [Hook(event=name, command=f"cat >> {name}; echo >> {name}") for name in names]
    before = "cat >> PreCompact; echo >> PreCompact; echo 'Keep the names of ships.'"
    other = Hook(event="PreCompact", matcher="manual", command="touch manual")
    model, log = await converse(tmp_path, Hook(event="PreCompact", matcher="auto", command=before), other, *hooks)
    done = compactions(log)
    assert done
    assert {body.instructions for body in done} == {"Keep the names of ships."}
    asked = read_payloads(tmp_path, "PreCompact")
    assert len(asked) == len(done)
    fields = {"trigger", "custom_instructions", "estimated_tokens", "token_limit", "threshold", "preserve_count"}
    assert {key for payload in asked for key in payload} == COMMON | fields
    first = asked[0]
    assert (first["trigger"], first["custom_instructions"], first["token_limit"]) == ("auto", "", 6_000)
    assert first["estimated_tokens"] == done[0].before
    assert (first["threshold"], first["preserve_count"]) == (0.85, 3)
    for name in names[:2]:
        seen = read_payloads(tmp_path, name)
        assert [payload["summary"] for payload in seen] == [body.summary for body in done]
        assert (seen[0]["compact_summary"], seen[0]["trigger"]) == (done[0].summary, "auto")
        counts = (seen[0]["original_messages"], seen[0]["preserved_messages"])
        assert counts == (done[0].messages, done[0].kept_messages)
        assert counts[0] > counts[1] > 0
        sizes = (seen[0]["estimated_tokens_before"], seen[0]["estimated_tokens_after"])
        assert sizes == (done[0].before, done[0].after)
    sources = [payload["source"] for payload in read_payloads(tmp_path, "SessionStart")]
    assert sources == ["startup", *["compact"] * sum(bool(body.summary) for body in done)]
    assert not (tmp_path / "manual").exists()
    summary_prompts = [p for p in model.prompts if p.agent == "summary"]
    assert "Keep the names of ships." in str(summary_prompts[0].messages)


@pytest.mark.parametrize(
    "command", ["echo 'The deploy is not over.' >&2; exit 2", prints({"continue": False, "stopReason": "not now"})]
)
async def test_a_hook_prevents_the_compaction_and_not_the_turn(tmp_path: Path, command: str) -> None:
    hook = Hook(event="PreCompact", command=f"echo run >> runs; {command}")
    _, log = await converse(tmp_path, hook, turns=3)
    assert not compactions(log)
    assert event_types(log).count("turn.completed") == 3
    runs = len((tmp_path / "runs").read_text().split())
    assert runs == 1


async def test_hooks_of_a_compaction_on_request_get_its_trigger_and_instructions(tmp_path: Path) -> None:
    names = ("PreCompact", "PostCompact")
    hooks = [Hook(event=name, matcher="manual", command=f"cat >> {name}; echo >> {name}") for name in names]
    hooks.append(Hook(event="PostCompact", matcher="auto", command="touch auto"))
    store, model = MemoryStore(), ScriptedModel(*[say(WORDS)] * 2, agents={"summary": [say("Done.")]})
    async with runtime(store, project=Project(hooks=hooks), workspace=Workspace(cwd=str(tmp_path))) as rt:
        session = await rt.open(agent(model), id="s")
        for _ in range(2):
            await session.run("Go.")
        assert (await session.compact("Keep the ships.")).summary
    check_log(await read_log(store, "s"))
    payloads = [read_payloads(tmp_path, name) for name in names]
    assert [[p["trigger"], p["custom_instructions"]] for several in payloads for p in several] == [
        ["manual", "Keep the ships."]
    ] * 2
    assert not (tmp_path / "auto").exists()


async def test_a_failing_hook_does_not_prevent_the_compaction(tmp_path: Path) -> None:
    _, log = await converse(tmp_path, Hook(event="PreCompact", command="exit 3"))
    assert compactions(log)


async def test_what_a_session_start_hook_prints_after_a_compaction_is_part_of_the_next_prompt(tmp_path: Path) -> None:
    hook = Hook(event="SessionStart", matcher="compact", command="echo 'The harbour is closed.'")
    model, log = await converse(tmp_path, hook, turns=4)
    assert any(body.summary for body in compactions(log))
    prompts = [text for text in prompts_of(model) if "The harbour is closed." in text]
    assert prompts
    assert all(text.startswith("Prompt") for text in prompts)
