"""Commands that need the network: what the sandbox refuses, and how a person allows a host or a command."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tests.journeys.answers import call, say
from tests.journeys.installed import Home, Server
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider
from tests.journeys.terminal import CTRL_D, Terminal

FETCH = """import os, urllib.request
for name in ("NO_PROXY", "no_proxy"):  # the site of the story stands for the rest of the world
    os.environ.pop(name, None)
try:
    print(urllib.request.urlopen("http://HOST/tides", timeout=20).read().decode())
except OSError as error:
    raise SystemExit(str(error))
"""
COMMAND = "python3 fetch.py"


class Site(BaseHTTPRequestHandler):
    """A web site that counts its visitors."""

    visits: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.visits.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"high at noon")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serve_site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site(project: Project) -> Iterator[str]:
    """A site, whose host the network of vaka trusts, and the program of the project that reads it."""
    Site.visits.clear()
    with serve_site() as host:
        project.add({"fetch.py": FETCH.replace("HOST", host)})
        yield host


def flags_for(host: str) -> tuple[str, ...]:
    return ("--model", MODELS["responses"], "--allow-host", host, "--allow", f"Bash({COMMAND})")


def test_a_person_allows_a_host_for_the_project_and_later_commands_reach_it(
    home: Home, project: Project, provider: Provider, site: str
) -> None:
    script = provider.script(
        "When is high tide?",
        call("Bash", command=COMMAND),
        call("Bash", command=COMMAND, allow_hosts=[site]),
        say("High at noon."),
        call("Bash", command=COMMAND),
        say("Still at noon."),
    )
    with Terminal(home, project.folder, "chat", "--session", "tides", *flags_for(site)) as terminal:
        terminal.expect("❯")
        terminal.say("When is high tide?")
        terminal.expect(f"the sandbox refused the network to {site}")
        terminal.expect("Approve Bash?")
        terminal.expect(f"Rule: Bash(domain:{site})")
        assert Site.visits == []
        terminal.send("p")
        terminal.expect("is stored in")
        terminal.expect("High at noon.")
        terminal.say("And now?")
        terminal.expect("Still at noon.")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
    assert "no rule lets commands reach it" in script.requests[1].text
    assert Site.visits == ["/tides"] * 2
    stored = json.loads(project.read(".claude/settings.local.json"))
    assert stored == {"permissions": {"allow": [f"Bash(domain:{site})"]}}
    assert ".claude" not in project.git("status", "--porcelain", "--untracked-files=all")
    provider.script("Once more.", call("Bash", command=COMMAND), say("Noon."))
    assert home.run(project.folder, "run", "Once more.", *flags_for(site)).strip() == "Noon."
    assert len(Site.visits) == 3


def test_a_run_asks_for_a_host_and_is_answered_for_the_session_from_another_process(
    home: Home, project: Project, provider: Provider, site: str
) -> None:
    provider.script(
        "Read the tides.",
        call("Bash", command=COMMAND),
        call("Bash", command=COMMAND, allow_hosts=[site]),
        call("Bash", command=COMMAND),
        say("High at noon."),
    )
    run = ("run", "--session", "tides", "--ask", "suspend", *flags_for(site))
    code, errors = home.run_failing(project.folder, *run, "Read the tides.")
    assert f"the sandbox refused the network to {site}; commands reach it with --allow 'Bash(domain:{site})'" in errors
    assert (code, Site.visits) == (5, [])
    [pending] = json.loads(home.run(project.folder, "approvals", "list", "--json"))["decisions"]
    assert pending["grant"] == [f"Bash(domain:{site})"]
    home.run(project.folder, "approvals", "resolve", pending["id"], "--approve", "--scope", "session")
    assert home.run(project.folder, *run, "--resume").strip() == "High at noon."
    assert Site.visits == ["/tides"] * 2


def test_a_command_leaves_the_sandbox_only_with_an_approval_given_over_http(
    home: Home, project: Project, provider: Provider
) -> None:
    outside = home.folder / "tides.txt"
    command = f"echo noon > {outside}"
    provider.script("Note the tide.", call("Bash", command=command, dangerouslyDisableSandbox=True), say("Noted."))
    model = ("--model", MODELS["responses"])
    refused = ("run", "Note the tide.", *model, "--permission-mode", "bypassPermissions", "--allow", "Bash")
    code, errors = home.run_failing(project.folder, *refused)
    assert (code, outside.exists()) == (5, False), errors
    provider.script("Note it now.", call("Bash", command=command, dangerouslyDisableSandbox=True), say("Noted."))
    scopes = ("--scope", "runs:read", "--scope", "runs:write", "--scope", "approvals:write")
    key = home.create_key(project.folder, *scopes)
    with Server(home, project.folder, *model, key=key) as server:
        turn = server.post("/api/v1/sessions/note/turns", {"input": "Note it now.", "agent": "assistant"})
        [pending] = turn["decisions"]
        assert not outside.exists()
        server.post(f"/api/v1/approvals/{pending['id']}/resolve", {"decision": "approve"})
        ended = server.post(f"/api/v1/sessions/note/turns/{turn['id']}/wait", {})
        assert ended["status"] == "completed"
    assert outside.read_text() == "noon\n"
