"""``require`` for scripts, with modules that the host finds."""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from pyluau._native import State
from pyluau.errors import LuauError


class Module(NamedTuple):
    """A module of Luau: ``name`` identifies it, whatever a script called it, and is its name in error messages."""

    name: str
    source: str | bytes


FindModule = Callable[[str, str], Module | str | bytes | None]
"""Finds the module of a name; the second argument is the name of the chunk that requires it."""

REQUIRE = """
local find, load = ...
local loaded, loading = {}, {}
return function(name: any): any
	if type(name) ~= "string" then
		error(`require: a module is named by a string, not by a {type(name)}`, 2)
	end
	local key = find(name, debug.info(2, "s"))
	if key == nil then
		error(`require: there is no module '{name}'`, 2)
	end
	local module = loaded[key]
	if module == nil then
		if loading[key] then
			error(`require: module '{key}' is being loaded: modules cannot require each other`, 2)
		end
		loading[key] = true
		local ok, value = pcall(function()
			return load()()
		end)
		loading[key] = nil
		if not ok then
			error(value, 0)
		end
		module = { value = value }
		loaded[key] = module
	end
	return module.value
end
"""


class ModuleLoader:
    """Finds and loads the modules of one state."""

    def __init__(self, state: State, find: FindModule) -> None:
        self._state = weakref.ref(state)  # the VM holds this object: it must not keep its own state alive
        self._find = find
        self._found: Module | None = None

    def find(self, name: str, origin: str) -> str | None:
        """Return the name that identifies a module, ``None`` if there is none."""
        found = self._find(name, origin)
        if found is None:
            return None
        self._found = found if isinstance(found, Module) else Module(name, found)
        return self._found.name

    def load(self) -> Any:
        """Return the module that was found last as a function."""
        state, module = self._state(), self._found
        if state is None or module is None:
            raise LuauError("require: the state is gone")
        self._found, chunk = None, f"={module.name}"
        return state.load(state.compile(module.source, chunkname=chunk), chunk)
