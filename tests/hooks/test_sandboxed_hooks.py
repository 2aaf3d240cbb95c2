"""With ``sandboxed=["hooks"]`` hooks run in the sandbox of commands."""

import signal
from pathlib import Path

import pytest

import vaka
from tests.hooks.hook_fixtures import look, run_with_hooks
from tests.runtime.runtime_fixtures import results_by_call
from vaka.config.options import Commands, Workspace
from vaka.errors import ConfigError, SandboxError
from vaka.hooks import Hook
from vaka.runtime.options import Project
from vaka.testing.models import ScriptedModel, call, calls, say

SET_VARIABLE = "echo 'export FROM_HOOK=seen' > $CLAUDE_ENV_FILE"
REFUSE = (
    """path=$(sed 's/.*"transcript_path":"\\([^"]*\\)".*/\\1/'); cp "$path" transcript; """
    'echo x > {outside}/new 2>/dev/null; (setsid sleep 600 &); echo "$CANARY_TOKEN$OWN" >&2; exit 2'
)


async def test_a_hook_in_the_sandbox_decides_and_cannot_write_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets its payload, the transcript and its own variables, and can set variables for commands."""
    monkeypatch.setenv("CANARY_TOKEN", "canary")
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    hooks = (
        Hook(event="SessionStart", command=SET_VARIABLE),
        Hook(event="PreToolUse", matcher="look", command=REFUSE.format(outside=outside), env={"OWN": "by rule"}),
        Hook(event="PreToolUse", matcher="Bash", command="sleep 600", timeout=0.2),
    )
    model = ScriptedModel(calls(call("look", at="sea"), call("Bash", command="echo $FROM_HOOK")), say("done"))
    log, response = await run_with_hooks(
        workspace,
        model,
        *hooks,
        tools=(look, "Bash"),
        commands=Commands(sandboxed=["hooks"]),
        permissions=vaka.Permissions(mode="bypassPermissions"),
        project=Project(transcript_folder=str(tmp_path / "transcripts")),
    )
    assert response is not None
    results = results_by_call(log)
    assert "by rule" in results["call_1"].text
    assert "canary" not in results["call_1"].text
    assert results["call_2"].text.startswith("seen\n")
    assert "sea" in (workspace / "transcript").read_text()
    assert list(outside.iterdir()) == []
    ran = {event.data.command: event.data for event in log if event.type == "hook.ran"}
    assert ran["sleep 600"].status == -signal.SIGKILL


async def test_hooks_that_must_run_in_a_sandbox_refuse_a_runtime_without_one(tmp_path: Path) -> None:
    hook = Hook(event="Stop", command="true")
    with pytest.raises(SandboxError, match="hooks must run in a sandbox"):
        vaka.Runtime(
            store="memory:",
            project=Project(hooks=[hook]),
            commands=Commands(sandboxed=["hooks"], sandbox="off"),
            workspace=Workspace(cwd=str(tmp_path)),
        )
    with pytest.raises(ConfigError, match="expected mcp or hooks"):
        Commands(sandboxed=("Hooks",))  # type: ignore[arg-type]  # a typing error
