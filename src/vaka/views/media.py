"""Fields and media of other protocols as parts of our content."""

import binascii
from collections.abc import Collection
from typing import Any, TypeGuard, cast

from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Audio, Document, Image


def make_media(media_type: str, name: str = "", **source: Any) -> Image | Audio | Document:
    """Return the part for a media type; ``source`` is ``data`` or ``url``."""
    match media_type.partition("/")[0].lower():
        case "image":
            return Image(media_type=media_type, **source)
        case "audio":
            return Audio(media_type=media_type, **source)
        case _:
            return Document(media_type=media_type, name=name, **source)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON value if it is an object, otherwise an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def without_nulls(value: Any, inside: Collection[str]) -> Any:
    """Return a JSON value without the fields that are null: clients write null for a field that they leave out.

    ``inside`` are the names of the fields whose values are read the same way. All others are data and stay as they are.
    """
    if is_list(value):
        return [without_nulls(item, inside) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: without_nulls(item, inside) if name in inside else item
        for name, item in cast("dict[str, Any]", value).items()
        if item is not None
    }


def read_field(fields: Any, name: str, place: str) -> str:
    """Return the string ``fields[name]``. Raises ``InvalidInput``, which names the ``place`` of the fields."""
    value = as_object(fields).get(name)
    if not isinstance(value, str):
        raise InvalidInput(f"{place}: {name!r} must be a string")
    return value


def read_base64(fields: Any, name: str, place: str) -> str:
    """Return the string ``fields[name]``, which is base64. Raises ``InvalidInput``."""
    text = read_field(fields, name, place)
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise InvalidInput(f"{place}: {name!r} must be base64: {error}") from None
    if not text:
        raise InvalidInput(f"{place}: {name!r} must not be empty")
    return text
