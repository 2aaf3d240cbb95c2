"""``vaka.d.luau`` declares exactly the tables and functions that exist."""

import re
from pathlib import Path

import pytest

import vaka.luau
from tests.luau.surfaces.surface_fixtures import EchoAgents, FakeNetwork, make_services, memory_services, run_for_result
from vaka.core.ports.net import NetResponse
from vaka.luau.program import BytecodeCache

DECLARED = (Path(vaka.luau.__file__).parent / "vaka.d.luau").read_text("utf-8")
_TYPE = re.compile(r"^export type (\w+) = \{(.*?)\}$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s*(\w+): ", re.MULTILINE)

TYPES = {name: body for name, body in _TYPE.findall(DECLARED) if name != "Prompt"}


def declared_names(name: str) -> list[str]:
    """Return the fields that a type declares, on one line or several."""
    body = TYPES[name]
    found = _FIELD.findall(body) if "\n" in body else re.findall(r"(?:^|, |\{ ?| )(\w+): \(", f" {body}")
    return sorted(set(found))


PLACES = {
    "Ctx": "ctx",
    "Http": "ctx.http",
    "Log": "ctx.log",
    "JsonText": "ctx.json",
    "History": "ctx.agent.history",
    "Memory": "ctx.agent.memory",
    "Self": "ctx.agent",
    "Runtime": "ctx.runtime",
    "Realtime": "ctx.realtime",
    "Builtin": "__builtin",
    "Rt": "rt",
}
GIVEN = {
    "name": "a",
    "model": "m",
    "state_id": "s",
    "request_id": "r",
    "user_id": "u",
    "trace_id": "t",
    "state": True,
}


@pytest.mark.parametrize(("kind", "place"), PLACES.items())
async def test_each_surface_has_exactly_the_declared_fields(kind: str, place: str) -> None:
    source = f"local names = {{}} for name in {place} do table.insert(names, name) end table.sort(names) return names"
    assert await run_for_result(source, services=memory_services(), startup_info=GIVEN) == declared_names(kind)


OBJECTS = {
    "Agent": "ctx.create_agent('a')",
    "State": "ctx.agent.state",
    "Task": "ctx.spawn(function() end)",
    "Transformer": "ctx.transformer('text', {map = string.upper})",
    "Bistream": "(rt:transformer('text', {map = string.upper}))",
    "Promise": "rt:sleep(0)",
    "Timeout": "rt:timeout(0)",
    "Response": "ctx.http.get('http://host/a')",
    "BuiltinResponse": "__builtin.http{url = 'http://host/a'}",
}


@pytest.mark.parametrize(("kind", "made"), OBJECTS.items())
async def test_each_object_has_exactly_the_declared_fields(kind: str, made: str) -> None:
    network = FakeNetwork({"http://host/a": NetResponse(status=200, body=b"{}", url="http://host/a")})
    source = f"""
        local made, found = {made}, {{}}
        for _, name in ... do
            if made[name] ~= nil then table.insert(found, name) end
        end
        return found
    """
    names = [name for name in declared_names(kind) if name != "err"]
    assert names
    services = make_services(network=network, agents=EchoAgents())
    assert await run_for_result(source, names, services=services, startup_info=GIVEN) == names


def test_the_declarations_are_valid_luau() -> None:
    written = re.sub(r"^declare (\w+): (\w+)$", r"local \1: \2 = nil :: any", DECLARED, flags=re.MULTILINE)
    assert BytecodeCache().compile(written, "vaka.d.luau", 2)
