"""Results that were computed from the tools of a prompt, kept because the next prompt mostly has the same tools."""

from collections.abc import Callable
from operator import is_
from typing import Generic, NamedTuple, TypeVar

from vaka.core.types.tool import ToolSpec

MAX_LISTS = 8
"""The number of tool lists whose results are kept; agents that share a model have different lists."""

_T = TypeVar("_T")


class _KeptResult(NamedTuple, Generic[_T]):
    tools: tuple[ToolSpec, ...]
    result: _T

    def is_for(self, tools: tuple[ToolSpec, ...]) -> bool:
        """Whether these are the very same tools: equal schemas may still differ in the order of their keys."""
        return tools is self.tools or (len(tools) == len(self.tools) and all(map(is_, tools, self.tools)))


class ToolListMemo(Generic[_T]):
    """The results for the lists of tools that were used last. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: tuple[_KeptResult[_T], ...] = ()
        """The list that was used last comes first; the tuple is replaced, never changed."""

    def get(self, tools: tuple[ToolSpec, ...], compute: Callable[[tuple[ToolSpec, ...]], _T]) -> _T:
        """Return what ``compute`` returns for ``tools``; it must return the same for the same tools."""
        before = self._kept
        kept = next((one for one in before if one.is_for(tools)), None)
        if kept is None:
            kept = _KeptResult(tuple(tools), compute(tools))
        if not before or before[0] is not kept:
            self._kept = (kept, *[one for one in before if one is not kept][: MAX_LISTS - 1])
        return kept.result
