"""``input``, ``output``, ``recv``, ``emit`` and their chunks; ``log``, ``sleep``, ``uuid`` and ``env``."""

import base64
import uuid
from typing import NamedTuple

import msgspec

from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import Audio, Content, Document, Image, Part, Stored, Text, replace_surrogates
from vaka.luau.protocol import HostFunction, HostFunctions, as_list, as_string, as_table, type_name
from vaka.luau.services import HostServices, unavailable_function

_BLOB_TYPES: dict[str, type[Audio] | type[Image]] = {"audio/": Audio, "image/": Image}


class EmittedChunk(NamedTuple):
    """Content that an agent emits, and whether it ends a message."""

    content: Content
    eof: bool


def chunk_of_content(content: Content) -> JSON:
    """Return content as the table that ``recv`` returns."""
    return {"parts": [part for part in map(part_table, content) if part is not None]}


def parse_chunk(chunk: JSON) -> EmittedChunk:
    """Return the chunk of an ``emit`` call; raise ``ScriptError`` for an invalid one."""
    fields = as_table(chunk, "emit: a chunk")
    content = tuple(parse_part(part, "emit") for part in as_list(fields.get("parts"), "emit: parts"))
    return EmittedChunk(content, bool(fields.get("eof")))


def part_table(part: Part) -> JSON:
    """Return a part as a table for scripts, ``None`` for a part that scripts do not see."""
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Stored):
        return {"type": "text", "text": part.preview}
    if isinstance(part, Image | Audio | Document):
        source = {"url": part.url} if part.url else {"base64": part.data}
        return {"type": "blob", "mime_type": part.media_type} | source
    return None


def parse_part(value: JSON, label: str) -> Part:
    """Return the part of a script's table; raise ``ScriptError``, which begins with ``label``, for an invalid one."""
    part = as_table(value, f"{label}: a part")
    if part.get("type") == "text":
        return Text(text=replace_surrogates(_decode_text(part.get("text"))))
    if part.get("type") != "blob":
        return Text(text=msgspec.json.encode(part).decode())
    data = part.get("data")
    if not isinstance(data, str | bytes):
        raise ScriptError(f"{label}: the data of a part must be a string, not {type_name(data)}")
    encoded = base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
    mime = _decode_text(part.get("mime_type") or "application/octet-stream")
    return _BLOB_TYPES.get(mime[:6], Document)(media_type=mime, data=encoded)


def _decode_text(value: JSON) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def io_functions(services: HostServices) -> HostFunctions:
    """``input`` and ``output`` of tools, ``recv`` and ``emit`` of agents."""
    io = services.io

    async def set_style(style: JSON) -> None:
        if io.set_style is not None:
            io.set_style(str(style))

    async def write_output(value: JSON = None, error: JSON = None) -> None:
        if io.output is not None:
            await io.output(value, error)

    no_caller, no_agent = "this script has no caller that could answer", "this script is not an agent"
    return {
        "input": HostFunction(io.input, wants_request=True) if io.input else unavailable_function("input", no_caller),
        "recv": HostFunction(io.recv, wants_request=True) if io.recv else unavailable_function("recv", no_agent),
        "emit": HostFunction(io.emit, local=True) if io.emit else unavailable_function("emit", no_agent),
        "agent.style": HostFunction(set_style, local=True),
        "output": HostFunction(write_output, local=True),
    }


LOG_LEVELS = ("debug", "info", "warning", "error")

MAX_LOG_CHARS = 100_000
"""The length of one line, and of the lines that are held back until the next write."""
MAX_LOG_LINES = 256


def system_functions(services: HostServices) -> HostFunctions:
    """``log``, ``sleep``, ``uuid`` and ``env``. Logs are not recorded: a replayed script logs the same lines again."""
    deferred_lines, deferred_chars = 0, 0

    async def write_logged_lines(chars: int) -> None:
        """Write the deferred lines when they are many, so that the host does not hold all of them."""
        nonlocal deferred_lines, deferred_chars
        deferred_lines, deferred_chars = deferred_lines + 1, deferred_chars + chars
        if services.journal is not None and (deferred_lines >= MAX_LOG_LINES or deferred_chars >= MAX_LOG_CHARS):
            deferred_lines = deferred_chars = 0
            await services.journal.commit()

    async def log(level: JSON, line: JSON) -> None:
        if level not in LOG_LEVELS:
            raise ScriptError(f"log: unknown level {level!r}; expected {', '.join(LOG_LEVELS)}")
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else str(line)
        if services.log is not None:
            services.log(level, text if len(text) <= MAX_LOG_CHARS else f"{text[:MAX_LOG_CHARS]}…")
        await write_logged_lines(min(len(text), MAX_LOG_CHARS))

    async def sleep(seconds: JSON) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ScriptError(f"sleep: seconds must be a number, not {type_name(seconds)}")
        await services.sleep(max(float(seconds), 0.0))

    async def new_uuid() -> JSON:
        return str(uuid.uuid4())

    async def env(key: JSON) -> JSON:
        """Return an environment variable that scripts may read; nil for any other, and for an empty one."""
        return services.runtime.env.get(as_string(key, "key")) or None

    return {
        "log": HostFunction(log, local=True),
        "sleep": HostFunction(sleep),
        "uuid": HostFunction(new_uuid),
        "env": HostFunction(env, local=True),
    }
