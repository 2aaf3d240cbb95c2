"""The system prompt that the flags of a command give to the model."""

import asyncio
from typing import Any

import pytest

from tests.cli.shell import Shell, say_line
from vaka.core.types.ids import Digest
from vaka.stores.sqlite import SqliteStore


def system_prompt(shell: Shell, *flags: str) -> str:
    """Run a turn and return the system prompt that the model got."""
    shell.write_script(say_line("Hello."))
    session = f"s{len(flags)}{abs(hash(flags))}"
    result = shell.vaka("run", "Hi.", "--session", session, "--model", "scripted:script.jsonl", *flags)
    assert result.code == 0, result.err
    steps: list[Any] = [event for event in shell.events(session) if event["type"] == "step.started"]
    digest = steps[0]["data"].get("system")
    return asyncio.run(read_blob(shell, digest)) if digest else ""


async def read_blob(shell: Shell, digest: str) -> str:
    store = SqliteStore(shell.folder / "data" / "vaka" / "vaka.db")
    try:
        return (await store.blobs.get(Digest(digest))).decode()
    finally:
        await store.close()


def test_the_default_agent_gets_the_base_prompt_and_the_environment(shell: Shell) -> None:
    text = system_prompt(shell, "--instructions", "Be kind.", "--append-system-prompt", "The end.")
    assert text.startswith("You are vaka, a coding agent.")
    assert f"Working folder: {shell.folder}" in text
    assert text.endswith("Be kind.\n\nThe end.")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--no-base-prompt",), ""),
        (("--no-base-prompt", "--instructions", "Be kind."), "Be kind."),
        (("--builtin-tools", "none", "--system-prompt", "You are a boat."), "You are a boat."),
        (("--agent", "agent.py", "--append-system-prompt", "The end."), "The end."),
    ],
)
def test_flags_replace_and_omit_the_base_prompt(shell: Shell, flags: tuple[str, ...], expected: str) -> None:
    assert system_prompt(shell, *flags) == expected


def test_a_replaced_base_prompt_keeps_the_environment(shell: Shell) -> None:
    shell.write_file("base.md", "You are a boat.")
    text = system_prompt(shell, "--system-prompt", "@base.md")
    assert text.startswith("You are a boat.\n\nEnvironment")


def test_flags_that_contradict_each_other_are_refused(shell: Shell) -> None:
    result = shell.vaka("run", "Hi.", "--model", "scripted:x", "--no-base-prompt", "--system-prompt", "A")
    assert result.code == 2
    assert "leave one of them out" in result.err
    missing = shell.vaka("run", "Hi.", "--model", "scripted:x", "--system-prompt", "@missing")
    assert missing.code == 2
    assert "--system-prompt @missing" in missing.err
