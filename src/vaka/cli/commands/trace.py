"""``vaka trace``: show a turn as a waterfall of spans, or export it."""

from typing import Any

import click

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import find_session, with_runtime
from vaka.cli.kit.render import as_printable, print_json, shorten
from vaka.cli.kit.stdout import echo
from vaka.core.types.errors import NotFound
from vaka.runtime.runtime import Runtime
from vaka.runtime.traces import list_traces, read_session_trace, read_trace
from vaka.views.otlp import to_otlp
from vaka.views.trace import SpanDocument, TraceDocument

_NAME_WIDTH = 36
_BAR_WIDTH = 32
_MARKS = {"ok": " ", "error": "!", "running": "~", "waiting": "?"}


@click.group()
def trace() -> None:
    """Show turns as waterfalls of spans, or export them."""


@trace.command(
    epilog=options.format_examples("vaka trace show demo", "vaka trace show demo --all", "vaka trace show demo --json")
)
@click.argument("session", metavar="ID")
@click.argument("turn", metavar="[TURN]", required=False)
@click.option("--all", "everything", is_flag=True, help="All turns of the session.")
@options.json_option
@options.store_options
def show(session: str, turn: str | None, everything: bool, **flags: Any) -> None:
    """Print the spans of a turn, by default the last one, with their times and tokens."""
    document = _read(session, turn, everything, flags)
    if flags["as_json"]:
        print_json(document)
        return
    for line in render_waterfall(document):
        echo(line)


@trace.command(
    epilog=options.format_examples("vaka trace export demo > trace.json", "vaka trace export demo --format json")
)
@click.argument("session", metavar="ID")
@click.argument("turn", metavar="[TURN]", required=False)
@click.option("--all", "everything", is_flag=True, help="All turns of the session.")
@click.option("--format", type=click.Choice(["otlp", "json"]), default="otlp", help="Default: OpenTelemetry's JSON.")
@options.store_options
def export(session: str, turn: str | None, everything: bool, format: str, **flags: Any) -> None:
    """Write the trace of a turn, by default the last one, to stdout."""
    document = _read(session, turn, everything, flags)
    print_json(document if format == "json" else to_otlp(document))


def _read(session: str, turn: str | None, everything: bool, flags: dict[str, Any]) -> TraceDocument:
    async def work(runtime: Runtime) -> TraceDocument:
        info = await find_session(runtime, session)
        if everything:
            return await read_session_trace(runtime.store, info)
        if turn:
            return (await read_trace(runtime.store, info, turn)).describe()
        found, _ = await list_traces(runtime.store, info, 0, 1)
        if not found:
            raise NotFound(f"session {info.id!r} has no turns yet")
        return found[0].describe()

    return with_runtime(flags, work)


def render_waterfall(trace: TraceDocument) -> list[str]:
    """Return a head line, and a line for each span: its place in the tree, time, tokens, and a bar on the time axis."""
    tokens = f"{trace.tokens.total} tokens" if trace.tokens.total else ""
    cost = f"${trace.cost:.4f}" if trace.cost else ""
    ttft = f"first token after {_duration(trace.ttft_ms)}" if trace.ttft_ms is not None else ""
    head = [f"{trace.session} {trace.id}", trace.status, _duration(trace.duration_ms), tokens, cost, ttft]
    lines = [as_printable(" · ".join(part for part in head if part), lines=False)]
    depths = {"": -1}
    for span in trace.spans:
        depths[span.id] = depth = depths[span.parent] + 1
        lines.append(_render_span(trace, span, depth))
    return lines


def _render_span(trace: TraceDocument, span: SpanDocument, depth: int) -> str:
    end = trace.duration_ms if span.end_ms is None else span.end_ms
    whole = max(trace.duration_ms, 1)
    first = min(span.start_ms * _BAR_WIDTH // whole, _BAR_WIDTH - 1)
    length = max((end - span.start_ms) * _BAR_WIDTH // whole, 1)
    bar = " " * first + "█" * min(length, _BAR_WIDTH - first)
    indent = "  " * min(depth, _NAME_WIDTH // 4)
    name = span.name if span.kind == "step" else f"{span.kind} {span.name}"
    label = f"{indent}{_MARKS[span.status]}{shorten(name, _NAME_WIDTH - len(indent) - 1)}"
    notes = [f"{span.tokens.total} tokens" if span.tokens else "", span.error.code if span.error else ""]
    line = f"{label:<{_NAME_WIDTH}} {_duration(end - span.start_ms):>8} │{bar:<{_BAR_WIDTH}}│"
    return " ".join([line, *(shorten(note) for note in notes if note)])


def _duration(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"
