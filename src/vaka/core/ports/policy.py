"""The socket for rules: who may do what."""

from typing import Protocol

from vaka.core.types.ids import Path
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import ToolSpec, Verdict


class Policy(Protocol):
    """Decides on calls. A pure look: it runs nothing, changes nothing and asks nobody."""

    def judge(self, call: ToolCall, spec: ToolSpec, path: Path) -> Verdict:
        """Return whether ``call`` may run, must be asked about, or must not run."""
        ...

    def visible(self, spec: ToolSpec) -> bool:
        """Return whether a model should be told of this tool at all."""
        ...
