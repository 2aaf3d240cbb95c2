"""``vaka serve`` as a process: where it listens, whom it accepts, and how it ends."""

import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.cli.shell import AGENT_FILE, Shell, call_line, measure_once, say_line
from tests.server_process import ServerProcess

MODEL = ("--model", "scripted:script.jsonl")


@pytest.fixture
def server_shell(shell: Shell) -> Shell:
    shell.write_script(say_line("Hello.") | {"repeat": True})
    return shell


def start(shell: Shell, *arguments: str, port: int = 0) -> ServerProcess:
    env = measure_once(shell.env, ("serve", *arguments))
    return ServerProcess(shell.folder, env, *MODEL, *arguments, port=port)


def test_a_server_needs_a_token_and_a_signal_ends_it_in_order(server_shell: Shell) -> None:
    key = server_shell.vaka("keys", "create", "--name", "test").out.strip()
    with start(server_shell) as server:
        assert httpx2.get(f"{server.url}/readyz").json() == {"status": "ready"}
        assert httpx2.get(f"{server.url}/api/v1/sessions").status_code == 401
        sessions = httpx2.get(f"{server.url}/api/v1/sessions", headers={"Authorization": f"Bearer {key}"})
        assert sessions.json()["data"] == []
        assert "/console/login?ticket=" in server.link
        assert server.stop(signal.SIGTERM) == (143, "")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_closed_terminal_ends_a_server_in_order(server_shell: Shell, workers: str) -> None:
    with start(server_shell, "--workers", workers) as server:
        assert httpx2.get(f"{server.url}/readyz").json() == {"status": "ready"}
        assert server.stop(signal.SIGHUP)[0] == 129


def test_a_server_without_tokens_listens_on_this_machine_only(server_shell: Shell) -> None:
    refused = server_shell.vaka("serve", "--insecure", "--host", "0.0.0.0", *MODEL)
    assert refused.code == 2
    assert "--insecure would let anyone who reaches 0.0.0.0 run agents here" in refused.err
    wrong = server_shell.vaka("serve", "--origin", "app.example", "--allow-hostname", "agents.example", *MODEL)
    assert (
        wrong.code,
        "--origin: expected an origin such as https://app.example.com, not 'app.example'" in wrong.err,
    ) == (2, True)
    with start(server_shell, "--insecure", "--no-ui") as server:
        assert httpx2.get(f"{server.url}/api/v1/sessions").status_code == 200
        assert httpx2.get(server.url).status_code == 404
        assert server.stop(signal.SIGINT)[0] == 130


def test_an_address_in_use_is_an_error_that_says_so(server_shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = server_shell.vaka("serve", "--port", str(port), *MODEL)
    assert failed.code == 3
    assert f"127.0.0.1:{port} cannot be listened on" in failed.err


def test_headers_that_never_end_are_refused(server_shell: Shell) -> None:
    with start(server_shell, "--no-ui") as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for _ in range(100):
            client.sendall(b"X-Filler: " + b"a" * 1000 + b"\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")


def test_a_worker_that_dies_is_replaced_and_memory_cannot_be_shared(server_shell: Shell) -> None:
    refused = server_shell.vaka("serve", "--workers", "2", "--ephemeral", *MODEL)
    assert refused.code == 2
    assert "a server with several workers needs a store that they share" in refused.err
    with start(server_shell, "--workers", "2", "--no-ui", "--insecure") as server:
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        before = set(children.read_text().split())
        assert len(before) == 2
        os.kill(int(min(before)), signal.SIGKILL)
        assert "another one starts" in server.stderr.readline()
        assert httpx2.get(f"{server.url}/healthz", timeout=30).status_code == 200
        assert len(set(children.read_text().split()) - before) == 1
        assert server.stop()[0] == 143


def test_settings_of_the_file_count(server_shell: Shell) -> None:
    (server_shell.folder / "vaka.toml").write_text('[server]\nhosts = ["agents.example"]\n[features]\nui = false\n')
    with start(server_shell, "--trust", "--insecure", "--no-ui") as server:
        names = {"agents.example": 200, "other.example": 421}
        for name, status in names.items():
            assert httpx2.get(f"{server.url}/healthz", headers={"Host": name}).status_code == status
        shown = httpx2.get(f"{server.url}/api/v1/debug/config").json()
        [table] = [setting for setting in shown["data"] if setting["key"] == "server"]
        assert table["value"] == {"hosts": ["agents.example"]}
        assert table["origin"].endswith("vaka.toml:2")


def test_a_second_signal_waits_for_no_turn_and_nothing_logs_a_ticket(shell: Shell) -> None:
    shell.write_script(call_line("hang"))
    (shell.folder / "agent.py").write_text(AGENT_FILE)
    (shell.folder / "vaka.toml").write_text("[server]\ndrain_seconds = 3600\n")
    keys = [shell.vaka("keys", "create", *tenant).out.strip() for tenant in ((), ("--tenant", "other"))]
    headers: dict[str, str] = {}
    with start(shell, "--trust", "--agent", "agent.py", "--verbose") as server:
        for key in keys:
            headers["Authorization"] = f"Bearer {key}"
            body = {"agent": "payer", "input": "Go.", "background": True}
            turn = httpx2.post(f"{server.url}/api/v1/sessions/s/turns", json=body, headers=headers)
            assert turn.json()["status"] == "running"
        ticket = httpx2.post(f"{server.url}/api/v1/ws-tickets", headers=headers).json()["ticket"]
        address = f"{server.url.replace('http', 'ws')}/api/v1/ws?ticket={ticket}"
        with connect(address, subprotocols=[Subprotocol("agent.v1+json")]) as socket:
            socket.send('{"id": 1, "method": "state.get", "params": {"session": "s"}}')
            assert '"running"' in str(socket.recv())
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(0.2)
        code, errors = server.stop()
    assert code in (143, -signal.SIGTERM)
    assert ticket not in errors


def test_a_server_that_cannot_be_used_says_why_at_its_start(shell: Shell) -> None:
    (shell.folder / "vaka.toml").write_text('[server.jwt]\nissuer = "i"\naudience = "a"\njwks = "keys.json"\n')
    arguments = ("--host", "0.0.0.0", "--no-ui", "--model", "anthropc/x", "--trust")
    with ServerProcess(shell.folder, measure_once(shell.env, ("serve",)), *arguments, port=0) as server:
        refused = httpx2.get(f"{server.url}/healthz", headers={"Host": "agents.example"})
        assert (refused.status_code, refused.json()["code"]) == (421, "bad_host")
        assert "start it with --allow-hostname" in refused.json()["detail"]
        code, notes = server.stop(signal.SIGTERM)
    assert code == 143
    assert notes.splitlines() == [
        "note: requests of other machines are refused; allow the name they use with --allow-hostname",
        "note: there is no API key yet; create one with `vaka keys create`",
        "note: the turns of agent assistant will fail: model 'anthropc/x' is not known; did you mean 'anthropic/x'?",
        f"note: no JWT can be checked: the file of server.jwt.jwks, {shell.folder / 'keys.json'}, does not exist",
    ]
