"""Scripts that mean no good, and what each of them comes to."""

from dataclasses import replace
from typing import NamedTuple

from vaka.core.types.errors import ScriptError, ScriptLimit
from vaka.luau.limits import ScriptLimits

LIMITS = ScriptLimits(memory=16 << 20, seconds=20, coroutines=500)


class Hostile(NamedTuple):
    source: str
    error: type[ScriptError]
    said: str

    @property
    def limits(self) -> ScriptLimits:
        """Little time for those that take all there is, and more than enough for the others."""
        return replace(LIMITS, seconds=0.2) if self.said == "out of time" else LIMITS


SCRIPTS = {
    "an endless loop": Hostile("while true do end", ScriptLimit, "out of time"),
    "an endless loop that catches everything": Hostile(
        "while true do pcall(function() while true do end end) end", ScriptLimit, "out of time"
    ),
    "an endless loop in a coroutine": Hostile(
        "coroutine.wrap(function() while true do end end)()", ScriptLimit, "out of time"
    ),
    "a pattern bomb": Hostile(
        "string.find(string.rep('a', 5000), string.rep('.-', 50) .. 'b')", ScriptLimit, "out of time"
    ),
    "a memory bomb": Hostile(
        "local t = {} while true do table.insert(t, string.rep('x', 100000) .. #t) end", ScriptLimit, "out of memory"
    ),
    "a string that doubles": Hostile("local s = 'x' while true do s = s .. s end", ScriptLimit, "out of memory"),
    "a huge string": Hostile("return #string.rep('x', 2^30)", ScriptLimit, "out of memory"),
    "a huge format": Hostile(
        "return string.format('%s%s', string.rep('x', 2^23), string.rep('y', 2^23))",
        ScriptLimit,
        "out of memory",
    ),
    "a huge table": Hostile("return #table.create(2^26, 0)", ScriptLimit, "out of memory"),
    "a huge buffer": Hostile("return buffer.len(buffer.create(2^29))", ScriptLimit, "out of memory"),
    "a huge concatenation": Hostile(
        "return #table.concat(table.create(100, string.rep('x', 2^18)))",
        ScriptLimit,
        "out of memory",
    ),
    "a coroutine bomb": Hostile(
        "local t = {} while true do table.insert(t, coroutine.create(print)) end", ScriptLimit, "too many coroutines"
    ),
    "a recursion without end": Hostile("local function f() return 1 + f() end f()", ScriptError, "stack overflow"),
    "a metatable without end": Hostile(
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end; return t.a",
        ScriptError,
        "stack overflow",
    ),
    "an error without a value": Hostile("error()", ScriptError, "^bad.luau:1: nil$"),
    "an error that is a number": Hostile("error(42)", ScriptError, "^bad.luau:1: 42$"),
    "an error that is a boolean": Hostile("error(false)", ScriptError, "^bad.luau:1: false$"),
    "an error that is a table": Hostile("error({code = 1})", ScriptError, r'^bad.luau:1: {"code":1}$'),
    "an error with a message": Hostile("error({message = 'm'})", ScriptError, "^bad.luau:1: m$"),
    "an error that is a function": Hostile("error(print)", ScriptError, "^bad.luau:1: .*function"),
    "an error that is a thread": Hostile("error(coroutine.create(print))", ScriptError, "^bad.luau:1: .*thread"),
    "an error that holds itself": Hostile("local t = {} t.t = t error(t)", ScriptError, "^bad.luau:1: "),
    "an error that cannot be said": Hostile(
        "error(setmetatable({}, {__tostring = function() error('again') end}))", ScriptError, "^bad.luau:1: "
    ),
    "an error that is no text": Hostile("error('\\xff\\xfe')", ScriptError, "bad.luau:1: "),
    "a result that holds itself": Hostile("local t = {} t.t = t return t", ScriptError, "bad.luau: .*holds itself"),
    "a result that is a function": Hostile("return print", ScriptError, "bad.luau: a function is not plain data"),
    "a result that is nested too deeply": Hostile(
        "local t = {} for i = 1, 1000 do t = {t} end return t", ScriptError, "bad.luau: .*nested deeper than 100"
    ),
    "an argument that holds itself": Hostile(
        "local t = {} t.t = t ask('echo', t)",
        ScriptError,
        "bad.luau:1: .*holds itself",
    ),
    "an argument that is a function": Hostile(
        "ask('echo', print)",
        ScriptError,
        "bad.luau:1: .*function is not plain",
    ),
    "a call where nothing can wait": Hostile(
        "table.sort({2, 1, 3}, function(a, b) return ask('echo', a < b) end)", ScriptError, "cannot wait for the host"
    ),
    "coroutines that wait for each other": Hostile("park()", ScriptError, "every coroutine waits for another one"),
    "a yield to nobody": Hostile("coroutine.yield(1)", ScriptError, "attempt to yield from outside a coroutine"),
    "a change to the libraries": Hostile("string.rep = nil", ScriptError, "readonly"),
    "a change to all strings": Hostile("getmetatable('').__index = nil", ScriptError, "bad.luau:1: "),
    "a coroutine that fails alone": Hostile(
        "spawn(function() error('alone') end) ask('echo', 1)",
        ScriptError,
        "bad.luau:1: alone",
    ),
    "bytecode for source": Hostile("\\27Lua", ScriptError, "bad.luau:1: "),
}
