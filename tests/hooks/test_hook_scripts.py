"""Scripts in the styles that people write for Claude Code decide about a conversation, and broken ones do no harm."""

import asyncio
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.hooks.hook_fixtures import look, prints, prompts_of, run_with_hooks
from tests.runtime.runtime_fixtures import agent, check_log, read_log, results_by_call, runtime, wait_until
from vaka.config.options import Commands, Workspace
from vaka.hooks import Hook, parse_hooks
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

# A guard in Python that decides by its exit code.
CHECK_COMMAND = r"""
import json, re, sys

try:
    data = json.load(sys.stdin)
except json.JSONDecodeError as error:
    print(f"invalid JSON: {error}", file=sys.stderr)
    sys.exit(1)
if data.get("tool_name") != "Bash":
    sys.exit(0)
command = data.get("tool_input", {}).get("command", "")
rules = [(r"\brm\s+-rf\b", "use trash"), (r"\bsudo\b", "no sudo")]
problems = [why for pattern, why in rules if re.search(pattern, command)]
if problems:
    for problem in problems:
        print(f"• {problem}", file=sys.stderr)
    sys.exit(2)
"""

# A guard in bash that reads JSON without jq.
PROTECT_FILES = r"""#!/usr/bin/env bash
set -euo pipefail
input=$(cat)
file=$(printf '%s' "$input" | grep -o '"file_path":"[^"]*"' | head -1 | sed 's/^"file_path":"//; s/"$//')
[ -n "$file" ] || exit 0
for pattern in ".env" "package-lock.json" ".git/"; do
  if [[ "$file" == *"$pattern"* ]]; then
    echo "Blocked: $file matches protected pattern '$pattern'" >&2
    exit 2
  fi
done
case "$file" in
  "$CLAUDE_PROJECT_DIR"/*) exit 0 ;;
  *) echo "outside of the project" >&2; exit 2 ;;
esac
"""

# A guard in JavaScript that decides by JSON.
APPROVE_READS = r"""
let text = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => { text += chunk; });
process.stdin.on('end', () => {
  const { tool_name, tool_input, hook_event_name, session_id, permission_mode } = JSON.parse(text);
  if (!session_id || !permission_mode) process.exit(2);
  const command = (tool_input && tool_input.command) || '';
  const decision = /^git push/.test(command) ? 'deny' : /^git (status|log)/.test(command) ? 'allow' : null;
  const output = { hookEventName: hook_event_name, permissionDecisionReason: `${tool_name}: ${command}` };
  if (/^npm test/.test(command)) output.updatedInput = { ...tool_input, command: 'echo npm test --silent' };
  if (decision || output.updatedInput) output.permissionDecision = decision || 'allow';
  if (output.permissionDecision) console.log(JSON.stringify({ hookSpecificOutput: output }));
});
"""

# A formatter in bash that reports to the model what it did.
FORMAT_FILE = r"""#!/bin/bash
FILE=$(node -p 'const d = JSON.parse(require("fs").readFileSync(0)); d.tool_response.filePath || d.tool_input.path')
[[ "$FILE" == *.txt && -f "$FILE" ]] || exit 0
sed -i 's/[[:space:]]*$//' "$FILE"
grep -q TODO "$FILE" && { echo "$FILE has a TODO" >&2; exit 2; }
exit 0
"""

# A gate in Python that reads the transcript before the agent may stop.
CHECK_ANSWER = r"""
import json, sys

data = json.load(sys.stdin)
if data.get("stop_hook_active"):
    sys.exit(0)
last = ""
with open(data["transcript_path"]) as transcript:
    for line in transcript:
        entry = json.loads(line)
        if entry.get("type") != "assistant":
            continue
        for block in entry["message"]["content"]:
            if block.get("type") == "text":
                last = block["text"]
if "tests pass" not in last:
    print(json.dumps({"decision": "block", "reason": f"You said {last!r}. Run the tests first."}))
"""

# Context of a session, and its variables, in sh.
BEGIN_SESSION = r"""#!/bin/sh
if [ -n "$CLAUDE_ENV_FILE" ]; then
  echo 'export PROJECT_ENV=testing' >> "$CLAUDE_ENV_FILE"
fi
cat > /dev/null
echo "Branch: main"
"""

