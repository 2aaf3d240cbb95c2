"""Hostile scripts, and the error each of them must end with."""

from dataclasses import replace
from typing import NamedTuple

from vaka.core.types.errors import ScriptError, ScriptLimit
from vaka.luau.program import ScriptLimits

HOSTILE_LIMITS = ScriptLimits(memory=16 << 20, seconds=20, coroutines=500)


class HostileScript(NamedTuple):
    source: str
    error: type[ScriptError]
    pattern: str

    @property
    def limits(self) -> ScriptLimits:
        """A short time limit for scripts that run into it, a long one for the others."""
        return replace(HOSTILE_LIMITS, seconds=0.2) if self.pattern == "out of time" else HOSTILE_LIMITS


HOSTILE_SCRIPTS = {
    "an endless loop": HostileScript("while true do end", ScriptLimit, "out of time"),
    "an endless loop that catches everything": HostileScript(
        "while true do pcall(function() while true do end end) end", ScriptLimit, "out of time"
    ),
    "an endless loop in a coroutine": HostileScript(
        "coroutine.wrap(function() while true do end end)()", ScriptLimit, "out of time"
    ),
    "a pattern bomb": HostileScript(
        "string.find(string.rep('a', 5000), string.rep('.-', 50) .. 'b')", ScriptLimit, "out of time"
    ),
    "a memory bomb": HostileScript(
        "local t = {} while true do table.insert(t, string.rep('x', 100000) .. #t) end", ScriptLimit, "out of memory"
    ),
    "a string that doubles": HostileScript("local s = 'x' while true do s = s .. s end", ScriptLimit, "out of memory"),
    "a huge string": HostileScript("return #string.rep('x', 2^30)", ScriptLimit, "out of memory"),
    "a huge format": HostileScript(
        "return string.format('%s%s', string.rep('x', 2^23), string.rep('y', 2^23))",
        ScriptLimit,
        "out of memory",
    ),
    "a huge table": HostileScript("return #table.create(2^26, 0)", ScriptLimit, "out of memory"),
    "a huge buffer": HostileScript("return buffer.len(buffer.create(2^29))", ScriptLimit, "out of memory"),
    "a huge concatenation": HostileScript(
        "return #table.concat(table.create(100, string.rep('x', 2^18)))",
        ScriptLimit,
        "out of memory",
    ),
    "a coroutine bomb": HostileScript(
        "local t = {} while true do table.insert(t, coroutine.create(print)) end", ScriptLimit, "too many coroutines"
    ),
    "a recursion without end": HostileScript(
        "local function f() return 1 + f() end f()", ScriptError, "stack overflow"
    ),
    "a metatable without end": HostileScript(
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end; return t.a",
        ScriptError,
        "stack overflow",
    ),
    "an error without a value": HostileScript("error()", ScriptError, "^bad.luau:1: nil$"),
    "an error that is a number": HostileScript("error(42)", ScriptError, "^bad.luau:1: 42$"),
    "an error that is a boolean": HostileScript("error(false)", ScriptError, "^bad.luau:1: false$"),
    "an error that is a table": HostileScript("error({code = 1})", ScriptError, r'^bad.luau:1: {"code":1}$'),
    "an error with a message": HostileScript("error({message = 'm'})", ScriptError, "^bad.luau:1: m$"),
    "an error that is a function": HostileScript("error(print)", ScriptError, "^bad.luau:1: .*function"),
    "an error that is a thread": HostileScript("error(coroutine.create(print))", ScriptError, "^bad.luau:1: .*thread"),
    "an error that holds itself": HostileScript("local t = {} t.t = t error(t)", ScriptError, "^bad.luau:1: "),
    "an error whose __tostring fails": HostileScript(
        "error(setmetatable({}, {__tostring = function() error('again') end}))", ScriptError, "^bad.luau:1: "
    ),
    "an error that is not UTF-8": HostileScript("error('\\xff\\xfe')", ScriptError, "bad.luau:1: "),
    "a result that holds itself": HostileScript(
        "local t = {} t.t = t return t", ScriptError, "bad.luau: .*holds itself"
    ),
    "a result that is a function": HostileScript("return print", ScriptError, "bad.luau: a function is not plain data"),
    "a result that is nested too deeply": HostileScript(
        "local t = {} for i = 1, 1000 do t = {t} end return t", ScriptError, "bad.luau: .*nested deeper than 100"
    ),
    "an argument that holds itself": HostileScript(
        "local t = {} t.t = t ask('echo', t)",
        ScriptError,
        "bad.luau:1: .*holds itself",
    ),
    "an argument that is a function": HostileScript(
        "ask('echo', print)",
        ScriptError,
        "bad.luau:1: .*function is not plain",
    ),
    "a call where nothing can wait": HostileScript(
        "table.sort({2, 1, 3}, function(a, b) return ask('echo', a < b) end)", ScriptError, "cannot wait for the host"
    ),
    "coroutines that wait for each other": HostileScript(
        "park()", ScriptError, "every coroutine waits for another one"
    ),
    "a yield outside a coroutine": HostileScript(
        "coroutine.yield(1)", ScriptError, "attempt to yield from outside a coroutine"
    ),
    "a change to the libraries": HostileScript("string.rep = nil", ScriptError, "readonly"),
    "a change to all strings": HostileScript("getmetatable('').__index = nil", ScriptError, "bad.luau:1: "),
    "a coroutine that fails alone": HostileScript(
        "spawn(function() error('alone') end) ask('echo', 1)",
        ScriptError,
        "bad.luau:1: alone",
    ),
    "bytecode for source": HostileScript("\\27Lua", ScriptError, "bad.luau:1: "),
}
