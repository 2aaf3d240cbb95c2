"""The tools of MCP servers as tools of agents: names, schemas, results and the questions that servers ask."""

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import McpError
from vaka.core.types.ids import JSON, CallId, digest_of
from vaka.core.types.message import Audio, Content, Document, FailureReason, Image, Part, Text, ToolResult
from vaka.core.types.tool import Effect, InvalidArguments, ParsedArguments, ToolSpec
from vaka.mcp.definition import McpServer, tool_part

MAX_NAME = 64
"""The longest name of a tool that all providers accept."""
MAX_DESCRIPTION = 4_000
MAX_SCHEMA_BYTES = 256 * 1024
MAX_SCHEMA_DEPTH = 64
MAX_PATTERN = 1_000
MAX_TOOLS = 1_000
"""The most tools of one server that are offered."""
MAX_TEXT = 200_000
"""Characters of the texts of one result that the model reads."""
MAX_MEDIA_BYTES = 10 << 20
MAX_IMAGE_BASE64 = 5 << 20
"""The longest picture, in base64, that every provider accepts."""
MAX_LISTED_BYTES = 1 << 20
"""Bytes of the descriptions and schemas of one server that are offered: more would fill every prompt."""
TOOL_TIMEOUT = 60.0
"""Seconds without a result or a report of progress, for servers that set no other limit."""
MAX_EXTENSIONS = 10
"""Reports of progress extend the time of a call, up to so many times its limit."""


class SessionLost(McpError, code="mcp_lost"):
    """The connection ended during a request, whose outcome is unknown."""


class SessionExpired(McpError, code="mcp_expired"):
    """The server has forgotten the session; the request was not handled."""


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server describes it."""

    name: str
    description: str = ""
    title: str = ""
    parameters: dict[str, Any] = {}
    output: dict[str, Any] | None = None
    reads: bool = False
    """The server says that a call changes nothing."""
    idempotent: bool = False
    """The server says that a second call with equal arguments changes nothing more."""
    fault: str = ""
    """Why it is not offered to models."""

    @property
    def digest(self) -> str:
        """The digest of what the model reads."""
        return digest_of([self.name, self.title, self.description, self.parameters])


class Elicitation(msgspec.Struct, frozen=True, kw_only=True):
    """What a server wants to know from the person during a call: a form of plain values, or a visit of a page."""

    message: str
    schema: Mapping[str, Any] = {}
    url: str = ""


Answers: TypeAlias = dict[str, "str | int | float | bool | list[str] | None"]


class CallHandlers:
    """What a request to a server does with reports of progress and questions."""

    def __init__(
        self,
        progress: Callable[[float, float | None, str], None] | None = None,
        ask: Callable[[Elicitation], Awaitable[Answers | None]] | None = None,
        session: str = "",
    ) -> None:
        self._progress, self.ask, self.session = progress, ask, session

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._progress is not None:
            self._progress(progress, total, message or "")


class ToolCaller(Protocol):
    """A connection, as far as a tool needs it."""

    server: McpServer

    async def call(self, tool: ListedTool, arguments: dict[str, Any], handlers: CallHandlers) -> dict[str, Any]: ...


class ReadsArguments(Protocol):
    def read(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments: ...


# --------------------------------------------------------------------------------------------------- names and schemas


def tool_name(server: str, tool: str, taken: Iterable[str] = ()) -> str:
    """Return ``mcp__SERVER__TOOL`` in the characters of providers; a cut or repeated name ends with a digest."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool) or "_"
    name = f"mcp__{tool_part(server)}__{plain}"
    if len(name) <= MAX_NAME and name not in taken:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{digest}"


def check_schemas(tool: ListedTool) -> ListedTool:
    """Return a tool without a schema that could harm who reads it: it then has a fault, or no schema of its output."""
    fault = find_schema_fault(tool.parameters)
    if fault:
        return ListedTool(name=tool.name, fault=fault)
    return msgspec.structs.replace(tool, output=None) if tool.output and find_schema_fault(tool.output) else tool


def find_schema_fault(schema: Any) -> str:
    """Return why a schema is not offered to a model, ``""`` when it is: size, depth, patterns, references outside."""
    if not isinstance(schema, dict):
        return "its schema is not an object"
    stack: list[tuple[Any, int]] = [(schema, 1)]
    while stack:
        value, depth = stack.pop()
        if depth > MAX_SCHEMA_DEPTH:
            return f"its schema is more than {MAX_SCHEMA_DEPTH} levels deep"
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            fault = _find_keyword_fault(table)
            if fault:
                return fault
            stack += [(item, depth + 1) for item in table.values()]
        stack += [(item, depth + 1) for item in _as_list(value)]
    size = len(msgspec.json.encode(schema))
    return f"its schema has {size:,} bytes, more than {MAX_SCHEMA_BYTES:,}" if size > MAX_SCHEMA_BYTES else ""


