"""What ``vaka serve`` prints of requests, which agents it finds itself, and new links to its console."""

import json
import signal
import socket
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.cli.shell import Shell, measure_once, say_line
from tests.server_process import ServerProcess

MODEL = ("--model", "scripted:script.jsonl")


def start(shell: Shell, *arguments: str) -> ServerProcess:
    return ServerProcess(shell.folder, measure_once(shell.env, ("serve", *arguments)), *arguments, port=0)


def read_lines(server: ServerProcess) -> list[dict[str, Any]]:
    """Stop a server and return the lines of its access log."""
    server.process.send_signal(signal.SIGTERM)
    out, errors = server.process.communicate(timeout=60)
    assert (server.process.returncode, errors) == (143, "")
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def server_shell(shell: Shell) -> Shell:
    shell.write_script(say_line("Hello.") | {"repeat": True})
    return shell


def test_each_request_is_one_line_of_json_without_secrets(server_shell: Shell) -> None:
    key = server_shell.vaka("keys", "create", "--tenant", "acme", "--owner", "kim").out.strip()
    with start(server_shell, *MODEL) as server:
        bearer = {"Authorization": f"Bearer {key}", "X-Request-Id": "mine-1"}
        body = {"agent": "assistant", "input": "Tell me the secret word."}
        answer = httpx2.post(f"{server.url}/api/v1/sessions/s/turns?x={key}", json=body, headers=bearer, timeout=60)
        assert answer.status_code == 422  # x is no parameter
        answer = httpx2.get(f"{server.url}/api/v1/sessions", headers=bearer)
        assert httpx2.get(f"{server.url}/api/v1/sessions/{key}", headers=bearer).status_code == 404
        assert httpx2.get(f"{server.url}/api/v1/sessions").status_code == 401
        ticket = httpx2.post(f"{server.url}/api/v1/ws-tickets", headers=bearer).json()["ticket"]
        address = f"{server.url.replace('http', 'ws')}/api/v1/ws?ticket={ticket}"
        with connect(address, subprotocols=[Subprotocol("agent.v1+json")]) as live:
            live.send('{"id": 1, "method": "state.get", "params": {"session": "s"}}')
            live.recv()
        assert httpx2.get(server.link).status_code == 303
        lines = read_lines(server)
    assert [(line["method"], line["path"], line["status"]) for line in lines if line["protocol"] == "http"][1:] == [
        ("GET", "/api/v1/sessions", 200),
        ("GET", lines[2]["path"], 404),
        ("GET", "/api/v1/sessions", 401),
        ("POST", "/api/v1/ws-tickets", lines[4]["status"]),
        ("GET", "/console/login", 303),
    ]
    text = json.dumps(lines)
    for secret in (key, key[12:], ticket, server.link.partition("ticket=")[2], "secret word"):
        assert secret not in text
    listed = lines[1]
    assert (listed["principal"], listed["tenant"], listed["request_id"]) == ("kim", "acme", "mine-1")
    assert (listed["client"], listed["bytes"]) == ("127.0.0.1", len(answer.content))
    assert listed["duration_ms"] >= 0
    assert listed["time"].endswith("Z")
    assert (lines[3]["principal"], lines[3]["status"]) == ("", 401)
    [socket] = [line for line in lines if line["protocol"] == "websocket"]
    assert (socket["path"], socket["status"], socket["principal"]) == ("/api/v1/ws", 101, "kim")
    assert socket["bytes"] > 0


def test_what_an_agent_file_prints_is_not_in_the_access_log(server_shell: Shell) -> None:
    agent = 'import vaka\n\nprint("loaded")\nagent = vaka.Agent("printer", model="scripted:script.jsonl")\n'
    (server_shell.folder / "printer.py").write_text(agent)
    with start(server_shell, "--agent", "printer.py", "--insecure") as server:
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        out, errors = server.process.communicate(timeout=60)
    assert (json.loads(out)["path"], errors) == ("/healthz", "loaded\n")


HEAD = b"GET /a?ticket=secret-1 HTTP/1.1\r\nHost: localhost\r\n"
PROXY_FORM = b"GET http://kim:secret-4@localhost/x HTTP/1.1\r\nHost: localhost\r\n"  # not a secret
UPGRADE = b"GET /api/v1/ws?ticket=secret-2 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
REFUSED = (
    (b"NONSENSE\r\n\r\n", "http", "", "", 400),
    (b"GET /%ff\xff?ticket=secret-3 HTTP/1.1\r\nHost: localhost\r\n\r\n", "http", "", "", 400),
    (PROXY_FORM + b"no colon\r\n\r\n", "http", "GET", "/x", 400),
    (HEAD + b"no colon\r\n\r\n", "http", "GET", "/a", 400),
    (HEAD + b"X-Long: " + b"x" * 80_000 + b"\r\n\r\n", "http", "GET", "/a", 431),
    (UPGRADE + b"\r\n", "websocket", "GET", "/api/v1/ws", 400),
    (UPGRADE + b"Sec-WebSocket-Version: 3\r\n\r\n", "websocket", "GET", "/api/v1/ws", 400),
    (UPGRADE + b"X-A: b\r\n" * 200 + b"\r\n", "websocket", "GET", "/api/v1/ws", 431),
)
"""What a client sends, and the protocol, method, path and status of its line in the access log."""


