"""A program drives `vaka run` by lines of JSON: it sends messages, approves calls and reads results."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = [
    {"tool_calls": [{"name": "Write", "arguments": {"file_path": "boat.txt", "content": "A canoe.\n"}}]},
    {"text": "The file is written."},
    {"text": "You are welcome."},
]


def send(process: "subprocess.Popen[str]", **line: Any) -> None:
    """Write one line of JSON."""
    assert process.stdin is not None
    process.stdin.write(f"{json.dumps(line)}\n")
    process.stdin.flush()


def say(process: "subprocess.Popen[str]", text: str) -> None:
    print(f"> {text}")
    send(process, type="user", message={"role": "user", "content": text})


def main(folder: Path) -> None:
    (folder / "script.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in SCRIPT))
    command = [sys.executable, "-m", "vaka", "run", "--input", "stream-json", "--quiet", "--ephemeral"]
    command += ["--model", "scripted:script.jsonl"]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        say(process, "Write down a boat.")
        messages = ["Thank you."]
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["type"] == "approval.requested":
                call = event["data"]["call"]
                print(f"approve {call['name']} {call['arguments']['file_path']}")
                send(process, type="approval", id=event["data"]["approval"], decision="approve")
            elif event["type"] == "result":
                print(event["text"])
                if messages:
                    say(process, messages.pop())
                else:
                    send(process, type="end")
    print(f"boat.txt: {(folder / 'boat.txt').read_text().strip()} (exit code {process.returncode})")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
