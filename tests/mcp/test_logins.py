"""Logins at remote servers: ``vaka mcp login`` and ``logout``, their use in turns, and what never gets a token."""

import asyncio
import io
import json
import socket
import stat
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import pytest
from click.testing import CliRunner, Result
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

import vaka
from tests.mcp.http_servers import serving
from tests.mcp.login_server import LoginServer, login_server
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.cli.main import cli
from vaka.core.types.errors import McpError, NotFound, VakaError
from vaka.mcp.definition import parse_servers
from vaka.mcp.logins import McpLogin
from vaka.mcp.stored_logins import StoredLogins, open_stored_logins
from vaka.runtime.middleware_services import open_keys
from vaka.runtime.options import Project
from vaka.runtime.stored_keys import StoredKeys
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the logins of a user who has none, and no keyring."""
    project = tmp_path / "boat"
    (project / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "conf" / "vaka" / "stored_keys" / "mcp"


@pytest.fixture
def server() -> Generator[LoginServer]:
    with login_server() as running:
        yield running


class Browser(io.StringIO):
    """A stderr whose reader opens the address that is printed, in a thread, and keeps the pages that are shown."""

    def __init__(self) -> None:
        super().__init__()
        self._visits: list[threading.Thread] = []
        self.pages: list[tuple[int, str]] = []
        self.address = ""

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if "code_challenge=" in line:
                self.address = line
                self._visits.append(threading.Thread(target=self._visit))
                self._visits[-1].start()
        return super().write(text)

    def _visit(self) -> None:
        with httpx2.Client(follow_redirects=True) as client:
            while not self.pages or self.pages[-1][0] == 400:
                page = client.get(self.address)
                self.pages.append((page.status_code, page.text))

    def close_windows(self) -> None:
        for visit in self._visits:
            visit.join()


def log_in(*words: str) -> tuple[Browser, str]:
    """Run ``vaka mcp login guarded`` with a user who opens the printed address; return the browser and stdout."""
    browser, output = Browser(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", browser)
        patch.setattr(sys, "stdout", output)
        try:
            cli.main(["mcp", "login", "guarded", *words], standalone_mode=False)
        finally:
            browser.close_windows()
    return browser, output.getvalue()


def command(*words: str) -> Result:
    return CliRunner().invoke(cli, ["mcp", *words])


def add_server(server: LoginServer, **more: Any) -> None:
    entry = {"type": "http", "url": f"{server.url}/mcp", **more}
    assert command("add-json", "guarded", json.dumps(entry), "--scope", "user").exit_code == 0


async def run_turn(url: str) -> list[str]:
    """Return the results of a turn that calls the server; the log of the session has no token."""
    store = MemoryStore()
    model = ScriptedModel(call("mcp__guarded__whoami"), say("Done."))
    servers = {"guarded": {"url": url, "required": True}}
    async with runtime(store, project=Project(mcp=servers), permissions=vaka.Permissions(allow=["mcp__guarded"])) as rt:
        await (await rt.open(agent(model), id="s")).run("Go.")
    log = await read_log(store, "s")
    assert b"access-" not in msgspec.json.encode([event.data for event in log])
    return [result.text for result in results_by_call(log).values()]


def stored_login(server: LoginServer) -> McpLogin:
    login = open_stored_logins(open_keys).read(f"{server.url}/mcp")
    assert login is not None
    return login


def test_a_user_logs_in_once_uses_the_server_in_turns_and_logs_out(server: LoginServer, folder: Path) -> None:
    add_server(server)
    url, needed = f"{server.url}/mcp", "login needed: vaka mcp login guarded"
    assert "approved" in command("list").stdout
    refused = json.loads(command("test", "--json").stdout)[0]
    assert (refused["state"], refused["reason"]) == ("failed", f"HTTP 401: {needed} (or set its header Authorization)")
    older = json.dumps({"mcpServers": {"guarded": {"type": "sse", "url": url}}})
    (again,) = json.loads(command("test", "--json", "--strict-mcp-config", "--mcp-config", older).stdout)
    assert again["reason"] == refused["reason"]
    assert needed in command("list").stdout
    assert json.loads(command("list", "--json").stdout)[0]["login"] == "needed"
    with pytest.raises(vaka.TurnError, match=needed):
        asyncio.run(run_turn(url))

    browser, printed = log_in()
    assert "whoami" in printed
    assert [(code, "You may close this window" in page) for code, page in browser.pages] == [(200, True)]
    assert urlsplit(parse_qs(urlsplit(browser.address).query)["redirect_uri"][0]).hostname == "127.0.0.1"
    shown = browser.getvalue() + printed + command("list", "--json").stdout + command("test", "--json").output
    assert not any(token in shown for token in (*server.valid, *server.refresh_tokens))
    assert "logged in" in command("list").stdout
    (file,) = folder.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (text,) = asyncio.run(run_turn(url))
    assert text.startswith("you are ada ")
    assert server.refreshes == 0

    assert command("logout", "guarded").exit_code == 0
    assert not list(folder.glob("*.json"))
    assert isinstance(command("logout", "guarded").exception, NotFound)
    with pytest.raises(vaka.TurnError, match=needed):
        asyncio.run(run_turn(url))


def test_tokens_are_refreshed_after_expiry_and_two_users_of_a_login_do_not_lose_it(server: LoginServer) -> None:
    add_server(server)
    server.lifetime = 0
    log_in()
    assert server.refreshes == 1
    first = stored_login(server)
    open_stored_logins(open_keys).write(msgspec.structs.replace(first, expires_at=1.0))

    async def run_two() -> None:
        for text in await asyncio.gather(*(run_turn(f"{server.url}/mcp") for _ in range(2))):
            assert text[0].startswith("you are ada")

    asyncio.run(run_two())
    assert server.refreshes == 2  # the second one used what the first one stored
    second = stored_login(server)
    assert second.refresh_token != first.refresh_token
    astray = msgspec.structs.replace(second, expires_at=1.0, token_endpoint=f"{server.url}/gone")
    open_stored_logins(open_keys).write(astray)
    with pytest.raises(vaka.TurnError, match=r"the login cannot be refreshed: 127\.0\.0\.1: HTTP 404"):
        asyncio.run(run_turn(f"{server.url}/mcp"))
    assert stored_login(server) == astray
    open_stored_logins(open_keys).write(second)
    server.valid.clear()  # the server forgets a token that has not expired
    asyncio.run(run_two())
    assert server.refreshes == 3
    server.valid.clear()
    server.refresh_tokens.clear()
    with pytest.raises(vaka.TurnError, match="login needed: vaka mcp login guarded"):
        asyncio.run(run_turn(f"{server.url}/mcp"))
    log_in()
    assert asyncio.run(run_turn(f"{server.url}/mcp"))[0].startswith("you are ada")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"error": "access_denied", "error_description": "no"}, "the login was refused: access_denied: no"),
        ({"iss": "http://127.0.0.1:1"}, "the login failed: Authorization response iss mismatch"),
        ({"code": "guessed"}, "the login failed: Token exchange failed"),
    ],
)
def test_an_answer_that_is_not_the_consent_to_this_login_stores_nothing(
    server: LoginServer, folder: Path, answer: dict[str, str], message: str
) -> None:
    add_server(server)
    server.answers = [answer]
    with pytest.raises(McpError) as raised:
        log_in()
    assert message in str(raised.value)
    assert not list(folder.glob("*.json"))


def test_a_login_waits_for_the_answer_with_its_own_state_until_its_time_limit(
    server: LoginServer, folder: Path
) -> None:
    add_server(server)
    late = command("login", "guarded", "--timeout", "0.1").exception
    assert str(late) == "the login was not completed within 0.1 s"
    assert not list(folder.glob("*.json"))
    server.answers = [{"state": "forged"}, {"state": ""}]
    browser, printed = log_in()
    assert [status for status, _ in browser.pages] == [400, 400, 200]
    assert "whoami" in printed


def test_a_client_that_is_registered_already_logs_in_with_its_own_port_and_scopes(server: LoginServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        add_server(server, oauth={"clientId": "desk", "callbackPort": port, "scopes": "read write"})
        with pytest.raises(McpError, match=f"127.0.0.1:{port} cannot be listened on"):
            log_in()
    assert "login needed: vaka mcp login guarded" in command("list").stdout
    server.clients["desk"] = OAuthClientInformationFull(
        client_id="desk",
        redirect_uris=[AnyUrl(f"http://localhost:{port}/callback")],
        scope="read write",
        token_endpoint_auth_method="none",
    )
    browser, printed = log_in("--no-browser")
    assert "whoami" in printed
    asked = parse_qs(urlsplit(browser.address).query)
    assert (asked["client_id"], asked["scope"]) == (["desk"], ["read write"])
    assert list(server.clients) == ["desk"]
    assert stored_login(server).scope == "read write"


def test_only_a_remote_server_that_may_start_and_is_encrypted_takes_a_login(server: LoginServer) -> None:
    servers = {
        "guarded": {"url": f"{server.url}/mcp"},
        "plain": {"url": "http://mcp.example.org/"},
        "local": {"command": "x"},
        "own": {"url": "https://a.example.org/", "headers": {"Authorization": "Bearer 0123456789"}},
    }
    Path(".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    for words, message in (
        (("guarded",), "is not started: the folder is not trusted"),
        (("plain", "--trust"), "a login needs https, and the server is at http://mcp.example.org"),
        (("local", "--trust"), "takes no login: it is a process"),
        (("own", "--trust"), "takes no login: its entry has credentials"),
    ):
        error = command("login", *words).exception
        assert isinstance(error, VakaError)
        assert message in str(error)


async def test_a_token_goes_to_the_url_that_it_was_stored_for_and_nowhere_else(folder: Path) -> None:
    seen: list[tuple[str, str]] = []
    target = ""

    async def answer(request: Request) -> Response:
        seen.append((str(request.url), request.headers.get("authorization", "")))
        return RedirectResponse(f"{target}/caught", 307) if request.url.path == "/mcp" else Response(status_code=401)

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
    async with serving(app) as url, serving(app) as other:
        target = other
        StoredLogins(StoredKeys(folder, "vaka mcp login")).write(
            McpLogin(url=f"{url}/mcp", access_token="access-0123456789")
        )
        servers = {
            "redirected": {"url": f"{url}/mcp"},
            "path": {"url": f"{url}/tenant"},
            "host": {"url": f"{other}/mcp"},
        }
        async with runtime(project=Project(mcp=servers)) as rt:
            await (await rt.open(agent(ScriptedModel(say("Done."))), id="s")).run("Go.")
    assert {(address, token) for address, token in seen if token} == {(f"{url}/mcp", "Bearer access-0123456789")}
    assert {f"{url}/tenant", f"{other}/mcp"} <= {address for address, _ in seen}


def test_the_entry_of_other_programs_is_read_and_a_wrong_port_is_reported() -> None:
    entry = {"url": "https://a.example.org/", "oauth": {"clientId": "desk", "callbackPort": 8080, "scopes": ["a", "b"]}}
    parsed = parse_servers({"mcpServers": {"a": entry}})
    assert parsed.problems == ()
    assert parsed.servers[0].oauth == {"clientId": "desk", "callbackPort": "8080", "scopes": "a b"}
    for port in (0, 70_000, "x", "9" * 5000):
        (problem,) = parse_servers({"a": {"url": "https://a.example.org/", "oauth": {"callbackPort": port}}}).problems
        assert "is not a port, and has no effect" in problem