def exchange(server: ServerProcess, sent: bytes) -> bytes:
    """Send bytes over a connection of their own and return what comes back until it is closed."""
    with socket.create_connection(("127.0.0.1", httpx2.URL(server.url).port or 0), timeout=60) as connection:
        connection.sendall(sent)
        received = b""
        while data := connection.recv(65536):
            received += data
    return received


def test_requests_that_are_refused_before_the_application_have_a_line(server_shell: Shell) -> None:
    with start(server_shell, *MODEL) as server:
        answers = [exchange(server, sent) for sent, *_ in REFUSED]
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        exchange(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nNONSENSE\r\n\r\n")
        lines = read_lines(server)
    assert [line["path"] for line in lines].count("/healthz") == 2
    refused = [line for line in lines if line["path"] != "/healthz"]
    cases = (*REFUSED, (b"", "http", "", "", 400))
    for line, (_, *expected), answer in zip(refused, cases, (*answers, b""), strict=True):
        assert [line["protocol"], line["method"], line["path"], line["status"]] == expected
        assert (line["principal"], line["client"]) == ("", "127.0.0.1")
        if answer:
            assert answer.startswith(b"HTTP/1.1 %d " % line["status"])
            assert line["bytes"] == len(answer.partition(b"\r\n\r\n")[2])
    assert "secret" not in json.dumps(lines)


@pytest.mark.parametrize("how", ["flag", "setting"])
def test_the_access_log_is_switched_off(server_shell: Shell, how: str) -> None:
    if how == "setting":
        (server_shell.folder / "vaka.toml").write_text("[server]\naccess_log = false\n")
    flags = ("--no-access-log",) if how == "flag" else ("--trust",)
    with start(server_shell, *flags, *MODEL) as server:
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        assert read_lines(server) == []


def test_a_new_link_logs_in_to_the_server_that_runs(server_shell: Shell) -> None:
    def finds_no_server(*store: str) -> bool:
        result = server_shell.vaka("keys", "link", *store)
        return (result.code, result.out, "no server of this store runs here" in result.err) == (2, "", True)

    assert finds_no_server()
    with start(server_shell, *MODEL) as server:
        link = server_shell.vaka("keys", "link").out.strip()
        assert link.startswith(f"{server.url}/console/login?ticket=vkl_")
        with httpx2.Client() as client:
            assert "set-cookie" in client.get(link).headers
            assert client.get(f"{server.url}/api/v1/me").json()["id"] == "local"
            assert "operator" in client.get(f"{server.url}/api/v1/me").json()["scopes"]
        with httpx2.Client() as client:
            assert "set-cookie" not in client.get(link).headers  # it works once
        assert finds_no_server("--store", "sqlite:///other.db")  # the server has another store
        named = server_shell.vaka("keys", "link", "--url", "https://agents.example/").out.strip()
        assert named.startswith("https://agents.example/console/login?ticket=vkl_")
        server.process.send_signal(signal.SIGKILL)
        server.wait()
    assert finds_no_server()  # it was killed


def test_browsers_use_the_public_address_of_a_server_behind_a_proxy(server_shell: Shell) -> None:
    public = "https://agents.example:8443"
    (server_shell.folder / "vaka.toml").write_text(f'[server]\npublic_url = "{public}/"\n')

    def log_in(link: str, host: str) -> tuple[str, bool]:
        assert link.startswith(f"{public}/console/login?ticket=vkl_")
        answer = httpx2.get(f"{server.url}{link.removeprefix(public)}", headers={"Host": host})
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        return cookie.partition(";")[0], cookie.endswith("; Secure")

    def create(cookie: str, origin: str) -> int:
        headers = {"Host": "agents.example", "Origin": origin, "Cookie": cookie, "X-Vaka-Console": "1"}
        body = {"agent": "assistant"}
        return httpx2.post(f"{server.url}/api/v1/sessions", json=body, headers=headers, timeout=60).status_code

    with start(server_shell, "--trust", *MODEL) as server:
        cookie, secure = log_in(server.link, "agents.example")  # a proxy may leave the port out
        assert secure
        assert create(cookie, public) == 201
        assert create(cookie, "https://agents.example") == 201
        assert create(cookie, "https://agents.example:9443") == 403
        assert create(cookie, "https://evil.example") == 403
        for host, secure in (("agents.example:8443", True), (server.url.removeprefix("http://"), False)):
            assert log_in(server_shell.vaka("keys", "link").out.strip(), host)[1] == secure


def test_a_server_finds_agents_that_name_their_models(shell: Shell) -> None:
    shell.write_script(say_line("Hello.") | {"repeat": True})
    (shell.folder / ".claude/agents").mkdir(parents=True)
    agent = shell.folder / ".claude/agents/helper.md"
    agent.write_text("---\nname: helper\ndescription: helps\nmodel: scripted:script.jsonl\n---\nHelp.\n")
    with start(shell, "--trust", "--insecure", "--no-ui") as server:
        listed = httpx2.get(f"{server.url}/api/v1/agents").json()["data"]
        assert [each["name"] for each in listed] == ["helper"]
        body = {"input": "Hi."}
        turn = httpx2.post(f"{server.url}/api/v1/sessions/s/turns", json={**body, "agent": "helper"}, timeout=60).json()
        assert turn.get("text") == "Hello.", turn
    agent.write_text("---\nname: helper\ndescription: helps\n---\nHelp.\n")
    refused = shell.vaka("serve", "--port", "0", "--trust")
    assert (refused.code, "no model; give one with --model" in refused.err) == (3, True)