def _find_keyword_fault(table: dict[str, Any]) -> str:
    for word in ("$ref", "$dynamicRef", "$recursiveRef"):
        target = table.get(word)
        if isinstance(target, str) and not target.startswith("#"):
            return f"its schema refers to {target[:80]!r}, outside of itself"
    patterns = table.get("patternProperties")
    texts = [table.get("pattern"), *(cast("dict[str, Any]", patterns) if isinstance(patterns, dict) else ())]
    for text in texts:
        if isinstance(text, str) and (len(text) > MAX_PATTERN or _NESTED_REPETITION.search(text)):
            return "its schema has a pattern that may take forever"
    return ""


_NESTED_REPETITION = re.compile(r"\([^()]*[+*][^()]*\)\s*(?:[+*]|\{\d+,\d*\})")
"""A repeated group that contains a repetition, such as ``(a+)+``."""


def make_spec(server: McpServer, tool: ListedTool, name: str) -> ToolSpec:
    """Return the spec of a tool; the effects that a server claims count only where code has passed the server."""
    effect: Effect = "once"
    if server.origin == "given":
        effect = "read" if tool.reads else "idempotent" if tool.idempotent else "once"
    description = tool.description.strip() or tool.title
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]}…"
    parameters: dict[str, Any] = {"type": "object", "properties": {}, **tool.parameters}
    return ToolSpec(
        name=name, description=description, parameters=parameters, output=tool.output, effect=effect, timeout=None,
        layer="mcp",
    )  # fmt: skip


def select_tools(server: McpServer, tools: Sequence[ListedTool]) -> tuple[list[ListedTool], list[str]]:
    """Return the tools of a server that are offered, by name, and why others are not."""
    notes: list[str] = []
    found: dict[str, ListedTool] = {}
    size = 0
    for tool in sorted(tools, key=lambda tool: tool.name):
        if (server.enabled_tools and tool.name not in server.enabled_tools) or tool.name in server.disabled_tools:
            continue
        if found.get(tool.name) == tool:
            continue  # the same once more, as with pages that repeat
        fault = tool.fault or ("it is listed twice" if tool.name in found else "")
        if not fault and len(found) == MAX_TOOLS:
            fault = f"the server has more than {MAX_TOOLS} tools"
        size += 0 if fault else len(tool.description[:MAX_DESCRIPTION]) + len(msgspec.json.encode(tool.parameters))
        if not fault and size > MAX_LISTED_BYTES:
            fault = f"the tools before it take more than {MAX_LISTED_BYTES >> 20} MB"
        if fault:
            notes.append(f"the tool {tool.name[:80]!r} of the MCP server {server.name!r} is left out: {fault}")
        else:
            found[tool.name] = tool
    unknown = {*server.enabled_tools, *server.disabled_tools} - {tool.name for tool in tools}
    notes += [
        f"the MCP server {server.name!r} has no tool {name!r}, which its definition names" for name in sorted(unknown)
    ]
    return list(found.values()), list(dict.fromkeys(notes))


# ------------------------------------------------------------------------------------------------------------- results


def read_result(call: CallId, raw: Mapping[str, Any]) -> ToolResult:
    """Return the result of a call as the server sent it."""
    parts = read_content(raw.get("content"))
    value: JSON = raw.get("structuredContent")
    if value is not None and not any(isinstance(part, Text) and part.text.strip() for part in parts):
        parts = (*parts, Text(text=msgspec.json.encode(value).decode()))
    parts = _limit_text(parts)
    failed = raw.get("isError") is True
    if failed and not parts:
        parts = (Text(text="the tool failed and said nothing about it"),)
    return ToolResult(call=call, content=parts, failed=failed, reason="error" if failed else "", value=value)


def read_content(blocks: Any) -> Content:
    """Return the content blocks of a result or prompt as parts."""
    return tuple(_read_block(cast("dict[str, Any]", block)) for block in _as_list(blocks) if isinstance(block, dict))


def _as_list(value: Any) -> list[Any]:
    items: list[Any] = [*value] if isinstance(value, list) else []
    return items


def read_resource(raw: Mapping[str, Any]) -> Content:
    """Return the contents of a resource as parts."""
    return _limit_text(read_content([{"type": "resource", "resource": item} for item in _as_list(raw.get("contents"))]))


def _read_block(block: dict[str, Any]) -> Part:
    kind = block.get("type")
    if kind == "text":
        return Text(text=str(block.get("text", "")))
    if kind in ("image", "audio"):
        return _read_media(str(block.get("data", "")), str(block.get("mimeType", "")), str(kind))
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        return _read_embedded(cast("dict[str, Any]", resource))
    if kind == "resource_link":
        about = " ".join(str(block[key]) for key in ("title", "description") if block.get(key))
        text = f"[resource {block.get('name', '')}: {block.get('uri', '')}{f' ({about})' if about else ''}]"
        return Text(text=text)
    return Text(text=msgspec.json.encode(block).decode())


