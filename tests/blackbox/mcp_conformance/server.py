"""A program that serves what the conformance suite expects, with vaka's server, over HTTP; it prints its URL."""

import asyncio
import socket
import sys
import warnings
from functools import partial
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

import vaka
from tests.blackbox.mcp_conformance import protocol_tools, served_tools
from vaka.mcp.elicitation import DecisionForms
from vaka.mcp.served_agents import ServedAgent, ServedToolCall, ServedTurns
from vaka.mcp.server import Context, ServedTool, ToolServer, http_app
from vaka.mcp.serving import ServableAgent
from vaka.mcp.transcripts import TranscriptResources
from vaka.models.given_calls import GivenCalls
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.runtime import Runtime
from vaka.server.http_protocol import BoundedHttpProtocol
from vaka.testing.models import ScriptedModel, say

STATIC_TEXT = "This is the content of the static text resource."
TEXTS = {"test://static-text": ("text/plain", STATIC_TEXT), "test://watched-resource": ("text/plain", "Watched.")}
BINARY = "test://static-binary"
TEMPLATE = "test://template/{id}/data"
PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


def build_server(runtime: Runtime) -> "Server[Any]":
    """Return vaka's server with the tools of the suite, and add what only the suite asks for."""
    model = ScriptedModel(say("Hello."))
    agent = vaka.Agent("assistant", model=model, tools=served_tools.TOOLS)
    turns = ServedTurns(runtime, lambda row: row.id, lambda code, message: message)
    specs = [tool.spec for tool in AgentBuilder().build_recipe(agent).tools.values()]
    caller = vaka.Agent("assistant", model=GivenCalls(), tools=served_tools.TOOLS)
    asked, called = (
        ServableAgent(name=each.name, description=each.description, open=partial(runtime.open, each))
        for each in (agent, caller)
    )
    tools: list[ServedTool] = [ServedAgent(turns, asked), *(ServedToolCall(turns, called, spec) for spec in specs)]
    forms = DecisionForms(describe=repr, hint=lambda row: row.id)
    resources = TranscriptResources(runtime.store, runtime.options.workspace.folder)
    server = ToolServer(tools, runtime, resources, forms).build("vaka", vaka.__version__)
    add_tools(server)
    add_resources(server)
    add_prompts(server)
    return server


def add_tools(server: "Server[Any]") -> None:
    listing, calling = server.get_request_handler("tools/list"), server.get_request_handler("tools/call")
    assert listing is not None
    assert calling is not None
    schema_of = server.get_tool_input_schema

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams) -> types.ListToolsResult:
        listed: Any = await listing.handler(ctx, params)
        return types.ListToolsResult(tools=[*listed.tools, *(tool for tool, _ in protocol_tools.TOOLS.values())])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Any:
        if params.name in protocol_tools.TOOLS:
            return await protocol_tools.TOOLS[params.name][1](ctx, params)
        return await calling.handler(ctx, params)

    def find_schema(name: str) -> Any:
        known = protocol_tools.TOOLS.get(name)
        return known[0].input_schema if known is not None else schema_of and schema_of(name)

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.get_tool_input_schema = find_schema


def add_resources(server: "Server[Any]") -> None:
    reading, listing = server.get_request_handler("resources/read"), server.get_request_handler("resources/list")
    assert reading is not None
    assert listing is not None

    async def list_resources(ctx: Context, params: types.PaginatedRequestParams) -> types.ListResourcesResult:
        own: Any = await listing.handler(ctx, params)
        added = [
            types.Resource(uri=uri, name=uri, description="Static.", mime_type=kind) for uri, (kind, _) in TEXTS.items()
        ]
        added.append(types.Resource(uri=BINARY, name=BINARY, description="A picture.", mime_type="image/png"))
        return types.ListResourcesResult(resources=[*added, *own.resources], next_cursor=own.next_cursor)

    async def list_templates(ctx: Context, params: types.PaginatedRequestParams) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template=TEMPLATE, name="template", mime_type="application/json")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        uri = params.uri
        start, end = TEMPLATE.split("{id}")
        contents: types.TextResourceContents | types.BlobResourceContents
        if uri in TEXTS:
            contents = types.TextResourceContents(uri=uri, mime_type=TEXTS[uri][0], text=TEXTS[uri][1])
        elif uri == BINARY:
            contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=served_tools.PNG)
        elif uri.startswith(start) and uri.endswith(end):
            id = uri.removeprefix(start).removesuffix(end)
            text = f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'
            contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        else:
            return await reading.handler(ctx, params)
        return types.ReadResourceResult(contents=[contents])

    async def accept(ctx: Context, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, accept)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, accept)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)


def add_prompts(server: "Server[Any]") -> None:
    async def list_prompts(ctx: Context, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(
                name=name,
                description=f"{name} of the suite.",
                arguments=[types.PromptArgument(name=argument, required=True) for argument in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Any:
        blocks = prompt_blocks(params.name, params.arguments or {})
        if params.name == "test_input_required_result_prompt":
            answer = protocol_tools.accepted(params, "user_context")
            if answer is None or answer.content is None:
                request = protocol_tools.form("What context should the prompt use?", "context")
                return types.InputRequiredResult(input_requests={"user_context": request})
            blocks = [types.TextContent(text=f"Use this context: {answer.content.get('context')}")]
        if not blocks:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])

    async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        words = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=words, total=len(words), has_more=False))

    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)


def prompt_blocks(name: str, arguments: dict[str, str]) -> list[types.ContentBlock]:
    """Return the messages of a prompt."""
    match name:
        case "test_simple_prompt":
            return [types.TextContent(text="This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            first, second = arguments.get("arg1"), arguments.get("arg2")
            return [types.TextContent(text=f"Prompt with arguments: arg1='{first}', arg2='{second}'")]
        case "test_prompt_with_embedded_resource":
            resource = types.TextResourceContents(
                uri=arguments["resourceUri"], mime_type="text/plain", text="Embedded resource content for testing."
            )
            after = types.TextContent(text="Please process the embedded resource above.")
            return [types.EmbeddedResource(resource=resource), after]
        case "test_prompt_with_image":
            picture = types.ImageContent(data=served_tools.PNG, mime_type="image/png")
            return [picture, types.TextContent(text="Please analyze the image above.")]
        case _:
            return []


async def serve() -> None:
    allowed = [tool.name for tool in served_tools.TOOLS]
    async with Runtime(store="memory:", permissions=vaka.Permissions(ask="suspend", allow=allowed)) as runtime:
        app = http_app(build_server(runtime))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
            sys.stdout.flush()
            config = uvicorn.Config(app, log_level="warning", http=BoundedHttpProtocol)
            await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    warnings.simplefilter("default")
    asyncio.run(serve())
