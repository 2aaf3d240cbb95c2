"""The feature ``threads``: sessions as threads of messages, with owner, state and limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vaka.feature import Feature

if TYPE_CHECKING:
    from vaka.server.kit.operation import Operation


def load_operations() -> "Sequence[Operation]":
    from vaka.threads.http import OPERATIONS

    return OPERATIONS


FEATURE = Feature(name="threads", load_operations=load_operations)
