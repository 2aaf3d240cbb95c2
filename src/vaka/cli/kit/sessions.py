"""The parts that commands about sessions share."""

from typing import Any

import click
import msgspec

from vaka.core.ports.store import SessionInfo

owner_option = click.option(
    "--owner", default=None, help="The owner that it must belong to; a session of another owner is not found."
)


def describe_session(info: SessionInfo) -> dict[str, Any]:
    """Return the fields of a session for ``--json``."""
    return {**msgspec.structs.asdict(info), "status": info.status}
