"""Tools and calls in words, for models that know no others. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec

from vaka.core.types.content import Audio, CallRef, Content, Document, Image, Part, Text
from vaka.core.types.message import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.models.history import arguments, words

DEEP = 6
"""Levels of nested parameters that are described."""

_FORMAT = """\
You can call tools. To call one, write a JSON object in a fenced block of its own:

{example}

Write one such block for each call. "parameters" is an object and is always there, {{}} when there is nothing to say. \
End your answer after the calls: their results come in the next message, so never make one up. \
When you need no tool, answer without such a block."""


def render_tools(
    tools: Iterable[ToolSpec], *, include_parameters: bool = True, include_examples: bool = True,
    markdown: bool = True, group_by_category: bool = False,
) -> str:  # fmt: skip
    """Return what there is to know about ``tools``, as a text for a model.

    ``markdown`` gives headings and code marks, else plain lines; ``group_by_category`` puts tools of one origin
    together under its name.
    """
    tools = list(tools)
    groups: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        groups.setdefault(category(tool) if group_by_category else "", []).append(tool)
    blocks: list[str] = []
    for name in sorted(groups):
        if name:
            blocks.append(f"## {name}" if markdown else f"{name}:")
        for tool in groups[name]:
            lines = [f"### {tool.name}" if markdown else f"Tool {tool.name}", *filter(None, [tool.description.strip()])]
            if include_parameters:
                lines += _parameters(tool.parameters, _code if markdown else str)
            if include_examples:
                lines += ["Example:", block(tool.name, _example(tool.parameters, tool.parameters))]
            blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def instructions(tools: Sequence[ToolSpec], described: str, *, must: str = "", one: bool = False) -> str:
    """Return how to call tools, which there are, and what must be called (``must``: any tool, or the name of one)."""
    said = [_FORMAT.format(example=block("NAME", {"PARAMETER": "VALUE"}))]
    if one:
        said.append("Call one tool at a time.")
    if must:
        which = f"the tool {tools[0].name}" if len(tools) == 1 else "at least one tool"
        said.append(f"Your next answer must call {which}.")
    return "\n\n".join([*said, "The tools:", described])


def block(name: str, parameters: Any) -> str:
    """Return a call in the form that a model is told to write."""
    return f"```json\n{msgspec.json.encode({'tool': name, 'parameters': parameters}).decode()}\n```"


def category(tool: ToolSpec) -> str:
    """Return where a tool belongs: its server, if its name says so (``mcp__SERVER__NAME``), else its layer."""
    parts = tool.name.split("__")
    return parts[1] if len(parts) > 2 and parts[0] == "mcp" else tool.layer


def in_words(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation whose calls and results are words; those of neighbours that one side says become one.

    What was shown stays apart from what was said later: a model that cannot see it reads a note, and refuses to answer
    only where it is shown in the very message that is to be answered.
    """
    names = {call.id: call.name for message in messages if isinstance(message, AssistantMessage)
             for call in message.calls}  # fmt: skip
    said: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            said.append(_answered(message))
            continue
        for content in _results(message, names) if isinstance(message, ToolMessage) else (message.content,):
            before = said[-1] if said else None
            if isinstance(before, UserMessage) and not _media(before.content):
                said[-1] = UserMessage(content=(*_apart(before.content), *content))
            else:
                said.append(UserMessage(content=content))
    return tuple(said)


def _media(content: Content) -> Content:
    return tuple(part for part in content if isinstance(part, Image | Audio | Document))


def _answered(message: AssistantMessage) -> AssistantMessage:
    if not message.calls:
        return message
    calls = {call.id: call for call in message.calls}
    content: list[Part] = []
    for part in message.content:
        if not isinstance(part, CallRef):
            content.append(part)
        elif part.id in calls:
            content.append(_written(calls.pop(part.id), first=not content))
    content += [_written(call, first=not (content or at)) for at, call in enumerate(calls.values())]
    return msgspec.structs.replace(message, content=tuple(content), calls=())


