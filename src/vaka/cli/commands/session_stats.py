"""``vaka sessions stats``: model calls, tokens, money, prompt caches and compactions of one session or of all."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import find_session, with_runtime
from vaka.cli.kit.render import print_json, print_table
from vaka.runtime.runtime import Runtime
from vaka.runtime.stats import ModelStats, SessionStats


@click.command(epilog=options.format_examples("vaka sessions stats demo", "vaka sessions stats --json"))
@click.argument("session", metavar="[ID]", required=False)
@options.json_option
@options.store_options
def stats(session: str | None, **flags: Any) -> None:
    """Show calls, tokens and money, what prompt caches saved and lost, and compactions; of all sessions without ID."""

    async def work(runtime: Runtime) -> SessionStats:
        if session is None:
            return await runtime.total_stats()
        return await runtime.stats((await find_session(runtime, session)).id)

    found = with_runtime(flags, work)
    if flags["as_json"]:
        sums = {"cache_hit_ratio": found.cache_hit_ratio, "cache_loss": found.cache_loss}
        print_json({**msgspec.to_builtins(found), **msgspec.to_builtins(sums)})
        return
    _print_usage(found)
    click.echo()
    print_cache_report(found)


def print_cache_report(found: SessionStats) -> None:
    """Print the part of the input that was cached, what was lost by which cause, and the compactions."""
    click.echo(f"cache: {found.cache_hit_ratio:.1%} of the input was read from it")
    if found.cache_busts:
        causes = sorted(found.cache_busts.items(), key=lambda item: -item[1].tokens)
        rows = [
            (cause, str(loss.count), str(loss.tokens), format_money(loss.cost))
            for cause, loss in (*causes, ("all", found.cache_loss))
        ]
        print_table(("CACHE LOST BY", "CALLS", "TOKENS", "US$"), rows)
    click.echo(f"compactions: {found.compactions}")


def _print_usage(found: SessionStats) -> None:
    """Print the usage of sessions by model and, where there are several, by agent; child agents have their own row."""
    total = ("all", ModelStats(usage=found.usage, request_count=found.request_count))
    _print_usage_table("MODEL", (*found.by_model.items(), total))
    if len(found.by_agent) > 1:
        click.echo()
        _print_usage_table("AGENT", (*found.by_agent.items(), total))


def _print_usage_table(title: str, used_by: Sequence[tuple[str, ModelStats]]) -> None:
    rows = [
        (
            name,
            str(used.request_count),
            str(used.usage.input),
            str(used.usage.cache_read),
            str(used.usage.cache_write),
            str(used.usage.output),
            str(used.usage.reasoning),
            format_money(used.usage.cost),
        )
        for name, used in used_by
    ]
    print_table((title, "CALLS", "INPUT", "CACHED", "CACHE WRITTEN", "OUTPUT", "REASONING", "US$"), rows)


def format_money(dollars: float) -> str:
    """Return an amount with at most six decimals."""
    return f"{dollars:.6f}".rstrip("0").rstrip(".")