# A prompt check in Python with the older form of a decision.
CHECK_PROMPT = r"""
import json, sys

prompt = json.load(sys.stdin)["prompt"]
if "password" in prompt.lower():
    print(json.dumps({"decision": "block", "reason": "prompts must not contain passwords"}))
    sys.exit(0)
print(json.dumps({"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "Be careful."}}))
"""


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, though its parent may not have asked for its exit code yet."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


SCRIPTS = {
    "check_command.py": CHECK_COMMAND,
    "protect-files.sh": PROTECT_FILES,
    "approve.js": APPROVE_READS,
    "format-file.sh": FORMAT_FILE,
    "check_answer.py": CHECK_ANSWER,
    "begin.sh": BEGIN_SESSION,
    "check_prompt.py": CHECK_PROMPT,
}


def settings_of(folder: Path) -> dict[str, Any]:
    """Write the scripts, and return the settings that name them in the usual ways."""
    for name, text in SCRIPTS.items():
        path = folder / ".claude/hooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    here = '"$CLAUDE_PROJECT_DIR"/.claude/hooks'

    def run(command: str, **more: Any) -> list[dict[str, Any]]:
        return [{"type": "command", "command": command, **more}]

    python = f"{sys.executable} {here}"
    bash = [*run(f"{python}/check_command.py", timeout=10), *run(f"node {here}/approve.js")]
    return {
        "hooks": {
            "SessionStart": [{"matcher": "startup", "hooks": run(f"{here}/begin.sh")}],
            "UserPromptSubmit": [{"hooks": run(f"{python}/check_prompt.py")}],
            "PreToolUse": [
                {"matcher": "Bash", "hooks": bash},
                {"matcher": "Edit|Write", "hooks": run(".claude/hooks/protect-files.sh")},
            ],
            "PostToolUse": [{"matcher": "Write|Edit", "hooks": run(f"{here}/format-file.sh")}],
            "Stop": [{"matcher": "", "hooks": run(f"{python}/check_answer.py")}],
        }
    }


@pytest.mark.skipif(shutil.which("node") is None, reason="one of the scripts is in JavaScript")
@pytest.mark.every_loop
async def test_scripts_in_python_bash_and_javascript_decide_about_a_conversation(tmp_path: Path) -> None:
    parsed = parse_hooks(settings_of(tmp_path))
    assert parsed.problems == ()
    steps = [
        call("Bash", command="sudo rm -rf build"),
        call("Bash", command="git push origin main"),
        call("Bash", command="npm test"),
        call("Bash", command='echo "$PROJECT_ENV"'),
        call("Write", file_path=".env", content="KEY=1"),
        call("Write", file_path="notes.txt", content="one   \nTODO\n"),
        say("All done."),
        say("All tests pass."),
    ]
    model, store = ScriptedModel(*steps), MemoryStore()
    options: dict[str, Any] = {
        "project": Project(hooks=parsed.hooks),
        "workspace": Workspace(cwd=str(tmp_path)),
        "commands": Commands(sandbox="off"),
        "permissions": vaka.Permissions(mode="acceptEdits", allow=("Bash(echo:*)",), ask="deny"),
    }
    async with runtime(store, **options) as rt:
        session = await rt.open(agent(model, "Bash", "Write"), id="s")
        with pytest.raises(vaka.TurnError, match="prompts must not contain passwords"):
            await session.run("My password is x.")
        response = await session.run("Tidy up.")
    log = await read_log(store, "s")
    check_log(log)
    assert prompts_of(model, 0) == ["Tidy up.\n\nBranch: main\n\nBe careful."]
    results = [result.text for result in results_by_call(log).values()]
    assert results[0] == "• use trash\n• no sudo"
    assert results[1] == "Bash: git push origin main"
    assert results[2].startswith("npm test --silent\n")
    assert results[3].startswith("testing\n")
    assert results[4] == f"Blocked: {tmp_path}/.env matches protected pattern '.env'"
    assert results[5].endswith(f"{tmp_path}/notes.txt has a TODO")
    assert (tmp_path / "notes.txt").read_text() == "one\nTODO\n"
    assert response.text == "All tests pass."
    assert prompts_of(model)[-1] == "You said 'All done.'. Run the tests first."