def _written(call: ToolCall, *, first: bool) -> Text:
    return Text(text=("" if first else "\n\n") + block(call.name, arguments(call)))


def _results(message: ToolMessage, names: dict[Any, str]) -> list[Content]:
    texts: list[str] = []
    media: list[Part] = []
    for result in message.results:
        shown = _media(result.content)
        said = words(result.content) or ("see above" if shown else "nothing")
        ended = "failed" if result.failed else "returned"
        texts.append(f"The tool {names.get(result.call, 'that was called')} {ended}:\n{said}")
        media += shown
    spoken: Content = (Text(text="\n\n".join(texts)),)
    return [tuple(media), spoken] if media else [spoken]


def _apart(content: Content) -> Content:
    """Return content that more follows: a part of nothing but blanks is something that some providers refuse."""
    if not content:
        return ()
    *others, last = content
    return (
        *others,
        msgspec.structs.replace(last, text=f"{last.text}\n\n") if isinstance(last, Text) and last.text else last,
    )


def _code(text: str) -> str:
    return f"`{text}`"


def _parameters(schema: dict[str, Any], mark: Callable[[str], str]) -> list[str]:
    lines = list(_members(schema, schema, mark, 0))
    return ["Parameters:", *lines] if lines else ["Parameters: none"]


def _members(schema: dict[str, Any], root: dict[str, Any], mark: Callable[[str], str], depth: int) -> Iterator[str]:
    required = schema.get("required", ())
    for name, given in _object(schema.get("properties")).items():
        member = _resolved(given, root)
        facts = [_kind(member, root)]
        facts.append("required" if name in required else "optional")
        if "default" in member:
            facts.append(f"default {_json(member['default'])}")
        told = str(member.get("description", "")).strip()
        yield f"{'  ' * depth}- {mark(name)} ({', '.join(facts)})" + (f": {told}" if told else "")
        inner = member if "properties" in member else _resolved(member.get("items"), root)
        if depth < DEEP:
            yield from _members(inner, root, mark, depth + 1)


def _kind(schema: dict[str, Any], root: dict[str, Any]) -> str:
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(map(_json, schema.get("enum", [schema.get("const")])))
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_kind(_resolved(option, root), root) for option in options))
    kinds = _kinds(schema, "any value")
    if kinds == ["array"] and _object(schema.get("items")):
        return f"array of {_kind(_resolved(schema['items'], root), root)}"
    return " or ".join(kinds)


def _example(schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> Any:
    """Return a small value that fits a schema, or nearly."""
    for given in (schema.get("examples"), [schema["default"]] if "default" in schema else None, schema.get("enum")):
        if given:
            return given[0]
    if "const" in schema:
        return schema["const"]
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _example(_resolved(options[0], root), root, depth + 1) if depth < DEEP else None
    kind = _kinds(schema, "object" if "properties" in schema else "string")[0]
    if kind == "array":
        return [_example(_resolved(schema.get("items"), root), root, depth + 1)] if depth < DEEP else []
    if kind == "object":
        members = _object(schema.get("properties"))
        wanted = [name for name in schema.get("required", ()) if name in members] if depth < DEEP else []
        return {name: _example(_resolved(members[name], root), root, depth + 1) for name in wanted}
    return {"integer": 1, "number": 1.5, "boolean": True, "null": None}.get(kind, "text")


def _kinds(schema: dict[str, Any], otherwise: str) -> list[str]:
    """Return the types a schema names, at least one."""
    given: Any = schema.get("type") or otherwise
    several = cast("list[Any]", given)
    return [str(kind) for kind in several] if isinstance(given, list) else [str(given)]


def _resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    for _ in range(DEEP):
        ref = _object(schema).get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/$defs/"):
            break
        schema = _object(root.get("$defs")).get(ref.removeprefix("#/$defs/"))
    return _object(schema)


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
