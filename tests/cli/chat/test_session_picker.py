"""The list of sessions in a chat."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from tests.cli.chat.chat_terminal import ENTER, ESCAPE
from vaka import Agent, Runtime
from vaka.config.options import Commands, Workspace
from vaka.core.ports.store import SessionIndex, SessionPage, SessionQuery
from vaka.core.types.errors import NotFound
from vaka.core.types.ids import SessionId
from vaka.models.scripted import Scripted

DOWN = "\x1b[B"
PAGE_DOWN = "\x1b[6~"
TAB = "\t"
DELETE = "\x1b[3~"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("here", "there"):
        (tmp_path / name / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def talking_runtime(**options: Any) -> Runtime:
    usage = {"input": 10, "output": 5, "cost": 0.25}
    lines = [{"text": "A canoe has one hull.", "usage": usage, "repeat": True}]
    agent: Agent[Any] = Agent("talker", model=Scripted(lines), tools=["Read"])
    return Runtime(agent=agent, commands=Commands(sandbox="off"), **options)


async def test_sessions_are_listed_filtered_opened_and_deleted(project: Path) -> None:
    store = f"sqlite:///{project}/vaka.db"
    async with talking_runtime(store=store, workspace=Workspace(cwd=str(project / "there"))) as runtime:
        await (await runtime.open(id="elsewhere")).run("Ships of others?")
    async with talking_runtime(store=store) as runtime:
        for name in ("canoes", "rafts", "kayaks"):
            await (await runtime.open(id=name)).run(f"Tell me about {name}.")
        async with chat_in_process(runtime, columns=160) as chat:
            await chat.say("/sessions")
            await chat.expect("❯ Tell me about kayaks.")
            await chat.expect("1 turn · $0.25\n    A canoe has one hull.")
            assert "elsewhere" not in chat.text
            assert "Ships of others?" not in chat.text
            chat.send(TAB)
            await chat.expect("Ships of others?")
            chat.send(TAB)
            await chat.expect("Ships of others?", gone=True)
            chat.send(DOWN)
            await chat.expect("❯ Tell me about rafts.")
            chat.send(DELETE)
            await chat.expect("Delete 'Tell me about rafts.' (rafts) for good?")
            chat.send("y")
            await chat.expect("rafts is deleted")
            chat.send("CANOE")
            await chat.expect("❯ Tell me about canoes.")
            await chat.expect("kayaks", gone=True)
            chat.send(ENTER)
            await chat.expect("· scripted · context 15 · $0.25 · canoes")
            await chat.say("/resume")
            await chat.expect("Sessions of this project")
            chat.send(ESCAPE)
            await chat.expect("Sessions of", gone=True)
            await chat.say("And now?")
            await chat.expect("❯ And now?")
            await chat.say("/resume elsewhere")
            await chat.expect("run `vaka chat --session elsewhere`")
        assert await runtime.store.sessions.find(SessionId("rafts")) is None
        with pytest.raises(NotFound):
            await runtime.stats("rafts")


class CountingIndex:
    """The index of a store, which counts the rows that are asked for."""

    def __init__(self, index: SessionIndex) -> None:
        self._index, self.asked = index, 0

    async def list(self, query: SessionQuery) -> SessionPage:
        self.asked += query.limit
        return await self._index.list(query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


async def test_a_long_list_is_read_page_by_page() -> None:
    async with talking_runtime() as runtime:
        for number in range(300):
            await (await runtime.open(id=f"s{number}")).run(f"Question {number}.")
        index: Any = CountingIndex(runtime.store.sessions)
        runtime.store.sessions = index
        async with chat_in_process(runtime) as chat:
            await chat.say("/sessions")
            await chat.expect("❯ Question 299.")
            for page in range(1, 6):
                chat.send(PAGE_DOWN)
                await chat.expect(f"❯ Question {299 - 12 * page}.")
            assert index.asked <= 100
            chat.send("question 7.")
            await chat.expect("❯ Question 7.")
            chat.send(ESCAPE)
            await chat.expect("Sessions of", gone=True)
