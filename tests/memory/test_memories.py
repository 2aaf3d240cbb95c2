"""The memories of a runtime, read and changed by a program."""

from pathlib import Path

import pytest

from tests.memory.test_text_memory import run as run_text
from tests.memory.test_working_memory import run as run_working
from tests.memory.test_working_memory import shown_in
from tests.runtime.runtime_fixtures import runtime
from vaka.config.options import Storage
from vaka.core.types.errors import ConfigError, FileError, InvalidInput
from vaka.files.disk import DiskFiles
from vaka.files.memory import MemoryFiles
from vaka.memory import TextMemory, WorkingMemory
from vaka.runtime.agent_services import find_lines
from vaka.stores.memory import MemoryStore
from vaka.testing.models import call


async def test_a_program_reads_what_an_agent_wrote_and_the_agent_what_the_program_wrote() -> None:
    store = MemoryStore()
    await run_text(call("memory_write", file="notes.md", content="tea 12", title="T"), store=store)
    async with runtime(store, storage=Storage(secrets=["hunter2-hunter2"])) as rt:
        memory = rt.memories.open_text(owner="kim")
        assert await memory.read_file("notes.md") == "## T\n\ntea 12\n"
        await memory.append_note("agent.md", "key hunter2-hunter2", title="K")
        found = await memory.search(r"tea \d+", regex=True)
        assert [match.line for match in found.matches] == ["tea 12"]
        assert await rt.memories.open_text(owner="lee").list_files() == []
        assert await rt.memories.open_text(namespace="team").list_files() == []
        await rt.memories.open_working(session="w").update("Likes tea.")
        await rt.memories.open_working(owner="kim").update("Speaks German.")
    _, model = await run_text(store=store, session="t")
    assert "key [redacted]" in model.prompts[0].system
    assert shown_in((await run_working(store=store, session="w"))[1]) == "Likes tea."
    resource = WorkingMemory(scope="resource")
    assert shown_in((await run_working(store=store, session="v", owner="kim", memory=resource))[1]) == "Speaks German."


async def test_a_memory_in_given_files_is_opened_with_them(tmp_path: Path) -> None:
    store, files = MemoryStore().with_namespace("acme"), DiskFiles(tmp_path, strict=True)
    write = call("memory_write", file="n.md", content="x", title="T")
    await run_text(write, store=store, memory=TextMemory(files))
    async with runtime(store) as rt:
        assert await rt.memories.open_text(owner="kim", files=files).read_file("n.md") == "## T\n\nx\n"


async def test_a_memory_belongs_to_exactly_one() -> None:
    schema = {"type": "object", "required": ["name"]}
    async with runtime() as rt:
        for owner, other in (("", ""), ("kim", "x")):
            with pytest.raises(InvalidInput):
                rt.memories.open_text(owner=owner, namespace=other)
            with pytest.raises(InvalidInput):
                rt.memories.open_working(owner=owner, session=other)
        for namespace in ("../x", "/"):
            with pytest.raises(ConfigError):
                rt.memories.open_text(namespace=namespace)
        with pytest.raises(InvalidInput, match="ttl"):
            rt.memories.open_working(owner="kim", ttl=0)
        memory = rt.memories.open_working(owner="kim", schema=schema, ttl=60)
        with pytest.raises(InvalidInput, match="name"):
            await memory.update("{}")
        await memory.update('{"name": "Kim"}')
        meta = await memory.read_meta()
        assert meta is not None
        assert meta.expires_at > meta.updated_at


async def test_a_regular_expression_that_would_never_end_is_stopped() -> None:
    files = MemoryFiles({"users/kim/n.md": b"a" * 60 + b"b"})
    with pytest.raises((InvalidInput, FileError), match=r"too long|no time"):
        await find_lines(files, "users/kim", "(a+)+(?=c)", 10, seconds=0.3)
