"""The requests of `vaka run` begin alike, from process to process, with a project's files, on every wire."""

import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.cli.shell import Shell, call_line
from tests.cli.test_models import run_vaka
from vaka.testing.fake_provider import FakeProvider
from vaka.testing.models import say

FIELDS = {"anthropic": "messages", "openai-chat": "messages", "openai": "input", "gemini": "contents"}
USAGE = {"input": 5000, "output": 10, "cache_read": 4000}


def without_marks(body: object) -> dict[str, Any]:
    """Return a request without its cache marks, which move on from call to call."""
    fields: dict[str, Any] = msgspec.json.decode(re.sub(rb',"cache_control":{[^}]*}', b"", msgspec.json.encode(body)))
    return fields


@pytest.mark.parametrize("provider_name", FIELDS)
async def test_a_request_begins_with_the_one_before_in_the_next_process_too(shell: Shell, provider_name: str) -> None:
    shell.write_file("CLAUDE.md", "Be brief.")
    shell.write_file(".claude/skills/knots/SKILL.md", "---\nname: knots\ndescription: Tie knots.\n---\nTie.")
    shell.write_file(".claude/agents/finder.md", "---\nname: finder\ndescription: Finds.\n---\nFind.")
    shell.write_file("notes.txt", "Seven boats.")
    reads = call_line("Read", file_path=str(shell.folder / "notes.txt")) | {"usage": USAGE}
    answers = [reads, say("Seven.", usage=USAGE), reads, say("Still seven.", usage=USAGE)]
    async with FakeProvider(*answers) as provider:
        for text in ("How many?", "And now?"):
            run = ("run", text, "--model", f"{provider_name}/claude-sonnet-5", "--session", "s", "--trust")
            assert (await run_vaka(shell, provider, *run)).code == 0
    bodies = [without_marks(request.body) for request in provider.requests]
    lists = [msgspec.json.encode(body.pop(FIELDS[provider_name])).rstrip(b']}"') for body in bodies]
    assert len(bodies) == 4
    assert all(body == bodies[0] for body in bodies)
    assert all(later.startswith(before) for before, later in pairwise(lists))
    assert "cache.busted" not in shell.vaka("sessions", "export", "s").out
