"""Draw the CPU of a turn against the turns of its session: ``python -m bench.plot [RESULT.json [PICTURE.svg]]``.

The result is that of ``python -m scripts.bench_peers growth``. Both axes are logarithmic. Standard library only.
"""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "growth.json"
PICTURE = ROOT / "bench" / "growth.svg"

WIDTH, HEIGHT = 980, 520
LEFT = 64
RIGHT = 300
TOP = 56
BOTTOM = 56
"""The margins of the plot area; the labels of the longest lines are in the right one."""
LABEL_HEIGHT = 18
OURS = "vaka"

STYLE = """
text { font: 13px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
.title { font-size: 15px; font-weight: 600; }
.grid { stroke-width: 1; }
.label { paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; }
.line { fill: none; stroke-width: 1.75; }
.leader { stroke-width: 1; opacity: 0.6; }
.ours { font-weight: 600; }
.line.ours { stroke-width: 3; }
"""


class Theme(NamedTuple):
    """The colours of a picture; those of the lines are in the order of the lines."""

    paper: str
    ink: str
    faint: str
    grid: str
    lines: tuple[str, ...]

    def rules(self) -> str:
        """Return the colours as CSS."""
        lines = [
            f".s{number} {{ stroke: {colour}; }} .f{number} {{ fill: {colour}; }}"
            for number, colour in enumerate(self.lines)
        ]
        return "\n".join(
            [
                f".paper {{ fill: {self.paper}; }} .label {{ stroke: {self.paper}; }} .grid {{ stroke: {self.grid}; }}",
                f".title {{ fill: {self.ink}; }} .faint {{ fill: {self.faint}; }}",
                *lines,
            ]
        )


LIGHT = Theme(
    "#ffffff",
    "#1f2328",
    "#59636e",
    "#d1d9e0",
    ("#0b5fc4", "#0a7d8c", "#5b4bd6", "#b4540a", "#a3195b", "#2c7a1f", "#6b5200"),
)
DARK = Theme(
    "#0d1117",
    "#e6edf3",
    "#9198a1",
    "#30363d",
    ("#6cb2ff", "#4fd1d9", "#a99bff", "#ffa657", "#ff8fc0", "#7ee069", "#e3c14f"),
)


class Line(NamedTuple):
    """The costs of one runtime: turns and CPU milliseconds."""

    name: str
    points: tuple[tuple[int, float], ...]

    @property
    def is_ours(self) -> bool:
        return self.name.startswith(OURS)


class Axis(NamedTuple):
    """A logarithmic axis: the values at its ends, and their places in the picture."""

    low: float
    high: float
    start: float
    end: float

    def place_of(self, value: float) -> float:
        """Return the place of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def decades(self) -> Iterator[float]:
        """Yield the powers of ten on the axis."""
        exponents = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        yield from (10.0**exponent for exponent in exponents)


def read_lines(result: Path) -> list[Line]:
    """Return the lines of a result; a runtime without any checkpoint has none."""
    rows: list[dict[str, Any]] = json.loads(result.read_bytes())["rows"]
    found: list[Line] = []
    for row in rows:
        points = sorted((int(turn), float(cost)) for turn, cost in row["turns"].items())
        survives = row["name"].startswith(OURS) and row["keeps"] != "nothing"
        name = f"{row['name']}, {row['keeps']}" if survives else row["name"]
        if points:
            found.append(Line(name, tuple(points)))
    return found


def spread_labels(places: Sequence[float], low: float, high: float) -> list[float]:
    """Return places in ascending order that are ``LABEL_HEIGHT`` apart and near the given ones, also ascending."""
    spread: list[float] = []
    for place in places:
        spread.append(max(place, low, spread[-1] + LABEL_HEIGHT if spread else low))
    limit = high
    for at in reversed(range(len(spread))):
        spread[at] = min(spread[at], limit)
        limit = spread[at] - LABEL_HEIGHT
    return spread


def draw_axes(x: Axis, y: Axis) -> Iterator[str]:
    """Yield the grid and its numbers."""
    for turns in x.decades():
        at = x.place_of(turns)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{y.start}" y2="{y.end}"/>'
        yield f'<text class="faint" x="{at:.1f}" y="{y.start + 20}" text-anchor="middle">{turns:,.0f}</text>'
    for cost in y.decades():
        at = y.place_of(cost)
        yield f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="faint" x="{x.start - 8}" y="{at + 4:.1f}" text-anchor="end">{cost:g} ms</text>'
    middle = (x.start + x.end) / 2
    yield f'<text class="faint" x="{middle:.0f}" y="{y.start + 42}" text-anchor="middle">turn of the session</text>'


def draw_line(line: Line, colour: int, x: Axis, y: Axis) -> Iterator[str]:
    """Yield the line and its points."""
    places = [(x.place_of(turns), y.place_of(cost)) for turns, cost in line.points]
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
    kind = f"line s{colour}{' ours' if line.is_ours else ''}"
    yield f'<polyline class="{kind}" points="{path}"/>'
    for across, down in places:
        yield f'<circle class="f{colour}" cx="{across:.1f}" cy="{down:.1f}" r="3.5"/>'


def draw_labels(lines: Sequence[tuple[Line, int]], x: Axis, y: Axis) -> Iterator[str]:
    """Yield a label at the end of each line; no label overlaps another."""
    ends = sorted((y.place_of(line.points[-1][1]), line, colour) for line, colour in lines)
    places = spread_labels([down for down, _, _ in ends], y.end, y.start)
    for (down, line, colour), place in zip(ends, places, strict=True):
        turn, cost = line.points[-1]
        across, kind = x.place_of(turn), f"label f{colour}{' ours' if line.is_ours else ''}"
        yield (
            f'<line class="leader s{colour}" x1="{across + 5:.1f}" y1="{down:.1f}" '
            f'x2="{across + 18:.1f}" y2="{place:.1f}"/>'
        )
        text = escape(f"{line.name}: {cost:.3g} ms")
        yield f'<text class="{kind}" x="{across + 21:.1f}" y="{place + 4:.1f}">{text}</text>'


def draw_picture(lines: Sequence[Line]) -> str:
    """Return the picture as SVG."""
    turns = [turn for line in lines for turn, _ in line.points]
    costs = [cost for line in lines for _, cost in line.points]
    x = Axis(min(turns), max(*turns, 10), LEFT, WIDTH - RIGHT)
    y = Axis(min(costs) * 0.8, max(costs) * 1.25, HEIGHT - BOTTOM, TOP)
    coloured = [(line, number % len(LIGHT.lines)) for number, line in enumerate(lines)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        "<title>CPU of a turn against the turns of its session</title>",
        f"<style>{STYLE}{LIGHT.rules()}\n@media (prefers-color-scheme: dark) {{\n{DARK.rules()}\n}}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" class="paper"/>',
        f'<text class="title" x="{LEFT}" y="30">CPU of one turn, by its number in the session</text>',
        *draw_axes(x, y),
        *[part for line, colour in reversed(coloured) for part in draw_line(line, colour, x, y)],
        *draw_labels(coloured, x, y),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Read a result and write its picture."""
    result, picture = (*map(Path, sys.argv[1:]), *(RESULT, PICTURE)[len(sys.argv) - 1 :])
    picture.write_text(draw_picture(read_lines(result)), encoding="utf-8")
    print(f"wrote {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
