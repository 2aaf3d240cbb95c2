"""Completion of arguments that name something: sessions, approvals, questions, models, agents and the like."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import click
from click.shell_completion import CompletionItem

from vaka.cli.kit.bootstrap import load_flag_settings
from vaka.cli.kit.render import shorten
from vaka.cli.project_agents import project_agent_names
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.errors import VakaError
from vaka.models.catalog import PROVIDER_VENDORS, list_prices
from vaka.runtime.open_store import open_store
from vaka.runtime.providers import all_providers

Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

MAX_SESSIONS = 100
"""Sessions that are offered, the last changed first."""
STORE_SECONDS = 2.0
"""Seconds after which a store that does not respond offers nothing."""


def add_completers(command: click.Command, path: tuple[str, ...] = ()) -> None:
    """Let the arguments and options of a command and its subcommands complete what they name."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            add_completers(below, (*path, name))
    for param in command.params:
        completer = _COMPLETERS.get((*path, param.name or "")) or _COMPLETERS.get((param.name or "",))
        if completer is not None and not (path == ("sessions", "rewind") and param.name == "place"):
            setattr(param, "_custom_shell_complete", completer)  # noqa: B010  # what the argument shell_complete sets


def _complete_sessions(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    async def read(store: Store) -> list[CompletionItem]:
        page = await store.sessions.list(SessionQuery(prefix=begun, limit=MAX_SESSIONS))
        return [CompletionItem(info.id, help=shorten(info.title)) for info in page.sessions]

    return _read_store(context, read)


def _complete_approvals(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return _read_decisions(context, begun, "apr_")


def _complete_questions(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return _read_decisions(context, begun, "qst_")


def _read_decisions(context: click.Context, begun: str, prefix: str) -> list[CompletionItem]:
    async def read(store: Store) -> list[CompletionItem]:
        rows = [row for row in await store.sessions.decisions() if row.id.startswith(prefix)]
        return [CompletionItem(row.id, help=row.session) for row in rows if row.id.startswith(begun)]

    return _read_store(context, read)


def _complete_models(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    try:
        settings = load_flag_settings(context.params)
        names = ["local", *settings["models"], *settings["tiers"]]
    except (VakaError, OSError):
        names = ["local"]
    prices = list_prices()
    for provider in all_providers():
        known = prices.get(PROVIDER_VENDORS.get(provider.name, ""), {})
        names += [f"{provider.name}/{model}" for model in known] or [f"{provider.name}/"]
    return _items(names, begun)


def _complete_agents(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offer the agents of sessions; for an option that runs an agent, the agents of the project, and files."""

    async def read(store: Store) -> list[CompletionItem]:
        page = await store.sessions.list(SessionQuery(limit=MAX_SESSIONS))
        return _items(sorted({info.agent for info in page.sessions if info.agent}), begun)

    if "FILE" not in (parameter.metavar or ""):
        return _read_store(context, read)
    try:
        names = project_agent_names(load_flag_settings(context.params))
    except (VakaError, OSError):
        names = []
    return [*_items(names, begun), CompletionItem(begun, type="file")]


def _complete_providers(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return _items([provider.name for provider in all_providers() if provider.key_env], begun)


_COMPLETERS: dict[tuple[str, ...], Completer] = {
    ("session",): _complete_sessions,
    ("place",): _complete_sessions,
    ("fork",): _complete_sessions,
    ("approvals",): _complete_approvals,
    ("question",): _complete_questions,
    ("agent",): _complete_agents,
    ("agents",): _complete_agents,
    ("model",): _complete_models,
    ("models", "test", "name"): _complete_models,
    ("match", "test", "model_names"): _complete_models,
    ("login", "words"): _complete_providers,
    ("logout", "words"): _complete_providers,
}
"""The completer of a parameter by its name, or by the names of its command and its own."""


def _items(names: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def _read_store(
    context: click.Context, read: Callable[[Store], Awaitable[list[CompletionItem]]]
) -> list[CompletionItem]:
    """Read the store that the command would use. A store that is missing or fails offers nothing."""

    async def open_and_read(url: str) -> list[CompletionItem]:
        store = open_store(url)
        try:
            async with asyncio.timeout(STORE_SECONDS):
                return await read(store)
        finally:
            await store.close()

    try:
        url = load_flag_settings(context.params)["store"]
        return [] if _is_missing_file(url) else asyncio.run(open_and_read(url))
    except (VakaError, OSError):  # a TimeoutError is an OSError
        return []


def _is_missing_file(url: str) -> bool:
    """Whether a URL names a SQLite file that does not exist; opening it would create it."""
    parts = urlsplit(url)
    return parts.scheme == "sqlite" and not Path(unquote(parts.path[1:])).is_file()
