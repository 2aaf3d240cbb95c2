"""An agent works on this machine, is killed half-way, and resumes where it was. No key, no network.

What it does is real: it looks at this folder, writes ``vaka-demo/report.md`` and signs ``vaka-demo/guests.txt``, once.
Only the model is scripted, by ``examples/demo/answers.jsonl``; at the end a real one answers, if it is installed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from vaka.models import missing_install_command

HERE = Path(__file__).parent
HOME = Path("vaka-demo").resolve()
STORE = f"sqlite:///{HOME / 'demo.db'}"
SESSION = "demo"
QUESTION = "What is the capital of France?"
PATIENCE = 60
"""Seconds the real model may take."""
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")
ENVIRONMENT = {**os.environ, "VAKA_DEMO_HOME": str(HOME)}


def vaka(*arguments: str) -> list[str]:
    """Return a vaka command line on the demonstration's store."""
    return [sys.executable, "-m", "vaka", *arguments, "--store", STORE]


def run(*arguments: str) -> list[str]:
    """Return the command line of a run, with the demonstration's model and tools."""
    tools, answers = str(HERE / "demo" / "tools.py"), str(HERE / "demo" / "answers.jsonl")
    more = ("--session", SESSION, "--tools", tools, "--model", f"scripted:{answers}", "--output", "stream-json", "-q")
    return vaka("run", *arguments, *more)


def say(text: str) -> None:
    """Print a heading for the reader."""
    print(f"\n{BOLD}{text}{PLAIN}", flush=True)


def show(event: dict[str, Any]) -> None:
    """Print one event as a line."""
    data = event.get("data", {})
    call, result = data.get("call") or {}, data.get("result") or {}
    words = "".join(part.get("text", "") for part in result.get("content") or data.get("content") or [])
    detail = call.get("name") or words or data.get("text") or ""
    print(f"  {DIM}{event.get('id', '·'):>6}{PLAIN}  {event['type']:<18} {detail[:90]}".rstrip(), flush=True)


def watch(command: list[str], *, kill: bool) -> dict[str, Any]:
    """Run a command and print its events; with ``kill``, kill -9 it in the middle of the report."""
    signed = False
    last: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        for line in process.stdout or ():
            last = json.loads(line)
            if last["type"] in {"session", "result"} or last["type"].endswith(".delta"):
                if signed and last["type"] == "tool.output.delta" and "50 %" in last["data"]["text"]:
                    print(f"  {BOLD}kill -9 {process.pid}{PLAIN}", flush=True)
                    process.send_signal(signal.SIGKILL)
                    break
                continue
            show(last)
            signed = signed or (kill and last["type"] == "tool.completed" and "signed" in line)
        process.wait()
    return last


def local() -> None:
    """Let a real small model answer; the demonstration does not depend on it."""
    command = f'vaka run "{QUESTION}" --model local'
    say("6. A real model needs no key either. It is a small one, fit to try things out:")
    install = missing_install_command()
    if install:
        print(f"  {install}\n  {command}", flush=True)
        return
    print(f"  {DIM}{command}{PLAIN}", flush=True)
    try:
        done = subprocess.run(vaka("run", QUESTION, "--model", "local"), timeout=PATIENCE, check=False, env=ENVIRONMENT)
    except subprocess.TimeoutExpired:
        print(f"  It did not answer within {PATIENCE} seconds; the steps above do not depend on it.", flush=True)
        return
    if done.returncode:
        print(f"  It did not answer (exit {done.returncode}); the steps above do not depend on it.", flush=True)


def main() -> int:
    """Run the demonstration."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    say("1. An agent looks at this folder, signs a guest book and writes a report:")
    watch(run("Look around, sign the guest book and write a report."), kill=True)
    say("2. The agent was killed while it wrote the report. The log has everything up to that moment:")
    subprocess.run(vaka("sessions", "list"), check=True, env=ENVIRONMENT)
    say("3. Another process resumes the turn. It writes the report again under its key and does not sign again:")
    result = watch(run("--resume"), kill=False)
    print(f"\n  {result.get('text', '')}")
    say("4. What is on your disk now:")
    for name in ("guests.txt", "report.md"):
        text = (HOME / name).read_text(encoding="utf-8")
        print(f"{DIM}--- vaka-demo/{name}{PLAIN}\n{text}", flush=True)
    say("5. The hashes of the log are checked:")
    subprocess.run(vaka("sessions", "verify", SESSION), check=True, env=ENVIRONMENT)
    signed = len((HOME / "guests.txt").read_text(encoding="utf-8").splitlines())
    local()
    say(f"The guest book was signed {signed} time(s). Look closer: vaka sessions show {SESSION} --store {STORE}")
    return 0 if signed == 1 and result.get("status") == "completed" else 1


if __name__ == "__main__":
    sys.exit(main())
