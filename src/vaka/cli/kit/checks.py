"""``Check``: a line of ``vaka doctor``."""

from typing import Literal, TypeAlias

import msgspec

CheckState: TypeAlias = Literal["ok", "note", "fail"]


class Check(msgspec.Struct, frozen=True):
    """What one check found; ``fail`` makes ``vaka doctor`` exit with 1."""

    name: str
    state: CheckState
    detail: str
