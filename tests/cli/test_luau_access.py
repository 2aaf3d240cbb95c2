"""Scripts in a session reach the hosts and variables of the flags, and no others."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.shell import Shell, call_line, say_line

SCRIPT = """-- Ask the service.
function invoke(ctx, args)
    local key = __builtin.env("SERVICE_API_KEY") or "nothing"
    local found = ctx.http.get(args.url, { headers = { ["X-Key"] = key } })
    return { status = found.status, body = found.body, home = __builtin.env("HOME") or "nothing" }
end
"""


class Service(http.server.BaseHTTPRequestHandler):
    """Answers with the key of the request, reversed."""

    def do_GET(self) -> None:
        body = (self.headers["X-Key"] or "").upper()[::-1].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def tool_texts(shell: Shell) -> list[Any]:
    ends = ("tool.completed", "tool.failed")
    return [event["data"]["result"] for event in shell.events("s") if event["type"] in ends and not event["path"]]


def test_a_script_reaches_the_hosts_and_variables_it_was_given(shell: Shell, service: str) -> None:
    shell.write_file("ask.luau", SCRIPT)
    shell.write_script(call_line("ask", url=f"http://{service}/"), say_line("done"))
    flags = ("--allow-host", service, "--env", "SERVICE_API_KEY")
    done = shell.run("Go.", "--tools", "ask.luau", *flags, "--session", "s", SERVICE_API_KEY="abcdef-123456")
    assert done.code == 0
    assert tool_texts(shell)[0]["value"] == {"status": 200, "body": "654321-FEDCBA", "home": "nothing"}
    assert "abcdef-123456" not in shell.vaka("sessions", "export", "s").out


def test_without_flags_a_script_reaches_neither_host_nor_variable(shell: Shell, service: str) -> None:
    shell.write_file("ask.luau", SCRIPT)
    shell.write_file("vaka.toml", f'allow_host = ["{service}"]\n')
    shell.write_script(call_line("ask", url=f"http://{service}/"), say_line("done"))
    done = shell.run("Go.", "--tools", "ask.luau", "--session", "s")
    assert "allow_host does not count" in done.err
    assert "this machine itself" in tool_texts(shell)[0]["content"][0]["text"]