async def test_broken_scripts_decide_nothing_and_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "plain.sh").write_text("#!/bin/sh\nexit 2\n")
    for name, text in {"crlf.sh": b"#!/bin/sh\r\nexit 2\r\n", "binary": b"\x7fELF\xff\xfe", "empty": b""}.items():
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(0o755)
    commands = (
        "./plain.sh",
        "./crlf.sh",
        "./binary",
        "./empty",
        "./gone.sh",
        "exec 0<&-; exit 1",
        "head -c 1 > /dev/null",
        "trap '' TERM INT HUP; echo $$ > stubborn; sleep 100 & echo $! > child; wait; sleep 100",
        'printf \'\\377\\376{"decision": "block"}\'',
        'printf \'{"decision": "block"\'',
        'echo \'{"decision": "block", "decision": null}\'',
        "yes '{' | head -c 2000000",
        "printf '%0100000d' 0 | tr 0 \"[\"",
        "kill -SEGV $$",
        "ulimit -v 1; ls",
    )
    hooks = [Hook(event="PreToolUse", command=command, timeout=3) for command in commands]
    model = ScriptedModel(call("look", at="x" * 1_000_000), say("done"))
    log, response = await run_with_hooks(tmp_path, model, *hooks)
    assert response is not None
    assert response.denied == ()
    assert results_by_call(log)["call_1"].text.startswith("seen xxx")
    warnings = "\n".join(event.data.message for event in log if event.type == "log")
    assert "chmod +x" in warnings
    assert "(./plain.sh)" in warnings
    assert "CRLF" in warnings
    assert "took longer than 3 s" in warnings
    ran = [event.data for event in log if event.type == "hook.ran"]
    assert len(ran) == len(commands)
    assert all(len(body.output) <= 2000 for body in ran)
    for name in ("stubborn", "child"):
        pid = int((tmp_path / name).read_text())
        await wait_until(partial(has_ended, pid))


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "Stop"])
async def test_an_interrupt_ends_a_hook_that_hangs_and_keeps_the_result(tmp_path: Path, event: str) -> None:
    os.mkfifo(tmp_path / "begun")
    hook = Hook(event=event, command="echo $$ > begun; sleep 600")
    store = MemoryStore()
    async with runtime(store, project=Project(hooks=[hook]), workspace=Workspace(cwd=str(tmp_path))) as rt:
        session = await rt.open(agent(ScriptedModel(call("look", at="sea"), say("done")), look), id="s")
        turn = asyncio.create_task(session.run("Go."))
        pid = int(await asyncio.to_thread((tmp_path / "begun").read_text))
        await session.interrupt("enough")
        with pytest.raises(vaka.TurnError, match="enough"):
            await turn
    log = await read_log(store, "s")
    check_log(log)
    assert results_by_call(log)["call_1"].text.startswith("seen sea") == (event != "PreToolUse")
    await wait_until(partial(has_ended, pid))


async def test_a_hook_that_says_that_it_is_asynchronous_is_not_waited_for_and_decides_nothing(tmp_path: Path) -> None:
    announce = 'echo \'{"async": true, "asyncTimeout": 15000}\''
    hooks = (
        Hook(event="SessionStart", command=f"{announce}; echo late; cat go > done; exit 2"),
        Hook(event="PreToolUse", command=f"{announce}; exit 2"),
        Hook(event="PostToolUse", command="echo go > go"),
    )
    os.mkfifo(tmp_path / "go")  # the first hook can end only after the tool has run
    model = ScriptedModel(call("look", at="sea"), say("done"))
    log, _ = await run_with_hooks(tmp_path, model, *hooks)
    assert prompts_of(model, 0) == ["Go."]
    assert results_by_call(log)["call_1"].text == "seen sea"
    assert (tmp_path / "done").read_text() == "go\n"


async def test_a_refusal_without_a_reason_gives_the_model_the_message_for_the_user(tmp_path: Path) -> None:
    document = {"hookSpecificOutput": {"permissionDecision": "deny"}, "systemMessage": "[block-rm] do not delete"}
    hook = Hook(event="PreToolUse", command=prints(document))
    log, _ = await run_with_hooks(tmp_path, ScriptedModel(call("look"), say("done")), hook)
    assert results_by_call(log)["call_1"].text == "[block-rm] do not delete"


async def test_a_hook_that_leaves_a_server_running_does_not_hold_up_the_turn(tmp_path: Path) -> None:
    hook = Hook(event="PreToolUse", command="sleep 30 & echo $! > server")
    log, _ = await run_with_hooks(tmp_path, ScriptedModel(call("look", at="sea"), say("done")), hook, tools=(look,))
    assert results_by_call(log)["call_1"].text == "seen sea"
    os.kill(int((tmp_path / "server").read_text()), 9)  # it still runs: programs may leave one on purpose
