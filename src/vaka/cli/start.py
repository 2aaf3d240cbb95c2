"""From flags and settings to a runtime."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from vaka.agents.react import Agent
from vaka.cli.errors import UsageError
from vaka.config.keys import KEYS
from vaka.config.layers import Place, Settings, load
from vaka.runtime.options import Options
from vaka.runtime.runtime import Runtime


def here() -> Place:
    """Return where this process stands."""
    return Place(cwd=Path.cwd(), home=Path.home(), environ=os.environ)


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """Return the settings in force, ``flags`` included; whatever else ``flags`` holds is not looked at."""
    known = {name: value for name, value in flags.items() if name in KEYS}
    if flags.get("ephemeral"):
        if known.get("store"):
            raise UsageError("--ephemeral keeps nothing, so it cannot go with --store; leave one of them out")
        known["store"] = "memory:"
    settings = load(here(), known, trust=bool(flags.get("trust")))
    for note in settings.notes:
        click.echo(f"note: {note}", err=True)
    return settings


def has_terminal() -> bool:
    """Whether a person can be asked here."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def runtime_of(settings: Settings, agent: Agent | None = None) -> Runtime:
    """Return the runtime the settings describe. Closing it is the caller's."""
    return Runtime(
        Options(
            store=settings["store"], durability=settings["durability"], agent=agent, model=settings["model"] or None,
            ask=settings["ask"] or ("wait" if has_terminal() else "deny"), permission_mode=settings["permission_mode"],
            allow=settings["allow"], deny=settings["deny"], secrets=secrets(os.environ, settings["store"]),
        )
    )  # fmt: skip


def secrets(environ: Mapping[str, str], store: str) -> tuple[str, ...]:
    """Return the values that must never be written down: keys of the environment, the store's password."""
    keys = [value for name, value in environ.items() if name.endswith("_API_KEY") and len(value) >= 8]
    password = urlsplit(store).password
    return (*keys, unquote(password)) if password else tuple(keys)
