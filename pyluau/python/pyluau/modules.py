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
local running, status = coroutine.running, coroutine.status
local loaded, loading = {}, {}

-- Whether a load goes on below this call. One that waits, or was stopped, does not: the module is then loaded again.
local function is_active(loader: any): boolean
	if loader.thread ~= running() then
		return loader.thread ~= nil and status(loader.thread) == "normal"
	end
	local level = 2
	local f = debug.info(level, "f")
	while f and f ~= loader.run do
		level += 1
		f = debug.info(level, "f")
	end
	return f ~= nil
end

-- The chunk that requires, also by pcall(require, name); empty in a coroutine that runs nothing else.
local function origin_of(): string
	local level = 3
	local source = debug.info(level, "s")
	while source == "[C]" do
		level += 1
		source = debug.info(level, "s")
	end
	return source or ""
end

return function(name: any): any
	if type(name) ~= "string" then
		error(`require: a module is named by a string, not by a {type(name)}`, 2)
	end
	local key = find(name, (origin_of()))
	if key == nil then
		error(`require: there is no module '{name}'`, 2)
	end
	local module = loaded[key]
	if module == nil then
		if loading[key] and is_active(loading[key]) then
			error(`require: module '{key}' is being loaded: modules cannot require each other`, 2)
		end
		local function run(): any
			return load()()
		end
		local loader = setmetatable({ thread = running(), run = run }, { __mode = "v" })
		loading[key] = loader
		local ok, value = pcall(run)
		if loading[key] == loader then
			loading[key] = nil
		end
		if not ok then
			error(value, 0)
		end
		module = loaded[key] or { value = value }
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
