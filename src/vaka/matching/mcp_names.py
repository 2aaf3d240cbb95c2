"""The names of the tools of MCP servers, ``mcp__SERVER__TOOL``: as providers accept them, and as rules write them."""

import hashlib
import re
from collections.abc import Iterable

MAX_NAME = 64
"""The longest name of a tool that all providers accept."""
MAX_PART = 40
"""The most characters of a server's name in the names of its tools."""
_DIGEST_LENGTH = 8


def tool_part(name: str) -> str:
    """Return a server's name as it stands in names of tools: letters, digits, ``-`` and single ``_``.

    It has no ``__`` and no ``_`` at its ends, so that ``mcp__SERVER__TOOL`` can be taken apart in one way only. A long
    one is cut and ends with a digest, so that rules on a server match tools whose names are cut as well.
    """
    plain = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_")
    if plain and len(plain) <= MAX_PART:
        return plain
    return f"{plain[: MAX_PART - _DIGEST_LENGTH - 1].strip('_') or 'server'}_{_digest(name)}"


def tool_name(server: str, tool: str, taken: Iterable[str] = ()) -> str:
    """Return ``mcp__SERVER__TOOL`` in the characters of providers; a cut or repeated name ends with a digest."""
    name = _full_name(tool_part(server), tool)
    if len(name) <= MAX_NAME and name not in taken:
        return name
    digest = _digest(f"{server}\0{tool}")
    return f"{name[: MAX_NAME - _DIGEST_LENGTH - 1]}_{digest}"


def cut_name_of(name: str, *, exact: bool) -> str:
    """Return the name of the tools that a rule means by a name too long for a tool, ``""`` for a shorter name.

    The digests are made from the names as written. Without ``exact`` a ``*`` stands for the digests, so that the name
    also means a tool or server whose own name has other characters there.
    """
    full = name if name.startswith("mcp__") else f"mcp__{name}"
    server, _, tool = full[5:].partition("__")
    if "*" in name or "__" not in name or (len(server) <= MAX_PART and len(full) <= MAX_NAME):
        return ""
    part = tool_part(server)
    cut = tool_name(server, tool) if tool else f"mcp__{part}"
    if exact:
        return cut
    if tool and len(_full_name(part, tool)) > MAX_NAME:
        cut = f"{cut[:-_DIGEST_LENGTH]}*"
    return cut.replace(part, f"{part[:-_DIGEST_LENGTH]}*", 1) if len(server) > MAX_PART else cut


def _full_name(part: str, tool: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool) or "_"
    return f"mcp__{part}__{plain}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGEST_LENGTH]
