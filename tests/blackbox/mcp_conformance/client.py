"""A program that uses the server of a scenario as an agent of vaka does: ``client.py URL``.

Its model calls every tool that it is offered, once, with the arguments that the scenario gives or with some that fit.
"""

import asyncio
import json
import os
import sys
from contextlib import aclosing
from typing import Any

import vaka
from vaka.core.ports.model import CallChunk, Chunk, Prompt, StopChunk, TextChunk
from vaka.core.types.control import QuestionAsked
from vaka.core.types.message import ToolMessage
from vaka.core.types.tool import ToolSpec
from vaka.runtime.options import Project
from vaka.runtime.runtime import Runtime
from vaka.testing.models import FunctionModel

PREFIX = "mcp__suite__"
ECHO = "json_schema_echo"
VALUES: dict[str, Any] = {
    "string": "text",
    "number": 5,
    "integer": 5,
    "boolean": True,
    "object": {},
    "array": [],
    "null": None,
}


def arguments_for(spec: ToolSpec) -> dict[str, Any]:
    """Return arguments that fit the schema of a tool."""
    fields: dict[str, Any] = spec.parameters.get("properties") or {}
    return {name: VALUES.get(field.get("type", "string"), "text") for name, field in fields.items()}


CREDENTIALS = {
    "client_id": "clientId",
    "client_secret": "clientSecret",
    "private_key_pem": "privateKey",
    "signing_algorithm": "algorithm",
}
"""What a scenario gives to log in with, and the keys of a server's definition."""


def read_context() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return found


def choose_calls(specs: dict[str, ToolSpec]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a scenario; a tool that echoes a schema gets that of the tool beside it."""
    given = read_context().get("toolCalls")
    if given:
        return [(call["name"], call["arguments"]) for call in given if call["name"] in specs]
    if ECHO in specs:
        return [(ECHO, {"schema": spec.parameters}) for name, spec in specs.items() if name != ECHO]
    return [(name, arguments_for(spec)) for name, spec in specs.items()]


async def answer(prompt: Prompt) -> list[Chunk]:
    specs = {spec.name.removeprefix(PREFIX): spec for spec in prompt.tools if spec.name.startswith(PREFIX)}
    if not specs or any(isinstance(message, ToolMessage) for message in prompt.messages):
        return [TextChunk("Done."), StopChunk("end")]
    chunks: list[Chunk] = [
        CallChunk(index=index, name=f"{PREFIX}{name}", arguments=json.dumps(arguments))
        for index, (name, arguments) in enumerate(choose_calls(specs))
    ]
    return [*chunks, StopChunk("calls")]


async def accept_defaults(runtime: Runtime, session: str) -> None:
    """Answer each question with nothing, as a person does who accepts what is offered."""
    async with aclosing(runtime.follow(session)) as events:
        async for event in events:
            if isinstance(event.data, QuestionAsked):
                await runtime.answer(event.data.question, "accept" if "accept" in event.data.options else "")


async def main(url: str) -> None:
    agent = vaka.Agent("client", model=FunctionModel(answer))
    oauth = {CREDENTIALS[name]: value for name, value in read_context().items() if name in CREDENTIALS}
    definition: dict[str, Any] = {"type": "http", "url": url, "required": True}
    servers = {"suite": definition | ({"oauth": oauth} if oauth else {})}
    async with vaka.Runtime(
        store="memory:",
        project=Project(mcp=servers),
        permissions=vaka.Permissions(allow=["mcp__suite"], ask="wait"),
        agent=agent,
    ) as runtime:
        session = await runtime.open(id="conformance")
        person = asyncio.create_task(accept_defaults(runtime, session.id))
        await session.run("Use every tool.")
        person.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
