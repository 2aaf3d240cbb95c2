"""What messages are made of."""

from typing import TypeAlias

import msgspec

from vaka.core.types.ids import JSON, CallId, Digest


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """A piece of a message."""


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where words come from."""

    url: str = ""
    title: str = ""
    text: str = ""
    """The words of the source."""
    opaque: JSON = None
    """The provider's own record under the name of its wire, kept word for word to be sent back."""


class Text(_Part, frozen=True, kw_only=True, gc=False, tag="text"):
    """Words."""

    text: str
    citations: tuple[Citation, ...] = ()


class _Media(_Part, frozen=True, kw_only=True, gc=False):
    """Bytes of some kind: exactly one of ``data`` (base64), ``url`` or ``blob`` is set."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    blob: Digest | None = None


class Image(_Media, frozen=True, kw_only=True, gc=False, tag="image"):
    """A picture."""


class Audio(_Media, frozen=True, kw_only=True, gc=False, tag="audio"):
    """Sound."""


class Document(_Media, frozen=True, kw_only=True, gc=False, tag="document"):
    """A file, such as a PDF."""

    name: str = ""


class Stored(_Part, frozen=True, kw_only=True, gc=False, tag="stored"):
    """A text too large for an event: its bytes are the blob ``blob``, ``preview`` is how it begins."""

    blob: Digest
    size: int
    preview: str = ""
    media_type: str = "text/plain"
    cut: bool = False
    """True when a model is told the preview alone, which says how to read the rest."""


class Reasoning(_Part, frozen=True, kw_only=True, gc=False, tag="reasoning"):
    """What a model thought aloud.

    ``opaque`` has the provider's own block under the name of its wire, such as ``{"anthropic": {…}, "from": "…"}``,
    kept word for word to be sent back to where it came ``from``; other providers never see it.
    """

    text: str = ""
    signature: str = ""
    opaque: JSON = None
    blob: Digest | None = None
    """Where all of it is, when it is too large for an event."""


class CallRef(_Part, frozen=True, kw_only=True, gc=False, tag="call"):
    """The place of a tool call between the other parts of an answer; the call itself is in ``tool.called``."""

    id: CallId


Part: TypeAlias = Text | Image | Audio | Document | Stored | Reasoning | CallRef
Content: TypeAlias = tuple[Part, ...]


def clean(text: str) -> str:
    """Return ``text`` with what UTF-8 cannot carry (lone surrogates) replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def text_of(content: Content) -> str:
    """Return the words of ``content``, without reasoning."""
    return "".join(
        part.text if isinstance(part, Text) else part.preview for part in content if isinstance(part, Text | Stored)
    )


def as_content(value: "str | Part | Content | list[Part]") -> Content:
    """Return ``value`` as content: a string becomes one text."""
    if isinstance(value, str):
        return (Text(text=clean(value)),)
    parts = (value,) if isinstance(value, msgspec.Struct) else tuple(value)
    return tuple(
        msgspec.structs.replace(part, text=clean(part.text)) if isinstance(part, Text) else part for part in parts
    )
