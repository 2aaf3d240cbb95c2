"""``State``: the VM, with what is easier to write in Python than in Rust."""

import asyncio
import os
from pathlib import Path
from typing import Any

from pyluau import _native
from pyluau._native import Function, Limits, Stepper, Table
from pyluau.async_calls import StepLock, run_async
from pyluau.errors import LuauSyntaxError
from pyluau.modules import REQUIRE, FindModule, ModuleLoader


class State(_native.State):
    """A Luau VM."""

    _step_lock: StepLock | None = None

    def execute_file(
        self,
        path: str | os.PathLike[str],
        *arguments: Any,
        chunkname: str | None = None,
        opt: int = 2,
        env: dict[str, Any] | Table | None = None,
        convert: bool = True,
    ) -> Any:
        """Run the script in a file, and return its results; its name in errors is ``path`` unless ``chunkname`` is."""
        name = f"@{os.fspath(path)}" if chunkname is None else chunkname
        code = self.compile(Path(path).read_bytes(), opt, chunkname=name)
        return self.load(code, name, env).call(*arguments, convert=convert)

    async def call_async(
        self, function: Function | str, *arguments: Any, limits: Limits | None = None, thread: bool = False
    ) -> Any:
        """Call a function that may call ``async def`` functions of the host, and await them.

        The script's own code runs in the event loop, or with ``thread=True`` in a thread. Results are plain data.
        """

        def make_stepper() -> Stepper:
            return self.stepper(self.globals[function] if isinstance(function, str) else function, limits=limits)

        return await run_async(self, self._lock(), make_stepper, arguments, thread=thread)

    async def eval_async(
        self,
        source: str | bytes,
        *arguments: Any,
        chunkname: str = "=chunk",
        opt: int = 2,
        env: dict[str, Any] | Table | None = None,
        limits: Limits | None = None,
        thread: bool = False,
    ) -> Any:
        """As ``call_async``, for an expression or a script."""

        def make_stepper() -> Stepper:
            code = self._compile_expression(source, opt, chunkname)
            return self.stepper(code, env=env, chunkname=chunkname, limits=limits)

        return await run_async(self, self._lock(), make_stepper, arguments, thread=thread)

    def set_require(self, find: FindModule | None) -> None:
        """Give scripts ``require(name)``: ``find(name, origin)`` returns a ``Module``, a source, or ``None``.

        ``origin`` is the name of the chunk that requires it. Each module runs once in a state, with globals of its own.
        ``None`` in place of ``find`` removes ``require``.
        """
        if find is None:
            self.unregister("require")
        else:
            loader = ModuleLoader(self, find)
            self.define("require", self.eval(REQUIRE, loader.find, loader.load, chunkname="=require"))

    def _compile_expression(self, source: str | bytes, opt: int, chunkname: str) -> bytes:
        text = source.encode() if isinstance(source, str) else source
        try:
            return self.compile(b"return " + text, opt, chunkname=chunkname)
        except LuauSyntaxError:
            return self.compile(text, opt, chunkname=chunkname)

    def _lock(self) -> asyncio.Lock:
        """Return the lock that keeps two tasks of the running event loop from stepping this state at once."""
        loop = asyncio.get_running_loop()
        if self._step_lock is None or self._step_lock.loop is not loop:
            self._step_lock = StepLock(loop, asyncio.Lock())
        return self._step_lock.lock
