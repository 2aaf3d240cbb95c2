"""Processes that are killed in the middle of an answer, and followers in another process."""

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.journeys.answers import PATIENCE, Pause, call, say
from tests.journeys.doors import live_texts_of
from tests.journeys.installed import Home, Server
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider
from tests.journeys.served_project import ServedProject
from tests.postgres_server import PostgresServer

STORES = ["sqlite", "postgres"]
A_LEASE_MUST_EXPIRE = pytest.mark.parametrize(
    "own_store", ["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)], indirect=True
)
"""After the death of a process, PostgreSQL gives its sessions to another one when their leases have expired."""


@pytest.fixture(params=STORES)
def own_store(request: pytest.FixtureRequest) -> Iterator[str]:
    """A store of this story alone, as a flag names it; empty for the default."""
    if request.param == "sqlite":
        yield ""
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        with server.database() as dsn:
            yield dsn


def workers_of(server: Server) -> list[int]:
    """Return the processes that answer requests."""
    pid = server.process.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def frozen(pid: int) -> Generator[None]:
    """Stop a process for a time, so that another one takes the next connection."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_person_at_the_other_worker_reads_the_answer_while_it_is_written(
    own_store: str, programs: Path, tmp_path: Path
) -> None:
    pause = Pause()
    with ServedProject(tmp_path, programs, own_store, ["--workers", "2"]) as served, ExitStack() as stack:
        script = served.provider.script("Sing.", say("The wind ", "rises, ", pause, "we sail."))
        first, second = workers_of(served.server)
        served.server.post("/api/v1/sessions", {"id": "song", "agent": "assistant"})
        with frozen(first):
            frames = stack.enter_context(served.server.stream("GET", "/api/v1/sessions/song/events"))
            assert next(frames).kind == "session.opened"
        with frozen(second):
            turn = served.start_turn("song", "Sing.", background=True)
        texts = live_texts_of(frames)
        pause.wait_reached()
        assert next(text for text in texts if "The wind" in text).strip() in ("The wind", "The wind rises,")
        pause.open()
        assert next(text for text in texts if "sail" in text) == "The wind rises, we sail."
        ended = served.server.post(f"/api/v1/sessions/song/turns/{turn['key']}/wait", {})
        assert ended["text"] == "The wind rises, we sail."
        assert len(script.requests) == 1
        served.check()


@A_LEASE_MUST_EXPIRE
def test_a_server_that_is_killed_in_mid_stream_finishes_the_turn_after_its_restart(
    own_store: str, programs: Path, tmp_path: Path
) -> None:
    pause = Pause()
    with ServedProject(tmp_path, programs, own_store) as served:
        path = str(served.project.folder / "harbour.py")
        script = served.provider.script(
            "Count the boats.", call("Read", file_path=path), say("There ", pause, "were."), say("There are two.")
        )
        turn = served.start_turn("count", "Count the boats.", background=True)
        pause.wait_reached()
        served.server.kill()
        with served.serve(port=served.server.port) as again:
            ended = again.post(f"/api/v1/sessions/count/turns/{turn['key']}/wait", {})
            assert (ended["status"], ended["text"]) == ("completed", "There are two.")
            messages = again.get("/api/v1/sessions/count/messages")
            assert "were." not in str(messages)
        asked, interrupted, repeated = script.requests
        assert "tool_call_id" not in asked.text
        assert interrupted.raw == repeated.raw  # the call of the tool was not repeated
        assert "ok" in served.vaka("sessions", "verify", "count", *served.store)
        served.check()


@pytest.mark.parametrize(
    "wire", [pytest.param(each, marks=[] if each == "anthropic" else pytest.mark.exhaustive) for each in MODELS]
)
def test_a_run_that_is_killed_in_mid_stream_is_resumed_without_repeating_a_change(
    wire: str, home: Home, project: Project, provider: Provider
) -> None:
    pause = Pause()
    path = str(project.folder / "knots.md")
    script = provider.script(
        "Write down a knot.",
        call("Write", file_path=path, content="Bowline.\n"),
        say("I wrote ", pause, "nothing."),
        say("I wrote down the bowline."),
    )
    arguments = ["--session", "knots", "--model", MODELS[wire], "--permission-mode", "acceptEdits"]
    process = home.start(project.folder, "run", "Write down a knot.", *arguments)
    pause.wait_reached()
    process.kill()
    process.communicate(timeout=PATIENCE)
    project.expect_status("?? knots.md")
    project.write("knots.md", "Bowline, and a hitch that I added.\n")
    assert home.run(project.folder, "run", "--session", "knots", "--resume") == "I wrote down the bowline.\n"
    assert project.read("knots.md") == "Bowline, and a hitch that I added.\n"
    assert script.requests[1].raw == script.requests[2].raw
    assert "ok" in home.run(project.folder, "sessions", "verify", "knots")
