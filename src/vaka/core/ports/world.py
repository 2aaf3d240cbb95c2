"""What of the world the runtime lends to tools."""

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.net import Network
from vaka.core.ports.sandbox import Sandbox


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a tool can touch; what is ``None`` is not there for this runtime."""

    files: Files | None = None
    sandbox: Sandbox | None = None
    network: Network | None = None
    cwd: str = ""
    """Where relative paths begin, as a folder of this machine."""