def _read_embedded(resource: dict[str, Any]) -> Part:
    uri, media_type = str(resource.get("uri", "")), str(resource.get("mimeType", ""))
    if "blob" not in resource:
        return Text(text=f"[resource {uri}]\n{resource.get('text', '')}")
    return _read_media(str(resource["blob"]), media_type, media_type.partition("/")[0], uri)


def _read_media(data: str, media_type: str, kind: str, name: str = "") -> Part:
    """Return data as a part that every provider accepts: one that it refuses would make the session unusable."""
    label = f"{kind or 'file'} {name or media_type}".strip()[:200]
    try:
        head = base64.b64decode(data, validate=True)[:16] if len(data) * 3 // 4 <= MAX_MEDIA_BYTES else b""
    except (binascii.Error, ValueError):
        return Text(text=f"[{label}: left out, its data is not base64]")
    found = next((found for start, found in _SIGNATURES if re.match(start, head, re.DOTALL)), "")
    if len(data) * 3 // 4 > MAX_MEDIA_BYTES or (found.startswith("image/") and len(data) > MAX_IMAGE_BASE64):
        most = MAX_IMAGE_BASE64 if found else MAX_MEDIA_BYTES
        return Text(text=f"[{label}: left out, it is larger than {most >> 20} MB]")
    if found.startswith("image/"):
        return Image(media_type=found, data=data)
    if found.startswith("audio/"):
        return Audio(media_type=found, data=data)
    if found:
        return Document(media_type=found, data=data, name=name)
    return _read_text_data(data, media_type, label)


def _read_text_data(data: str, media_type: str, label: str) -> Part:
    """Return data without a known signature as text, if its type says that it is one."""
    if re.fullmatch(r"text/[^;]*|application/(?:[\w.+-]*\+)?(?:json|xml|yaml|toml|javascript)", media_type):
        return Text(text=f"[{label}]\n{base64.b64decode(data).decode('utf-8', 'replace')}")
    return Text(text=f"[{label}: left out, models read PNG, JPEG, GIF, WebP, WAV, MP3 and PDF]")


