"""The list of sessions in a chat."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from tests.cli.chat.chat_terminal import ENTER, ESCAPE
from vaka import Agent, Runtime
from vaka.core.types.errors import NotFound
from vaka.core.types.ids import SessionId
from vaka.models.scripted import Scripted

DOWN, TAB, DELETE = "\x1b[B", "\t", "\x1b[3~"


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
    return Runtime(agent=agent, sandbox="off", **options)


async def test_sessions_are_listed_filtered_opened_and_deleted(project: Path) -> None:
    store = f"sqlite:///{project}/vaka.db"
    async with talking_runtime(store=store, cwd=str(project / "there")) as runtime:
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
