"""One measured number with its target, and the table of all of them."""

from collections.abc import Sequence
from typing import Literal

import msgspec


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One measurement. ``raw`` is the same work without vaka, measured at the same time."""

    name: str
    value: float
    unit: str
    store: str = ""
    durability: str = ""
    target: float | None = None
    better: Literal["low", "high", "equal"] = "low"
    low: float | None = None
    high: float | None = None
    """The extremes of the repeats, when there were several."""
    raw: float | None = None
    ratio: float | None = None
    """The cost relative to ``raw``; above 1 is more expensive, also for rates."""
    note: str = ""
    skipped: bool = False

    @property
    def verdict(self) -> str:
        """Return ``ok`` or ``MISS``, nothing where there is no target."""
        if self.target is None or self.skipped:
            return ""
        good = {"low": self.value <= self.target, "high": self.value >= self.target, "equal": self.value == self.target}
        return "ok" if good[self.better] else "MISS"


def failed_row(name: str, reason: str) -> Row:
    """Return a row for a part that could not be measured."""
    return Row(name=name, value=0, unit="", note=f"failed: {reason}", skipped=True)


def format_number(value: float | None) -> str:
    """Return a number with three significant digits or as an integer."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


_SIGNS = {"low": "≤ ", "high": "≥ ", "equal": "= "}
_HEADINGS = ("what", "store", "durability", "value", "unit", "repeats", "target", "", "raw", "ratio", "")


def _cells_of(row: Row) -> tuple[str, ...]:
    repeats = f"{format_number(row.low)}–{format_number(row.high)}" if row.low is not None else ""
    target = f"{_SIGNS[row.better]}{format_number(row.target)}" if row.target is not None else ""
    ratio = f"{row.ratio:.2f}×" if row.ratio is not None else ""
    value = "–" if row.skipped else format_number(row.value)
    return (
        row.name,
        row.store,
        row.durability,
        value,
        row.unit,
        repeats,
        target,
        row.verdict,
        format_number(row.raw),
        ratio,
        row.note,
    )


def format_grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return columns under a head, each as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    rows = [head, ["─" * width for width in widths], *lines]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in rows
    )


def format_table(rows: Sequence[Row]) -> str:
    return format_grid(_HEADINGS, [_cells_of(row) for row in rows])


def format_markdown(rows: Sequence[Row]) -> str:
    lines = [_HEADINGS, ["---"] * len(_HEADINGS), *[_cells_of(row) for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