_SIGNATURES = (
    (rb"\x89PNG\r\n\x1a\n", "image/png"), (rb"\xff\xd8\xff", "image/jpeg"), (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF....WEBP", "image/webp"), (rb"RIFF....WAVE", "audio/wav"), (rb"ID3|\xff[\xe2-\xfb]", "audio/mpeg"),
    (rb"%PDF-", "application/pdf"),
)  # fmt: skip
"""What the bytes of media begin with, and their types."""


def _limit_text(parts: Content) -> Content:
    """Cut the texts of a result that are too long for a model to read."""
    left = MAX_TEXT
    kept: list[Part] = []
    for part in parts:
        if not isinstance(part, Text):
            kept.append(part)
            continue
        if len(part.text) > left:
            part = Text(text=f"{part.text[:left]}\n[cut: {len(part.text) - left:,} more characters]")
        left = max(left - len(part.text), 0)
        kept.append(part)
    return tuple(kept)


# ----------------------------------------------------------------------------------------------------------- questions


async def ask_person(context: ToolContext, server: str, asked: Elicitation) -> Answers | None:
    """Ask the person what a server wants to know, field by field; ``None`` when it is not answered."""
    heading = f"The MCP server {server!r} asks: {asked.message}"
    if asked.url:
        text = f"{heading}\nIt wants you to open {asked.url}"
        return {} if await context.ask(text, options=("done", "decline")) == "done" else None
    fields = asked.schema.get("properties")
    required = cast("list[str]", asked.schema.get("required") or [])
    answers: Answers = {}
    if not isinstance(fields, dict) or not fields:
        return {} if await context.ask(heading, options=("accept", "decline")) == "accept" else None
    for name, field in cast("dict[str, dict[str, Any]]", fields).items():
        text, options = _describe_field(name, field, optional=name not in required)
        answer = await context.ask(f"{heading}\n{text}", options=options)
        if answer is None or answer == "decline":
            return None
        if answer == "" and "default" in field:
            answers[name] = field["default"]
        elif answer != "" or name in required:
            answers[name] = _read_answer(answer, field)
    return answers


def _describe_field(name: str, field: dict[str, Any], *, optional: bool) -> tuple[str, Sequence[str]]:
    title, about = str(field.get("title") or name), str(field.get("description") or "")
    options = [str(choice) for choice in _choices_of(field)]
    if field.get("type") == "boolean":
        options = ["true", "false"]
    notes = [str(field.get("type", "string")), *(["may be empty"] if optional else [])]
    if "default" in field:
        notes.append(f"default: {field['default']}")
    return f"{title}{f': {about}' if about else ''} ({', '.join(notes)}; or answer: decline)", options


def _choices_of(field: dict[str, Any]) -> list[Any]:
    inner = cast("dict[str, Any]", field.get("items") or field)
    if "enum" in inner:
        return _as_list(inner["enum"])
    titled = cast("list[dict[str, Any]]", inner.get("oneOf") or inner.get("anyOf") or [])
    return [choice["const"] for choice in titled if "const" in choice]


def _read_answer(answer: JSON, field: dict[str, Any]) -> Any:
    """Return an answer in the type of its field; what does not fit is passed on, for the server to refuse."""
    kind = field.get("type")
    if kind == "array":
        return _as_list(answer) or [word.strip() for word in str(answer).split(",") if word.strip()]
    if not isinstance(answer, str):
        return str(answer) if kind == "string" else answer
    text = answer.strip()
    if kind == "boolean" and text.lower() in ("true", "yes", "y", "false", "no", "n"):
        return text.lower() in ("true", "yes", "y")
    try:
        return int(text) if kind == "integer" else float(text) if kind == "number" else answer
    except ValueError:
        return answer


# --------------------------------------------------------------------------------------------------------------- tools


class McpTool:
    """A tool of a server. It is the same object as long as the server lists it unchanged."""

    def __init__(
        self, caller: ToolCaller, listed: ListedTool, name: str, reader: Callable[..., ReadsArguments]
    ) -> None:
        self._caller, self.listed = caller, listed
        self.spec = make_spec(caller.server, listed, name)
        self._make_reader, self._reader = reader, cast("ReadsArguments | None", None)
        self.may_ask: Callable[[ToolContext], bool] = lambda _: True
        self.before_call: Callable[[], Awaitable[None]] | None = None
        """Awaited before a call, which the rules or a person have allowed."""

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        if self._reader is None:
            self._reader = self._make_reader(self.spec.parameters)
        return self._reader.read(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        if self.before_call is not None:
            await self.before_call()
        running = _RunningCall(self._caller.server, context, may_ask=self.may_ask(context))
        try:
            async with asyncio.timeout(running.limit) as running.bound:
                raw = await self._caller.call(
                    self.listed, arguments, CallHandlers(running.report, running.ask, context.session)
                )
        except TimeoutError:
            after = f"{self.spec.name}: no result within {running.limit:g} s"
            return _failure(context, "timeout", f"{after}; verify whether it happened before you repeat it")
        except McpError as error:
            return _failure(context, "error", f"{self.spec.name}: {error}")
        finally:
            await running.close()
        return read_result(context.call, raw)


def _failure(context: ToolContext, reason: FailureReason, text: str) -> ToolResult:
    return ToolResult(call=context.call, content=(Text(text=text),), failed=True, reason=reason)


class _RunningCall:
    """The time limit of a call, which progress extends and questions suspend."""

    def __init__(self, server: McpServer, context: ToolContext, *, may_ask: bool) -> None:
        self._server, self._context, self._may_ask = server, context, may_ask
        self.limit = server.tool_timeout or TOOL_TIMEOUT
        self.bound: asyncio.Timeout | None = None
        self._loop = asyncio.get_running_loop()
        self._last_end = self._loop.time() + self.limit * MAX_EXTENSIONS
        self._task = asyncio.current_task()
        self._questions: set[asyncio.Task[Answers | None]] = set()
        self._open = True

    def report(self, progress: float, total: float | None, message: str) -> None:
        if self._questions or not self._open:
            return
        self._reschedule(min(self._loop.time() + self.limit, self._last_end))
        done = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        self._context.emit(f"[{done}] {message}\n" if message else f"[{done}]\n")

    async def ask(self, asked: Elicitation) -> Answers | None:
        """Ask the person in a task of this call: the library's own tasks must not be cancelled one by one."""
        if not self._may_ask:
            return None
        self._reschedule(None)
        question = asyncio.create_task(ask_person(self._context, self._server.name, asked))
        self._questions.add(question)
        await asyncio.wait([question])
        self._questions.discard(question)
        if not question.cancelled():
            self._reschedule(self._loop.time() + self.limit)
            return question.result()
        if self._open and self._task is not None:
            self._task.cancel()  # the turn is suspended: this call runs again when there is an answer
        return None

    async def close(self) -> None:
        """Withdraw open questions."""
        self._open = False
        for question in self._questions:
            question.cancel()
        if self._questions:
            await asyncio.wait(self._questions)

    def _reschedule(self, when: float | None) -> None:
        if self.bound is not None and not self.bound.expired() and self._open:
            self.bound.reschedule(when)
