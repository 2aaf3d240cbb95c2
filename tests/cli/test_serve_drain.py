"""``vaka serve`` after SIGTERM: it listens, not ready, until its running turns have ended."""

import os
import select
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.cli.shell import Shell, call_line, measure_once, say_line
from tests.server_process import ServerProcess

SETTINGS = "[server]\ndrain_seconds = 3600\n"


@contextmanager
def open_workers(server: ServerProcess) -> Generator[list[int]]:
    """Yield a descriptor for each worker process, which is readable when the process has ended."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    workers = [os.pidfd_open(int(pid)) for pid in children.read_text().split()]
    try:
        yield workers
    finally:
        for worker in workers:
            os.close(worker)


def wait_until_not_ready(client: httpx2.Client) -> None:
    """Return when a probe is answered with 503; the port must be open until then and after."""
    while client.get("/readyz").status_code != 503:
        pass


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["one", "workers"])
def test_a_server_that_stops_answers_probes_and_readers_until_its_turns_have_ended(
    shell: Shell, workers: tuple[str, ...]
) -> None:
    shell.write_script(call_line("gate", path="pipe"), say_line("Done."))
    (shell.folder / "vaka.toml").write_text(SETTINGS)
    os.mkfifo(shell.folder / "pipe")
    arguments = (
        *workers,
        "--trust",
        "--insecure",
        "--no-ui",
        "--agent",
        "agent.py",
        "--model",
        "scripted:script.jsonl",
    )
    env = measure_once(shell.env, ("serve", *arguments))
    with ServerProcess(shell.folder, env, *arguments) as server:
        body = {"agent": "payer", "input": "Go.", "background": True}
        assert httpx2.post(f"{server.url}/api/v1/sessions/s/turns", json=body).json()["status"] == "running"
        with (shell.folder / "pipe").open("w") as pipe, open_workers(server) as processes:  # opens when the tool reads
            server.process.send_signal(signal.SIGTERM)
            if workers:  # the idle worker ends at once, and its followers would connect again
                assert select.select(processes, [], [], 60)[0]
            with httpx2.Client(base_url=server.url, timeout=60, headers={"Connection": "close"}) as client:
                wait_until_not_ready(client)
                refused = client.post("/api/v1/sessions/other/turns", json=body)
                assert (refused.status_code, refused.json()["code"]) == (503, "draining")
                assert int(refused.headers["retry-after"]) > 0
                assert client.get("/api/v1/sessions/s/turns/current").json()["status"] == "running"
                with client.stream("GET", "/api/v1/sessions/s/events", headers={"Accept": "text/event-stream"}) as live:
                    pipe.write("held")
                    pipe.close()
                    text = "".join(live.iter_text())
        assert '"turn.completed"' in text  # a follower sees the end of the turn
        assert server.wait() == 143
    with suppress(httpx2.TransportError):
        pytest.fail(f"the port is still open: {httpx2.get(server.url)}")
    shown = shell.vaka("sessions", "show", "s")
    assert "Done." in shown.out


def test_a_turn_that_waits_for_a_person_does_not_keep_a_server(shell: Shell) -> None:
    shell.write_script(call_line("Bash", command="touch made"), say_line("Done.") | {"repeat": True})
    arguments = ("--insecure", "--no-ui", "--model", "scripted:script.jsonl")
    (shell.folder / "vaka.toml").write_text(SETTINGS)
    env = measure_once(shell.env, ("serve", *arguments))
    with ServerProcess(shell.folder, env, "--trust", *arguments) as server:
        turn = httpx2.post(
            f"{server.url}/api/v1/sessions/s/turns", json={"agent": "assistant", "input": "Go."}, timeout=60
        ).json()
        assert turn["status"] == "waiting"
        assert server.stop() == (143, "")
    with ServerProcess(shell.folder, env, "--trust", *arguments) as server:
        [row] = httpx2.get(f"{server.url}/api/v1/approvals").json()["data"]
        body = {"decision": "reject", "message": "no"}
        assert httpx2.post(f"{server.url}/api/v1/approvals/{row['id']}/resolve", json=body).status_code == 200
        path = f"{server.url}/api/v1/sessions/s/turns/{turn['id']}/wait"
        assert httpx2.post(path, timeout=60).json()["text"] == "Done."
    assert not Path(shell.folder / "made").exists()


def test_workers_end_and_free_the_port_when_their_supervisor_is_killed(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    arguments = ("--workers", "2", "--insecure", "--no-ui", "--model", "scripted:script.jsonl")
    with ServerProcess(shell.folder, measure_once(shell.env, ("serve", *arguments)), *arguments) as server:
        with open_workers(server) as workers:
            assert len(workers) == 2
            assert httpx2.get(f"{server.url}/readyz", timeout=60).status_code == 200
            server.process.kill()
            for worker in workers:
                assert select.select([worker], [], [], 60)[0] == [worker]
        server.wait()
    with socket.create_server(("127.0.0.1", server.port)):
        pass


def test_a_second_signal_to_the_supervisor_waits_for_no_turn(shell: Shell) -> None:
    shell.write_script(call_line("hang"))
    (shell.folder / "vaka.toml").write_text(SETTINGS)
    flags = ("--workers", "2", "--trust", "--insecure", "--no-ui", "--agent", "agent.py")
    arguments = (*flags, "--model", "scripted:script.jsonl")
    with ServerProcess(shell.folder, measure_once(shell.env, ("serve", *arguments)), *arguments) as server:
        body = {"agent": "payer", "input": "Go.", "background": True}
        assert httpx2.post(f"{server.url}/api/v1/sessions/s/turns", json=body, timeout=60).json()["status"] == "running"
        server.process.send_signal(signal.SIGINT)
        with httpx2.Client(base_url=server.url, timeout=60, headers={"Connection": "close"}) as client:
            wait_until_not_ready(client)
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 130
