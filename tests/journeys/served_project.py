"""A project that is served: its tools, hooks, MCP server and agents, an account, a provider and a running server."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.journeys.installed import Home, Server
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider

TIDE = """\
-- Tell the tide of a harbour, in metres.
function invoke(ctx, args)
	return { harbour = args.harbour, metres = 0.4 }
end
"""
MCP_SERVER = """\
import json
import sys

TOOL = {
    "name": "depth",
    "description": "Measure the depth of the water.",
    "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params, result = message.get("params", {}), {}
    if message["method"] == "initialize":
        server = {"name": "sounding", "version": "1"}
        version = params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    elif message["method"] == "tools/list":
        result = {"tools": [TOOL]}
    elif message["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": f"12 fathoms at {params['arguments']['place']}"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
HOOK = """\
import json
import pathlib
import sys

payload = json.load(sys.stdin)
command = payload["tool_input"]["command"]
with pathlib.Path("commands.log").open("a") as log:
    log.write(command + "\\n")
if "--force" in command:
    print("No command of this harbour uses force.", file=sys.stderr)
    sys.exit(2)
"""
HOOKS = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "python3 .claude/note.py"}]}]}
GUIDE = """\
---
name: guide-{wire}
description: Answers questions about the harbour.
model: {model}
---
You are the guide of a harbour.
"""
FILES = {
    "tide.luau": TIDE,
    "sounding.py": MCP_SERVER,
    ".mcp.json": json.dumps({"mcpServers": {"sounding": {"command": "python3", "args": ["sounding.py"]}}}),
    ".claude/settings.json": json.dumps({"hooks": HOOKS, "permissions": {"allow": ["Bash(wc:*)"]}}),
    ".claude/note.py": HOOK,
    ".claude/agents/scout.md": "---\nname: scout\ndescription: Looks around and reports.\n---\nYou are the scout.\n",
    ".gitignore": "commands.log\n",
    **{f".claude/agents/guide-{wire}.md": GUIDE.format(wire=wire, model=MODELS[wire]) for wire in MODELS},
}
SCOPES = ("runs:read", "runs:write", "approvals:write")
SERVE = ("--model", MODELS["chat"], "--tools", "tide.luau", "--untrusted", "--builtin-tools", "all")


class ServedProject:
    """A served project. Its parts can be used one by one, and the server can be killed and started again."""

    def __init__(self, folder: Path, programs: Path, store: str = "", arguments: Sequence[str] = ()) -> None:
        self._stack = ExitStack()
        self.provider = self._stack.enter_context(Provider())
        self.home = Home(folder / "home", programs, self.provider.environment)
        self.project = Project(folder / "harbour")
        self.project.add(FILES)
        self.store: tuple[str, ...] = ("--store", store) if store else ()
        """The flag that selects the store, for every command."""
        self._arguments = (*SERVE, *arguments, *self.store)
        self.vaka("trust")
        scopes = [word for scope in SCOPES for word in ("--scope", scope)]
        self.key = self.home.create_key(self.project.folder, *scopes, *self.store)
        self.server = self._stack.enter_context(self.serve())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def vaka(self, *arguments: str) -> str:
        """Run a command of vaka in the project and return its stdout."""
        return self.home.run(self.project.folder, *arguments)

    def serve(self, *arguments: str, port: int = 0) -> Server:
        """Start a further server of the same project and store."""
        return Server(self.home, self.project.folder, *self._arguments, *arguments, key=self.key, port=port)

    def start_turn(self, session: str, text: str, agent: str = "assistant", **fields: Any) -> dict[str, Any]:
        """Run a turn until it ends or waits for a decision."""
        turn = {"input": text, "agent": agent, **fields}
        return dict(self.server.post(f"/api/v1/sessions/{session}/turns", turn))

    def decide(self, turn: dict[str, Any], decision: str = "approve", **fields: Any) -> dict[str, Any]:
        """Make the one decision for which a turn waits, and wait for the turn."""
        assert turn["status"] == "waiting", turn
        (open_decision,) = turn["decisions"]
        self.server.post(f"/api/v1/approvals/{open_decision['id']}/resolve", {"decision": decision, **fields})
        return dict(self.server.post(f"/api/v1/sessions/{turn['session']}/turns/{turn['id']}/wait", {}))

    def check(self) -> None:
        """Fail if a request had no script, or if uncommitted work is lost."""
        assert [request.raw for request in self.provider.unexpected] == []
        self.project.check()
