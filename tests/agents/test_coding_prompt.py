"""The system prompt of the coding agent: its parts, and that it stays the same."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

import vaka
from vaka.agents.coding_prompt import base_prompt, coding_instructions, describe_environment
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, say


async def system_prompts(folder: Path, store: MemoryStore, *prompts: str) -> list[str]:
    model = ScriptedModel(*(say(f"{number}") for number in range(9)))
    agent = vaka.Agent("assistant", model=model, instructions=coding_instructions(folder, instructions="Be kind."))
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(agent, id="s")
        for prompt in prompts:
            await session.run(prompt)
    return [prompt.system for prompt in model.prompts]


def write_head(folder: Path, text: str) -> None:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / ".git" / "HEAD").write_text(text)


async def test_the_prompt_is_the_base_prompt_then_the_environment_then_instructions(tmp_path: Path) -> None:
    write_head(tmp_path, "ref: refs/heads/feature/sails\n")
    (system,) = await system_prompts(tmp_path, MemoryStore(), "Hi.")
    assert system.startswith(base_prompt())
    assert system.endswith("Be kind.")
    assert f"- Working folder: {tmp_path}\n- Git repository: yes, branch feature/sails\n- System: " in system


async def test_the_prompt_of_a_session_does_not_change_with_its_surroundings(tmp_path: Path) -> None:
    store = MemoryStore()
    write_head(tmp_path, "ref: refs/heads/main\n")
    before = await system_prompts(tmp_path, store, "One.", "Two.")
    write_head(tmp_path, "ref: refs/heads/other\n")
    after = await system_prompts(tmp_path, store, "Three.")
    assert len({*before, *after}) == 1


def test_the_base_prompt_is_short() -> None:
    assert len(base_prompt()) < 3000


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        ("ref: refs/heads/main\n", "yes, branch main"),
        ("0123456789abcdef0123\n", "yes, branch 0123456789ab (detached)"),
        ("ref: refs/heads/\x1b[31m\n", "yes, branch unknown"),
        ("x" * 10_000, "no"),
        ("", "no"),
    ],
)
def test_the_branch_is_read_from_the_files_of_git(tmp_path: Path, head: str, shown: str) -> None:
    write_head(tmp_path, head)
    (tmp_path / "sub").mkdir()
    text = describe_environment(tmp_path / "sub", datetime(2026, 11, 16, tzinfo=UTC))
    assert f"- Git repository: {shown}\n" in text
    assert text.endswith("- Date: 2026-11-16")


def test_the_branch_of_a_worktree_is_found_and_a_pipe_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "HEAD").write_text("ref: refs/heads/side\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {tmp_path / 'real'}\n")
    now = datetime(2026, 11, 16, tzinfo=UTC)
    assert "branch side" in describe_environment(tmp_path / "tree", now)
    (tmp_path / "real" / "HEAD").unlink()
    os.mkfifo(tmp_path / "real" / "HEAD")
    assert "Git repository: no" in describe_environment(tmp_path / "tree", now)
