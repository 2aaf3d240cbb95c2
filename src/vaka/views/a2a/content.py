"""Parts and messages of A2A and our content, in both directions."""

from typing import Any, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import SessionId, TurnId, parse_session_id
from vaka.core.types.message import CallRef, Content, Document, Part, Reasoning, Stored, Text, as_content
from vaka.views.media import as_object, is_list, make_media, read_base64, read_field

JsonObject: TypeAlias = dict[str, Any]
_SOURCES = ("text", "raw", "url", "data")


class A2aInput(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the user."""

    key: str
    """The id of the message: the same message again is the same input."""
    content: Content
    session: SessionId | None = None
    """The context; ``None`` for a new session."""
    turn: TurnId | None = None
    """The task that the message answers; ``None`` for a new turn."""


def parts_of(content: Content) -> list[JsonObject]:
    """Return content as parts of a message or artifact; reasoning and calls are left out."""
    return [shape for part in content if (shape := _part_of(part))]


def _part_of(part: Part) -> JsonObject | None:
    match part:
        case Text(text=text) | Stored(preview=text):
            return {"text": text}
        case Reasoning() | CallRef():
            return None
        case _:
            source = {"raw": part.data} if part.data else {"url": part.url}
    name = part.name if isinstance(part, Document) else ""
    if not (part.data or part.url):  # the bytes are a blob of the store
        return {"text": f"[{name or part.media_type or 'file'}]"}
    named = {"mediaType": part.media_type, "filename": name}
    return source | {field: value for field, value in named.items() if value}


def read_message(message: Any) -> A2aInput:
    """Return a message of ``SendMessage`` as an input. Raises ``InvalidInput``. Data becomes a text of JSON."""
    fields = as_object(message)
    if (role := read_field(fields, "role", "message")) != "ROLE_USER":
        raise InvalidInput(f"message: the role must be 'ROLE_USER', not {role!r}")
    if not (key := read_field(fields, "messageId", "message")):
        raise InvalidInput("message: 'messageId' must not be empty")
    context, task = (read_field({name: "", **fields}, name, "message") for name in ("contextId", "taskId"))
    return A2aInput(
        key=key,
        content=as_content([_read_part(part, place) for place, part in numbered_parts(fields)]),
        session=parse_session_id(context) if context else None,
        turn=TurnId(task) if task else None,
    )


def numbered_parts(message: JsonObject) -> list[tuple[str, Any]]:
    """Return the parts of a message, each with its place. Raises ``InvalidInput`` if there is none."""
    parts = message.get("parts")
    if not is_list(parts) or not parts:
        raise InvalidInput("message: 'parts' must be a list of one or more parts")
    return [(f"message.parts[{at}]", part) for at, part in enumerate(parts)]


def _read_part(part: Any, place: str) -> Part:
    fields = as_object(part)
    sources = [name for name in _SOURCES if name in fields]
    if len(sources) != 1:
        raise InvalidInput(f"{place}: exactly one of {', '.join(map(repr, _SOURCES))} must be set")
    media_type, name = (read_field({field: "", **fields}, field, place) for field in ("mediaType", "filename"))
    match sources[0]:
        case "text":
            return Text(text=read_field(fields, "text", place))
        case "data":
            return Text(text=msgspec.json.encode(fields["data"]).decode())
        case "raw":
            return make_media(media_type, name, data=read_base64(fields, "raw", place))
        case _:
            return make_media(media_type, name, url=read_field(fields, "url", place))
