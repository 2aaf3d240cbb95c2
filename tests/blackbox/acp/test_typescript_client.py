"""``vaka acp`` and the protocol's own TypeScript client."""

import json
import sys
from pathlib import Path

from tests.blackbox.js.node import needs_clients, run_script
from tests.cli.shell import Shell, call_line, say_line
from tests.unmeasured import without_coverage


@needs_clients
async def test_a_client_prompts_approves_cancels_loads_and_deletes_a_session(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write_script(call_line("pay", amount=5), say_line("Paid."), call_line("hang"), say_line("Back again."))
    command = (sys.executable, "-m", "vaka", "acp", "--agent", "agent.py", "--model", "scripted:script.jsonl")
    script = Path(__file__).with_name("client.mjs")
    printed = await run_script(script, str(tmp_path), *command, env=without_coverage(shell.env))
    seen = json.loads(printed)
    assert seen["first"].pop("sessionId").startswith("ses_acp_")
    assert seen == {
        "first": {
            "version": 1,
            "mode": "default",
            "stops": ["end_turn", "cancelled"],
            "text": "Paid.",
            "refused": -32601,
            "calls": ["pending", "in_progress", "completed"],
            "exit": 0,
            "asked": [["allow_once", "allow_always", "reject_once"]],
        },
        "second": {
            "replayed": ["Pay.Hang.", "Paid."],
            "stopReason": "end_turn",
            "text": "Paid.Back again.",
            "left": 0,
            "exit": 0,
        },
    }
