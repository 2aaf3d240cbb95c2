"""The tools of the conformance suite that are about the protocol itself: what no agent of vaka does as a server."""

import warnings
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError

from vaka.mcp.server import Context

Result: TypeAlias = types.CallToolResult | types.InputRequiredResult
Handler: TypeAlias = Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]

JSON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
HEADER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
        "query": {"type": "string"},
    },
}
DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_PLAIN = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{number}", "title": f"{word} Option"} for number, word in ((1, "First"), (2, "Second"))]
ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": _PLAIN},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}


def text_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


def form(message: str, field: str, kind: str = "string") -> types.ElicitRequest:
    """Return a form with one field."""
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def question_to_model(text: str, max_tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def accepted(params: Any, key: str) -> types.ElicitResult | None:
    """Return the form that a person has submitted under a key."""
    answer = (params.input_responses or {}).get(key)
    return answer if isinstance(answer, types.ElicitResult) and answer.action == "accept" and answer.content else None


async def log(ctx: Context, params: types.CallToolRequestParams) -> Result:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a feature of older versions, which the suite checks in those
            await ctx.session.send_log_message("info", text, related_request_id=ctx.request_id)
    return text_result("Tool with logging executed.")


async def sample(ctx: Context, params: types.CallToolRequestParams) -> Result:
    request = question_to_model((params.arguments or {})["prompt"], 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        answer = await ctx.session.create_message(
            request.params.messages, max_tokens=100, related_request_id=ctx.request_id
        )
    content = answer.content
    return text_result(f"LLM response: {content.text if isinstance(content, types.TextContent) else content}")


def elicit(properties: dict[str, Any], required: list[str], intro: str) -> Handler:
    """Return the handler of a tool that shows a form and returns what was submitted."""

    async def handle(ctx: Context, params: types.CallToolRequestParams) -> Result:
        message = str((params.arguments or {}).get("message", "Please fill in the form."))
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        schema |= {"required": required} if required else {}
        answer = await ctx.session.elicit_form(message, schema, ctx.request_id)
        return text_result(f"{intro}: action={answer.action}, content={answer.content}")

    return handle


async def ask_name(ctx: Context, params: types.CallToolRequestParams) -> Result:
    answer = accepted(params, "user_name")
    if answer is None or answer.content is None or not isinstance(answer.content.get("name"), str):
        return types.InputRequiredResult(input_requests={"user_name": form("What is your name?", "name")})
    return text_result(f"Hello, {answer.content['name']}!")


async def ask_sampling(ctx: Context, params: types.CallToolRequestParams) -> Result:
    answer = (params.input_responses or {}).get("capital_question")
    if not isinstance(answer, types.CreateMessageResult):
        request = question_to_model("What is the capital of France?", 100)
        return types.InputRequiredResult(input_requests={"capital_question": request})
    content = answer.content
    return text_result(f"The model says: {content.text if isinstance(content, types.TextContent) else content}")


async def ask_roots(ctx: Context, params: types.CallToolRequestParams) -> Result:
    answer = (params.input_responses or {}).get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return types.InputRequiredResult(input_requests={"client_roots": types.ListRootsRequest()})
    return text_result("Roots: " + ", ".join(str(root.uri) for root in answer.roots))


async def ask_with_state(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if params.request_state != "confirming" or accepted(params, "confirm") is None:
        request = form("Please confirm", "ok", "boolean")
        return types.InputRequiredResult(input_requests={"confirm": request}, request_state="confirming")
    return text_result("state-ok")


async def ask_several(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if params.request_state != "several" or len(params.input_responses or {}) < 3:
        requests: types.InputRequests = {
            "user_name": form("What is your name?", "name"),
            "greeting": question_to_model("Generate a greeting", 50),
            "client_roots": types.ListRootsRequest(),
        }
        return types.InputRequiredResult(input_requests=requests, request_state="several")
    return text_result("All inputs received.")


async def ask_rounds(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if params.request_state == "round-1" and accepted(params, "step1") is not None:
        request = form("Step 2: What is your favorite color?", "color")
        return types.InputRequiredResult(input_requests={"step2": request}, request_state="round-2")
    if params.request_state == "round-2" and accepted(params, "step2") is not None:
        return text_result("Both steps are done.")
    request = form("Step 1: What is your name?", "name")
    return types.InputRequiredResult(input_requests={"step1": request}, request_state="round-1")


async def ask_supported(ctx: Context, params: types.CallToolRequestParams) -> Result:
    able = ctx.session.client_capabilities or types.ClientCapabilities()
    requests: types.InputRequests = {}
    if able.elicitation is not None:
        requests["user_name"] = form("What is your name?", "name")
    if able.sampling is not None:
        requests["greeting"] = question_to_model("Generate a greeting", 50)
    return types.InputRequiredResult(input_requests=requests, request_state="capabilities")


async def need_sampling(ctx: Context, params: types.CallToolRequestParams) -> Result:
    able = ctx.session.client_capabilities
    if able is None or able.sampling is None:
        data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", data)
    return text_result("The client can sample.")


async def echo(ctx: Context, params: types.CallToolRequestParams) -> Result:
    return text_result(str(params.arguments))


async def reconnect(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    return text_result("Reconnection test completed successfully.")


def described(name: str, handler: Handler, schema: dict[str, Any] | None = None) -> tuple[types.Tool, Handler]:
    tool = types.Tool(name=name, description=f"{name} of the suite.", input_schema=schema or NO_ARGUMENTS)
    return tool, handler


def text_argument(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


PERSON = ["username", "email"]
_INPUT = "test_input_required_result_"
TOOLS = {
    tool.name: (tool, handler)
    for tool, handler in (
        described("test_tool_with_logging", log),
        described("test_sampling", sample, text_argument("prompt")),
        described(
            "test_elicitation",
            elicit({name: {"type": "string"} for name in PERSON}, PERSON, "User response"),
            text_argument("message"),
        ),
        described("test_elicitation_sep1034_defaults", elicit(DEFAULTS, [], "Elicitation completed")),
        described("test_elicitation_sep1330_enums", elicit(ENUMS, [], "Elicitation completed")),
        described(f"{_INPUT}elicitation", ask_name),
        described(f"{_INPUT}sampling", ask_sampling),
        described(f"{_INPUT}list_roots", ask_roots),
        described(f"{_INPUT}request_state", ask_with_state),
        described(f"{_INPUT}tampered_state", ask_with_state),
        described(f"{_INPUT}multiple_inputs", ask_several),
        described(f"{_INPUT}multi_round", ask_rounds),
        described(f"{_INPUT}capabilities", ask_supported),
        described("test_missing_capability", need_sampling),
        described("test_reconnection", reconnect),
        described("json_schema_2020_12_tool", echo, JSON_SCHEMA),
        described("test_headers", echo, HEADER_SCHEMA),
    )
}
