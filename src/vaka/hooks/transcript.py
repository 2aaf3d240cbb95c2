"""The transcript of an agent as a JSONL file for hooks: one line for each message, call and result of its log."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from vaka.core.ports.store import Store
from vaka.core.types import progress
from vaka.core.types.control import InputAdded
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath, SessionId
from vaka.core.types.message import Content, Reasoning, Stored, Text, ToolResult

MAX_ENV_BYTES = 16 * 1024
"""Bytes of the variables of a session that commands get."""
_NOT_IN_NAMES = r"[^\w.@+-]"
_FILE_NAME = re.compile(r"[\w@+-][\w.@+-]{0,149}")
_TAIL_BYTES = 1024 * 1024
"""The end of a transcript in which its last line is searched; a longer line is written again."""


class Transcripts:
    """Writes transcripts into a folder, each time only what is new in the log."""

    def __init__(self, folder: str, cwd: str) -> None:
        """``folder`` is created when it is needed; ``""`` stands for a new temporary one."""
        self._given_folder, self._cwd = folder, cwd
        self._written: dict[SessionId, _WrittenFiles] = {}

    @cached_property
    def folder(self) -> Path:
        """The folder of all transcripts."""
        return Path(self._given_folder or tempfile.mkdtemp(prefix="vaka-transcripts-"))

    def path_of(self, session: SessionId, agent: AgentPath = ()) -> Path:
        """Return the file of the transcript of an agent."""
        name = str(session)
        if not _FILE_NAME.fullmatch(name):  # the digest keeps two sessions with similar names apart
            digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            name = f"{re.sub(_NOT_IN_NAMES, '_', name)[:100]}%{digest}"
        if agent:
            return self.folder / f"{name}.agents" / f"{'-'.join(agent)}.jsonl"
        return self.folder / f"{name}.jsonl"

    async def flush(self, store: Store, session: SessionId, agent: AgentPath = ()) -> Path:
        """Write what the log has and the transcript has not, and return its file."""
        path, written = self.path_of(session, agent), self._written.setdefault(session, _WrittenFiles())
        async with written.lock:  # hooks of two calls may run at the same time
            return await self._write_new(store, session, agent, path, written.last_seqs)

    async def _write_new(
        self, store: Store, session: SessionId, agent: AgentPath, path: Path, last_seqs: dict[Path, int]
    ) -> Path:
        after = last_seqs.get(path)
        if after is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            after = await _find_end(store, session, path)
        lines: list[bytes] = []
        async with aclosing(store.events.read(session, after=after)) as events:
            async for event in events:
                after = event.seq
                lines += [msgspec.json.encode(line) + b"\n" for line in self._lines_of(event, agent)]
        if lines or path not in last_seqs:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.writelines(lines)
        last_seqs[path] = after
        return path

    def forget(self, session: SessionId) -> None:
        """Drop what is known about the files of a session; the next ``flush`` reads their last lines again."""
        self._written.pop(session, None)

    def delete(self, session: SessionId) -> None:
        """Remove the files of a session."""
        self.forget(session)
        path = self.path_of(session)
        path.unlink(missing_ok=True)
        for folder in (path.with_suffix(".agents"), self._env_folder(session)):
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder if it is a temporary one."""
        if not self._given_folder and "folder" in self.__dict__:
            shutil.rmtree(self.folder, ignore_errors=True)

    def new_env_file(self, session: SessionId, command: str) -> Path:
        """Return a path for the variables that a command of ``SessionStart`` may set; there is no such file yet."""
        folder = self._env_folder(session)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{sha256(command.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.sh"
        path.unlink(missing_ok=True)
        return path

    def read_env_files(self, session: SessionId) -> str:
        """Return what the commands of ``SessionStart`` have written into their files, as a text for bash."""
        try:
            files = sorted(self._env_folder(session).iterdir())
            texts = [file.read_bytes()[:MAX_ENV_BYTES].decode("utf-8", "replace") for file in files]
        except OSError:
            return ""
        return "\n".join(text.replace("\0", "") for text in texts)[:MAX_ENV_BYTES]

    def _env_folder(self, session: SessionId) -> Path:
        return self.path_of(session).with_suffix(".env")

    def _lines_of(self, event: Event, agent: AgentPath) -> Iterator[dict[str, Any]]:
        for role, content in _messages_of(event, agent):
            yield {
                "type": role,
                "uuid": f"{event.session}/{event.seq}",
                "timestamp": event.ts,
                "sessionId": event.session,
                "cwd": self._cwd,
                "seq": event.seq,
                "message": {"role": role, "content": content},
            }


def _messages_of(event: Event, agent: AgentPath) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the role and the content blocks that an event adds to the conversation of an agent."""
    body, own = event.data, tuple(event.path) == agent
    match body:
        case InputAdded(content=content) if not agent:
            yield "user", _blocks_of(content)
        case progress.SubagentStarted(child=child, content=content) if (*event.path, child) == agent:
            yield "user", _blocks_of(content)
        case progress.AgentContinued(text=text) | progress.OutputRejected(feedback=text) if own:
            yield "user", [{"type": "text", "text": text}]
        case progress.MessageCompleted(content=content) if own and (blocks := _blocks_of(content)):
            yield "assistant", blocks
        case progress.ToolCalled(call=call) if own:
            use = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            yield "assistant", [use]
        case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result) if own:
            yield "user", [_result_block(result)]
        case _:
            return


def _result_block(result: ToolResult) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": result.call, "content": result.text}
    return {**block, "is_error": True} if result.failed else block


def _blocks_of(content: Content) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Text | Stored):
            blocks.append({"type": "text", "text": part.text if isinstance(part, Text) else part.preview})
        elif isinstance(part, Reasoning) and part.text:
            blocks.append({"type": "thinking", "thinking": part.text})
    return blocks


class _WrittenFiles:
    """The transcripts of one session."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.last_seqs: dict[Path, int] = {}
        """The seq of the last event of each file."""


async def _find_end(store: Store, session: SessionId, path: Path) -> int:
    """Return the seq up to which a file has the log; empty a file that is damaged or has another log."""
    last = _read_last_line(path)
    seq = last.get("seq")
    if isinstance(seq, int) and seq > 0:
        async with aclosing(store.events.read(session, after=seq - 1, upto=seq)) as events:
            async for event in events:
                if event.ts == last.get("timestamp"):
                    return seq
    if last:
        os.truncate(path, 0)
    return 0


def _read_last_line(path: Path) -> dict[str, Any]:
    """Return the last line of a file and remove what follows it; a file without a line is emptied."""
    try:
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL_BYTES, 0))
            tail = file.read()
            end = tail.rfind(b"\n") + 1
            try:
                last = msgspec.json.decode(tail[:end].rstrip(b"\n").rpartition(b"\n")[2], type=dict[str, Any])
            except msgspec.DecodeError:
                last, end = dict[str, Any](), len(tail) - size
            file.truncate(size - len(tail) + end)
    except FileNotFoundError:
        return {}
    return last
