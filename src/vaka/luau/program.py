"""A script before it runs: its text and everything else that decides what it will do."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec

from vaka.core.types.errors import NotFound, ScriptError
from vaka.core.types.ids import Digest
from vaka.luau import require
from vaka.luau.bytecode import Bytecode, vm_version
from vaka.luau.limits import ScriptLimits
from vaka.luau.require import Library, Packages, read_library

MOST_SOURCE = 8 << 20
OWN_LIBRARY = Path(__file__).parent / "lib"


@dataclass(frozen=True)
class Program:
    """A script and what it is run with. Two programs with one ``digest`` ask their hosts for the same things."""

    source: str
    name: str = "script"
    """What errors call it: ``name:line: message``."""
    library: Library = field(default_factory=Library)
    preludes: tuple[str, ...] = ()
    """Sources in Luau that furnish the script's place before it runs, each called with it and with the primitives."""
    main: str = ""
    """A source in Luau that runs the script: it is called with the script as a function and then the arguments, in the
    same place. Empty: the script is called with the arguments."""
    opt: int = 2
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    trusted: bool = False
    """Whether it may run inside this process: the project's own scripts, nobody else's."""

    @cached_property
    def digest(self) -> Digest:
        """What makes a run reproducible: sources, libraries, preludes, VM and options; limits do not."""
        modules = sorted((name, module.source) for name, module in self.library.modules.items())
        aliases = sorted(self.library.aliases.items())
        whole = [
            vm_version(), self.opt, self.name, self.source, self.main, require.PRELUDE, self.preludes, modules, aliases,
        ]  # fmt: skip
        return Digest(hashlib.sha256(msgspec.json.encode(whole)).hexdigest())

    def check(self, bytecode: Bytecode | None = None) -> None:
        """Compile the script and its library; raise ``ScriptError`` with ``file:line: what is wrong``, one a line."""
        sources = [(self.name, self.source), ("main", self.main)]
        sources += [(module.file, module.source) for module in self.library.modules.values()]
        errors = (bytecode or Bytecode()).precompile(sources, self.opt)
        if errors:
            raise ScriptError("\n".join(map(str, errors)))

    @classmethod
    async def load(
        cls,
        path: Path | str,
        *,
        libs: Sequence[Path | str] = (),
        packages: Packages | None = None,
        like: "Program | None" = None,
    ) -> "Program":
        """Read a script and what it can require; all else is as in ``like``.

        Raises ``NotFound``, or ``ScriptError`` with ``file:line: what is wrong`` if the script does not compile. A
        module that does not compile is an error where it is required.
        """
        path = Path(path)
        source = await asyncio.to_thread(read_source, path)
        like = like or cls("")
        library = await read_library(libs, source, packages, own=(OWN_LIBRARY,))
        program = replace(like, source=source, name=path.name, library=library)
        Bytecode().compile(source, program.name, program.opt)
        return program


def read_source(path: Path) -> str:
    """Return the text of a script; raise ``NotFound``, or ``ScriptError`` for a file that is none."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFound(f"script {str(path)!r} cannot be read: {error.strerror}") from error
    if len(content) > MOST_SOURCE:
        raise ScriptError(f"{path.name}: a script has at most {MOST_SOURCE} bytes, this one {len(content)}")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ScriptError(f"{path.name}:{line}: the script is not UTF-8") from None
