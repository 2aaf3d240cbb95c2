"""Stop: the last answer in the transcript must say that the notes are written; otherwise the agent goes on."""

import json
import sys
from pathlib import Path

payload = json.load(sys.stdin)
entries = [json.loads(line) for line in Path(payload["transcript_path"]).read_text("utf-8").splitlines()]
texts = [
    block["text"]
    for entry in entries
    if entry["type"] == "assistant"
    for block in entry["message"]["content"]
    if block["type"] == "text"
]
if not payload["stop_hook_active"] and "written" not in texts[-1]:
    print(json.dumps({"decision": "block", "reason": "Write the notes before you stop."}))
