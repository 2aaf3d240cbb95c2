"""From a command of the port to an order for the warden: what all sandboxes have in common."""

import os
from collections.abc import Mapping
from typing import Any

from vaka.core.ports.sandbox import Command
from vaka.sandbox.environment import command_environment
from vaka.sandbox.paths import FOLDERS
from vaka.sandbox.warden.order import Order

PROXY = "http://127.0.0.1:3128"
"""Where a command with a single way out finds it, in its own network."""


def order_of(kind: str, command: Command, allow: tuple[str, ...], more: Mapping[str, Any], *, proxy: str = "") -> Order:
    """Return the order for a command; ``allow`` names variables it has though they look like secrets."""
    bounds = command.bounds
    return Order(
        kind=kind,
        argv=command.argv,
        cwd=command.cwd,
        env=command_environment(os.environ, command.env, allow, proxy=proxy),
        writable=command.writable,
        protected=command.protected,
        hidden=command.hidden,
        network=command.network,
        cpu_seconds=bounds.cpu_seconds,
        memory_bytes=bounds.memory_bytes,
        processes=bounds.processes,
        file_bytes=bounds.file_bytes,
        open_files=bounds.open_files,
        folders=FOLDERS,
        **more,
    )
