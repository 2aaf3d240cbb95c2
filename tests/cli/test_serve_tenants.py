"""``vaka serve`` for several tenants: what a key of one of them cannot do to the server and to the others."""

import re

import httpx2
import pytest

from tests.cli.shell import Shell, call_line, measure_once, say_line
from tests.server_process import ServerProcess

MODEL = ("--model", "scripted:script.jsonl")
GLOBAL_OPERATIONS = (("GET", "/debug/config"), ("GET", "/debug/connections"), ("POST", "/agents/reload"))


def start(shell: Shell, *arguments: str) -> ServerProcess:
    return ServerProcess(shell.folder, measure_once(shell.env, ("serve", *arguments)), *MODEL, *arguments, port=0)


def create_key(shell: Shell, *arguments: str) -> dict[str, str]:
    """Return the header that shows a new key."""
    return {"Authorization": f"Bearer {shell.vaka('keys', 'create', *arguments).out.strip()}"}


def test_what_concerns_the_whole_server_needs_an_operator(shell: Shell) -> None:
    shell.write_script(say_line("Hello.") | {"repeat": True})
    admin = create_key(shell, "--tenant", "acme", "--scope", "admin")
    operator = create_key(shell, "--scope", "operator")
    debug = create_key(shell, "--scope", "debug")
    with start(shell) as server, httpx2.Client(base_url=f"{server.url}/api/v1") as client:
        for method, path in GLOBAL_OPERATIONS:
            refused = client.request(method, path, headers=admin)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert re.search("needs the scope (operator|debug)", refused.json()["detail"])
            assert client.request(method, path, headers=operator).status_code == 200
        assert client.get("/debug/config", headers=debug).status_code == 200
        assert client.post("/agents/reload", headers=debug).status_code == 403
        assert not {"operator", "debug"} & set(client.get("/me", headers=admin).json()["scopes"])
        assert client.get("/sessions", headers=operator).status_code == 403  # it reads no sessions
        assert client.get(server.link).status_code == 303  # the person at this machine, who has the link
        for method, path in GLOBAL_OPERATIONS:
            assert client.request(method, path, headers={"X-Vaka-Console": "1"}).status_code == 200


def test_an_agent_that_cannot_be_used_shows_its_reason_to_operators_alone(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    (shell.folder / ".claude" / "agents").mkdir(parents=True)
    (shell.folder / ".claude" / "agents" / "lost.md").write_text(
        f"---\nname: lost\ndescription: Lost.\nmodel: scripted:{shell.folder}/gone.jsonl\n---\nYou are lost.\n"
    )
    tenant = create_key(shell, "--tenant", "acme", "--scope", "admin")
    operator = create_key(shell, "--scope", "runs:read", "--scope", "operator")
    with start(shell, "--trust") as server, httpx2.Client(base_url=f"{server.url}/api/v1") as client:
        found = {agent["name"]: agent for agent in client.get("/agents", headers=operator).json()["data"]}
        assert f"{shell.folder}/gone.jsonl" in found["lost"]["error"]
        refused = "agent 'lost' cannot be used; the log of the server says why"
        found = {agent["name"]: agent for agent in client.get("/agents", headers=tenant).json()["data"]}
        assert (found["lost"]["error"], "error" in found["assistant"]) == (refused, False)
        for path in ("/agents/lost", "/tools?agent=lost"):
            answer = client.get(path, headers=tenant)
            assert (answer.status_code, answer.json()["detail"]) == (500, refused)
        usable = client.get("/tools?limit=1", headers=tenant).json()["data"]
        assert [tool["agents"] for tool in usable] == [["assistant"]]
        _, errors = server.stop()
    assert errors.count("gone.jsonl") == 1


@pytest.mark.parametrize("tenant", ["../x", "a/b", "."])
def test_a_tenant_has_a_plain_name(shell: Shell, tenant: str) -> None:
    refused = shell.vaka("keys", "create", "--tenant", tenant)
    assert (refused.code, "is not the name of a tenant" in refused.err) == (2, True)


def test_each_tenant_works_in_a_folder_of_its_own_and_not_in_that_of_the_server(shell: Shell) -> None:
    read, write = call_line("Read", file_path="note.txt"), call_line("Write", file_path="note.txt", content="mine")
    shell.write_script(read, write, say_line("Done.") | {"repeat": True})
    (shell.folder / "vaka.toml").write_text('[server.workspaces]\nroot = "workspaces"\n')
    (shell.folder / "note.txt").write_text("canary of the server")
    acme, other = (create_key(shell, "--tenant", name) for name in ("acme", "Other"))
    flags = ("--trust", "--no-ui", "--allow", "Write", "--allow", "Read")
    with start(shell, *flags) as server, httpx2.Client(base_url=f"{server.url}/api/v1", timeout=60) as client:
        body = {"agent": "assistant", "input": "Go."}
        for key in (acme, other):
            turn = client.post("/sessions/s/turns", json=body, headers=key).json()
            assert (turn["status"], turn["text"]) == ("completed", "Done.")
            assert "canary" not in client.get("/sessions/s/events?limit=200", headers=key).text
        notes = sorted((shell.folder / "workspaces").glob("*/note.txt"))
        assert [note.read_text() for note in notes] == ["mine", "mine"]
        assert len(list((shell.folder / "workspaces").iterdir())) == 2
    assert (shell.folder / "note.txt").read_text() == "canary of the server"


def test_changed_settings_files_count_for_the_next_turn_of_every_tenant(shell: Shell) -> None:
    write = call_line("Write", file_path="note.txt", content="mine")
    shell.write_script(write, say_line("Done."), write, say_line("Done."), write, say_line("Done."))
    (shell.folder / "vaka.toml").write_text('[server.workspaces]\nroot = "workspaces"\n')
    settings = shell.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    keys = {name: create_key(shell, "--tenant", name) for name in ("early", "late", "latest")}
    flags = ("--trust", "--allow", "Write")
    with start(shell, *flags) as server, httpx2.Client(base_url=f"{server.url}/api/v1", timeout=60) as client:

        def writes(tenant: str, session: str) -> bool:
            """Run a turn of a tenant; return whether its tool has written."""
            turn = {"agent": "assistant", "input": "Go."}
            done = client.post(f"/sessions/{session}/turns", json=turn, headers=keys[tenant]).json()
            assert done["status"] == "completed", done
            note = shell.folder / "workspaces" / tenant / "note.txt"
            written = note.exists()
            note.unlink(missing_ok=True)
            return written

        assert writes("early", "a")
        settings.write_text('{"permissions": {"deny": ["Write"]}}')
        assert not writes("early", "b")
        assert not writes("late", "a")
        settings.write_text("{ half")
        assert not writes("late", "b")
        settings.unlink()
        assert writes("early", "c")
        assert writes("latest", "a")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('roots = "x"', "unknown key 'roots'"),
        ('tenants = {acme = "none"}', "is not a folder; create it"),
        ('root = "/etc"', "is a folder of the system"),
    ],
)
def test_workspaces_that_cannot_be_used_are_refused_at_the_start(shell: Shell, table: str, message: str) -> None:
    (shell.folder / "vaka.toml").write_text(f"[server.workspaces]\n{table}\n")
    refused = shell.vaka("serve", "--port", "0", "--trust", *MODEL)
    assert (refused.code, message in refused.err) == (3, True), refused.err
