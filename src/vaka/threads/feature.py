"""The feature ``threads``: sessions as threads of messages, with owner, state and limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vaka.feature import Feature

if TYPE_CHECKING:
    import click

    from vaka.server.kit.operation import Operation


def load_session_commands() -> "Sequence[click.Command]":
    from vaka.threads.cli import MESSAGE_COMMANDS

    return MESSAGE_COMMANDS


def load_operations() -> "Sequence[Operation]":
    from vaka.threads.http import OPERATIONS

    return OPERATIONS


FEATURE = Feature(name="threads", load_session_commands=load_session_commands, load_operations=load_operations)
