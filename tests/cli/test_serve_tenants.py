"""``vaka serve`` for several tenants: what a key of one of them cannot do to the server and to the others."""

import httpx2
import pytest

from tests.cli.shell import Shell, measure_once, say_line
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
    with start(shell) as server, httpx2.Client(base_url=f"{server.url}/api/v1") as client:
        for method, path in GLOBAL_OPERATIONS:
            refused = client.request(method, path, headers=admin)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert "needs the scope operator" in refused.json()["detail"]
            assert client.request(method, path, headers=operator).status_code == 200
        assert "operator" not in client.get("/me", headers=admin).json()["scopes"]
        assert client.get("/sessions", headers=operator).status_code == 403  # it reads no sessions
        assert client.get(server.link).status_code == 303  # the person at this machine, who has the link
        for method, path in GLOBAL_OPERATIONS:
            assert client.request(method, path, headers={"X-Vaka-Console": "1"}).status_code == 200


@pytest.mark.parametrize("tenant", ["../x", "a/b", "."])
def test_a_tenant_has_a_plain_name(shell: Shell, tenant: str) -> None:
    refused = shell.vaka("keys", "create", "--tenant", tenant)
    assert (refused.code, "is not the name of a tenant" in refused.err) == (2, True)
