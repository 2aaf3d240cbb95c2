"""The tools of MCP servers as tools of agents: schemas, results and the questions that servers ask."""

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from vaka.core.ports.agent import ToolArgumentParser
from vaka.core.ports.model import Model
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import McpError
from vaka.core.types.ids import JSON, CallId, digest_of
from vaka.core.types.message import (
    Audio,
    Content,
    Document,
    FailureReason,
    Image,
    Part,
    Text,
    ToolResult,
)
from vaka.core.types.tool import Effect, InvalidArguments, ParsedArguments, ToolSpec
from vaka.mcp.definition import McpServer
from vaka.mcp.running_call import CallHandlers, RunningToolCall

MAX_DESCRIPTION = 4_000
MAX_SCHEMA_BYTES = 256 * 1024
MAX_SCHEMA_DEPTH = 64
MAX_PATTERN = 1_000
MAX_TOOLS = 1_000
"""The most tools of one server that are offered."""
MAX_NOTES = 20
"""The most notes on one server."""
MAX_TEXT = 200_000
"""Characters of the texts of one result that the model reads."""
MAX_MEDIA_BYTES = 10 << 20
MAX_IMAGE_BASE64 = 5 << 20
"""The longest picture, in base64, that every provider accepts."""
MAX_LISTED_BYTES = 1 << 20
"""Bytes of the descriptions and schemas of one server that are offered: more would fill every prompt."""


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


class ToolCaller(Protocol):
    """A connection, as far as a tool needs it."""

    server: McpServer

    async def call(self, tool: ListedTool, arguments: dict[str, Any], handlers: CallHandlers) -> dict[str, Any]: ...


# ------------------------------------------------------------------------------------------------------------- schemas


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
        name=name,
        description=description,
        parameters=parameters,
        output=tool.output,
        effect=effect,
        timeout=None,
        layer="mcp",
    )


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
    notes[:0] = [
        f"the MCP server {server.name!r} has no tool {name!r}, which its definition names" for name in sorted(unknown)
    ]
    notes = list(dict.fromkeys(notes))
    more = len(notes) - MAX_NOTES
    if more > 0:
        notes[MAX_NOTES:] = [f"{more} more tools of the MCP server {server.name!r} are left out"]
    return list(found.values()), notes


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
    """Return data as a part that every provider accepts: a refused part would make the session unusable."""
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
    (rb"\x89PNG\r\n\x1a\n", "image/png"),
    (rb"\xff\xd8\xff", "image/jpeg"),
    (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF....WEBP", "image/webp"),
    (rb"RIFF....WAVE", "audio/wav"),
    (rb"ID3|\xff[\xe2-\xfb]", "audio/mpeg"),
    (rb"%PDF-", "application/pdf"),
)
"""The first bytes of media, and their types."""


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


# --------------------------------------------------------------------------------------------------------------- tools


class McpTool:
    """A tool of a server. It is the same object as long as the server lists it unchanged."""

    def __init__(
        self,
        caller: ToolCaller,
        listed: ListedTool,
        name: str,
        make_parser: Callable[[dict[str, Any]], ToolArgumentParser],
    ) -> None:
        self.caller, self.listed = caller, listed
        self.spec = make_spec(caller.server, listed, name)
        self._make_parser = make_parser
        self._parser: ToolArgumentParser | None = None
        self.may_ask: Callable[[ToolContext], bool] = lambda _: True
        self.find_model: Callable[[ToolContext], Model] | None = None
        """Returns the model that a server may ask, if its definition allows that."""
        self.before_call: Callable[[], Awaitable[None]] | None = None
        """Awaited before a call, which the rules or a person have allowed."""

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        if self._parser is None:
            self._parser = self._make_parser(self.spec.parameters)
        return self._parser(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        if self.before_call is not None:
            await self.before_call()
        running = RunningToolCall(self.caller.server, context, may_ask=self.may_ask(context))
        running.model = self.find_model(context) if self.find_model and self.caller.server.sampling else None
        try:
            async with asyncio.timeout(running.limit) as running.bound:
                raw = await self.caller.call(self.listed, arguments, running.handlers)
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
