"""Write docs/reference/python.md and docs/reference/events.md from the docstrings: ``python -m scripts.reference``."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import vaka
from vaka.core.types import control, monitor, progress
from vaka.core.types.event import BODY_TYPES, Body

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
MODULES = (progress, control, monitor)
CHANNELS = {
    "progress": "what a user watches",
    "control": "what someone must decide, or has decided",
    "monitor": "what an operator watches",
}


def first_paragraph_of(text: str | None) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())


def signature_of(value: Any) -> str:
    """Return how something is called."""
    try:
        shown = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in shown.parameters.values()]
    return str(shown.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def list_members(value: type) -> Iterator[str]:
    """Yield a line for each public method and property."""
    for name, member in sorted(vars(value).items()):
        target = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(target):
            continue
        shown = (
            "" if isinstance(member, property) else signature_of(target).replace("(self, ", "(").replace("(self)", "()")
        )
        yield f"- `{name}{shown}`: {first_paragraph_of(target.__doc__)}"


def python_page() -> str:
    """Return the page of the public names."""
    lines = ["# The Python names", "", "Made from the docstrings by `python -m scripts.reference`.", ""]
    for name in vaka.__all__:
        value = getattr(vaka, name)
        if name.startswith("__"):
            continue
        lines += [f"## `vaka.{name}`", "", first_paragraph_of(value.__doc__), ""]
        if inspect.isclass(value):
            if issubclass(value, msgspec.Struct):
                fields = ", ".join(f"`{field}`" for field in value.__struct_fields__)
                lines += [f"Fields: {fields}.", ""] if fields else []
            listed = list(list_members(value))
            lines += [*listed, ""] if listed else []
        else:
            lines += [f"`{name}{signature_of(value)}`", ""]
    return "\n".join(lines).rstrip() + "\n"


def events_page() -> str:
    """Return the page of the events."""
    lines = ["# The events", "", "Made from the docstrings by `python -m scripts.reference`.", ""]
    lines += [
        "Every event travels in the same envelope: `v`, `seq`, `id`, `ts`, `session`, `turn`, `step`, `path`,",
        "`channel`, `type`, `data`, `prev`. Live events (marked ·) are shown and not stored:",
        "they have no `seq`, `id` or `prev`. `schema/events.schema.json` has it as JSON Schema.",
        "",
    ]
    known = sorted(
        (body for body in BODY_TYPES.values() if body.__module__ in {m.__name__ for m in MODULES}), key=_order_of
    )
    for channel, meaning in CHANNELS.items():
        lines += [f"## {channel}: {meaning}", "", "| type | data | |", "|---|---|---|"]
        lines += [event_row(body) for body in known if body.channel == channel]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def event_row(body: type[Body]) -> str:
    """Return the line of one event."""
    fields = ", ".join(f"`{field}`" for field in body.__struct_fields__)
    return f"| `{body.type}`{'' if body.durable else ' ·'} | {fields} | {first_paragraph_of(body.__doc__)} |"


def _order_of(body: type[Body]) -> tuple[str, int]:
    return body.channel, list(BODY_TYPES).index(body.type)


PAGES = {"python.md": python_page, "events.md": events_page}


def main() -> int:
    """Write the pages."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
