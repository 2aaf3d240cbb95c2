"""The corpus of permission decisions: python -m tests.policy.decisions records it again.

Only a change that is meant to change decisions may record it again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import UNTRUSTED_LAYER, Mode, ToolSpec
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

FILE = Path(__file__).with_name("decisions.json")
PROJECT, HOME = "/nowhere/project", "/nowhere/home"
"""Folders that do not exist, so that no link of this machine counts."""
MODES = sorted(get_args(Mode))

NO_RULES = "no rules"
RULES = {
    NO_RULES: Layer(name="flag"),
    "deny files": Layer(name="flag", deny=("Read(.env)", "Read(secrets/**)", "Edit(docs/**)", "Grep(pattern:TODO)")),
    "ask about files": Layer(name="flag", ask=("Read(.env)", "Edit(src/**)", "Write(content:*token*)")),
    "allow files": Layer(name="flag", allow=("Edit(docs/**)", "Read(~/notes/**)", "Edit(//nowhere/other/**)")),
    "allow tools": Layer(
        name="flag",
        allow=("Bash(make:*)", "WebFetch(domain:example.com)", "Skill(pdf:*)", "Task(explore)", "mcp__files", "deploy"),
    ),
    "deny tools": Layer(
        name="flag",
        deny=("Bash(make:*)", "WebFetch(domain:example.com)", "Agent", "NotebookEdit", "TodoWrite", "mcp__files__save"),
    ),
    "ask about tools": Layer(
        name="flag", ask=("Bash", "WebSearch", "Skill(pdf)", "Read", "Edit", "KillTask(task_id:*)", "deploy")
    ),
}
"""Settings by name; each is tried in every mode."""

_PATHS = ("src/a.py", ".env", "docs/index.md", "/nowhere/other/b", "~/notes/c", ".git/config", ".claude/settings.json")
_FILE_TOOLS = ("Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "NotebookRead", "file_read", "file_write")
_COMMANDS = (
    "ls",
    "make test",
    "rm -rf /",
    "cat .env",
    "echo x > docs/a",
    "curl https://example.com",
    "cd docs && make",
)


class Case(NamedTuple):
    """A call of a tool."""

    spec: ToolSpec
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        layer = "" if self.spec.layer in ("builtin", "mcp", "") else f"{self.spec.layer} {self.spec.effect} "
        return f"{layer}{self.spec.name} {json.dumps(self.arguments)}"


def list_cases() -> Iterator[Case]:
    """Return calls of every built-in tool, of tools of Claude Code, and of tools from other places."""
    for tool in _FILE_TOOLS:
        for name in ("file_path", "notebook_path", "path"):
            yield from (Case(spec_of(tool), {name: path}) for path in _PATHS[: 7 if name == "file_path" else 1])
        yield from (Case(spec_of(tool), arguments) for arguments in ({}, {"file_path": 1}, {"file_path": ""}))
    yield Case(spec_of("Write"), {"file_path": "a", "content": "a token"})
    yield Case(spec_of("Read"), {"file_path": "a", "path": ".env"})
    for tool in ("Glob", "Grep", "LS"):
        searched: tuple[dict[str, Any], ...] = (
            {},
            *({"path": path} for path in _PATHS),
            {"pattern": "../**/*"},
            {"pattern": "secrets/*"},
        )
        yield from (Case(spec_of(tool), arguments) for arguments in (*searched, {"path": "~", "pattern": "TODO"}))
    for tool in ("Bash", "PowerShell"):
        yield from (Case(spec_of(tool), {"command": command}) for command in _COMMANDS)
    yield from (
        Case(spec_of("Bash"), {"command": "make", **more})
        for more in ({"workdir": "docs"}, {"sandbox": False}, {"allow_hosts": ["example.com"]}, {"workdir": 1})
    )
    for tool in ("BashOutput", "BashStatus", "KillTask", "KillShell", "TaskGet", "TaskUpdate", "kill_task"):
        yield from (Case(spec_of(tool), {name: "t1"}) for name in ("task_id", "bash_id", "taskId"))
    for tool in ("TaskCreate", "TaskList", "TodoWrite", "AskUserQuestion", "DMail", "ExitPlanMode", "Nothing"):
        yield Case(spec_of(tool), {})
    for url in ("https://example.com/a", "https://other.org", "no address", ""):
        yield from (Case(spec_of(tool), {"url": url}) for tool in ("WebFetch", "web_fetch"))
    yield Case(spec_of("WebSearch"), {"query": "vaka"})
    for agent in ("explore", "deploy"):
        yield from (Case(spec_of(tool), {"subagent_type": agent}) for tool in ("Task", "Agent"))
    yield from (Case(spec_of("Skill"), {name: skill}) for name in ("skill", "command") for skill in ("pdf", "pdf x"))
    yield from (Case(spec_of("SlashCommand"), {"command": command}) for command in ("/pdf", "/review 1"))
    yield from _list_foreign_cases()


def _list_foreign_cases() -> Iterator[Case]:
    for arguments in ({}, {"path": ".env"}, {"file_path": "docs/a"}, {"command": "make"}):
        for effect in ("read", "idempotent", "once", "resume"):
            for layer in ("code", "agent", "project", UNTRUSTED_LAYER):
                yield Case(ToolSpec(name="deploy", layer=layer, effect=effect), arguments)
            yield Case(ToolSpec(name="mcp__files__save", layer="mcp", effect=effect), arguments)
        yield from (Case(ToolSpec(name=name), arguments) for name in ("Read", "Write", "Bash"))


def decide_all() -> dict[str, dict[str, str]]:
    """Return the decisions on each case by settings: one letter per mode, and the rule that an approval would add."""
    found: dict[str, dict[str, str]] = {}
    policies = {
        name: [LayeredPolicy([layer, Layer(name="mode", mode=mode)], cwd=PROJECT, home=HOME) for mode in MODES]
        for name, layer in RULES.items()
    }
    for case in list_cases():
        call = ToolCall(id=CallId("c"), name=case.spec.name, arguments=case.arguments)
        for settings, by_mode in policies.items():
            decisions = [policy.decide(case.spec, case.arguments).decision for policy in by_mode]
            letters = "".join({"allow": "+", "ask": "?", "deny": "-"}[decision] for decision in decisions)
            grant = getattr(by_mode[MODES.index("default")].judge(call, case.spec, ()), "grant", "")
            found.setdefault(settings, {})[case.name] = f"{letters} {grant}".rstrip()
    return found


def omit_repeated(found: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Leave out what rules do not change."""
    without = found[NO_RULES]
    return {
        settings: {name: text for name, text in cases.items() if settings == NO_RULES or text != without[name]}
        for settings, cases in found.items()
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(omit_repeated(decide_all()), indent=1) + "\n")
