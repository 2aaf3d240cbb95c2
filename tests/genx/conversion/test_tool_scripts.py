"""Converted tools do what the definitions they come from do: jq expressions, requests, model calls and steps."""

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

import vaka
from tests.net.http_server import ReceivedRequest, encode_response, serve
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import NetworkAccess, Scripts
from vaka.core.ports.model import Prompt
from vaka.core.types.message import ToolMessage, ToolResult, text_of
from vaka.genx.conversion.jq_parser import UntranslatableJq
from vaka.genx.conversion.jq_translation import JqTranslator
from vaka.genx.conversion.tool_scripts import MAX_TIMEOUT, UnconvertedTool, convert_tool, luau_value
from vaka.genx.kinds.composite import CompositeTool, ToolStep
from vaka.genx.kinds.generator import GeneratorTool, TextProcessorTool
from vaka.genx.kinds.http import HttpTool
from vaka.genx.kinds.jq import JqProgram
from vaka.luau.host import http
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

DATA: dict[str, Any] = {
    "a": 42.0,
    "b": "text",
    "c": {"d e": [1, 2.5, "x"], "end": True},
    "none": None,
    "no": False,
    "empty": [],
    "items": [{"name": "pen", "n": 3, "tags": ["A", "b"]}, {"name": "ink", "n": 1.5, "tags": []}],
    "json": '{"k": [1]}',
}
EXPRESSIONS = [
    ".",
    ".a",
    '.c["d e"][0]',
    '.c."d e"[-1]',
    ".c.end",
    ".missing.deep",
    ".items[1].name",
    ".items[].name",
    "[.items[].name]",
    "[.items[] | {name, size: (.n | tostring)}]",
    '.items | map(.name) | join(", ")',
    "[.items[] | select(.n > 2) | .name]",
    '.items[] | select(.name == "ink") | .n',
    "[.items[].tags[]]",
    "[.items[] | [.name, .n]]",
    "[.items[] | .name, .n]",
    ".empty",
    "[.empty[]]",
    ".items | length",
    ".b | length",
    "[.items[] | .tags | length]",
    "42.0 | tostring",
    '(.a | tostring) + " " + .b',
    ".a + 1",
    "{} + {x: 1} + .c",
    "[1] + [2]",
    ".none + 1",
    '"\\(.b): \\(.a) \\(.c.end) \\(.items[0].tags | join("-"))\\n\\u00e9"',
    '.none // "default"',
    ".no // .a",
    ".a // 1",
    "if .no then 1 elif .a == 42 then .b else 3 end",
    "if .no then 1 else 2 end",
    "if .b then .a end",
    ".json | fromjson | .k[0]",
    "[1, 2] | tojson",
    ".c | keys",
    ".items | first | .name",
    ".items | last.n",
    "first(.items[] | .n)",
    ".items | map(.n) | add",
    "[.items[] | .name | ascii_upcase]",
    '"A" | ascii_downcase',
    "[(.a > 1 and .no), (.a > 1 or .no), (.no | not)]",
    ".a * 2 - 1",
    "-1",
    "[3 / 2, 7 % 4]",
    '["7" | tonumber]',
    '"a,b" | split(",")',
    '[has("a"), has("zz")]',
    '{(.b): .a, "x y": 1, end: 2}',
    '.c | {end, n: (.["d e"] | length)}',
    "[.items[] | {t: [.tags[] | {v: .}]}]",
    "[]",
    "{}",
    '"]] \\" ` {"',
    ". | .a?",
    "[.items[] | select(.n > 9)]",
    "[.items[0].tags[], .b]",
    ".c | map(1) | length",
    '.c["d e"] | [length, .[0], (.[1] | [., .]), {n: length}, "\\(length)", [.[] | tostring]]',
    ".items | if length > 1 then .[0].n else null end",
    "[.items[] | if .n > 2 then .name else .n end]",
    "[.items[] | .n | . * 2]",
    "[.empty[], 1][]",
]


async def run_tool(
    tool: Any, arguments: dict[str, Any], answers: dict[str, list[Any]] | None = None, **options: Any
) -> ToolResult:
    """Return the result of one call of a tool."""
    store, name = MemoryStore(), tool.spec.name
    model = ScriptedModel(call(name, **arguments), say("done"), agents=answers or {})
    async with runtime(store, **{"permissions": vaka.Permissions(mode="bypassPermissions"), **options}) as rt:
        await (await rt.open(agent(model, tool), id="s")).run("Go.")
    return results_by_call(await read_log(store, "s"))["call_1"]


def message_texts(prompt: Prompt) -> list[str]:
    return [text_of(message.content) for message in prompt.messages if not isinstance(message, ToolMessage)]


async def test_translated_expressions_have_the_results_of_jq() -> None:
    translator, lines = JqTranslator(), list[str]()
    for number, expression in enumerate(EXPRESSIONS):
        lines.append(f"results.e{number} = {translator.translate(expression, 'args')}")
    body = "\n".join(["local results = {}", *lines, "return results"])
    script = f"{translator.helpers}\nfunction invoke(ctx, args)\n{body}\nend"
    found = (await run_tool(vaka.LuauTool(script, name="jq"), DATA)).value

    def without_nulls(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_nulls(item) for key, item in value.items() if item is not None}
        return [without_nulls(item) for item in value] if isinstance(value, list) else value

    wrong = [
        (expression, result, found.get(f"e{number}"))
        for number, expression in enumerate(EXPRESSIONS)
        if (result := without_nulls(await JqProgram(expression).first(DATA))) != found.get(f"e{number}")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("reduce .[] as $x (0; .)", "'reduce' cannot be translated"),
        (". as $x | $x", "'as' cannot be translated"),
        (".a == .b", "'==' between two computed values"),
        (".a - .b", "'-' between two computed values"),
        ("..", "'..' cannot be translated"),
        ('gsub("a"; "b")', "the function gsub/2"),
        ("now | todate", "the function todate/0"),
        (".a[1:2]", "':' cannot be translated"),
        ("@base64", "'@' cannot be translated"),
        ("{$x}", "'$' cannot be translated"),
        (".a |", "the expression is incomplete"),
        ('"abc', "a string does not end"),
        ("~", "'~' cannot be translated"),
        ("{a: (.x[], .y)}", "an object with several results"),
        ("[.x[] + 1]", "several results of binary"),
        ("empty", "several results"),
        ("[.a[0, 1]]", "several results of index"),
        ("1 2", "'2' cannot be translated"),
        ("(1", "the expression is incomplete"),
        ('"\\(1;2)"', "';' cannot be translated"),
    ],
)
def test_an_expression_outside_of_the_translated_part_says_what_is_outside(expression: str, message: str) -> None:
    with pytest.raises(UntranslatableJq) as caught:
        JqTranslator().translate(expression, "args")
    assert message in str(caught.value)


async def answer(request: ReceivedRequest, writer: Any) -> None:
    """Answer with the request, or with what its path names."""
    path = request.target.split("?")[0]
    answers = {
        "/missing": encode_response(b"no such page", "404 Not Found"),
        "/text": encode_response(b"hello"),
        "/nothing": encode_response(b"", "204 No Content"),
    }
    headers = {key.lower(): value for key, value in request.headers if key.lower() in ("authorization", "x-key")}
    body = json.loads(request.body) if request.body.startswith((b"{", b"[")) else request.body.decode()
    parameters = sorted(parse_qsl(request.target.partition("?")[2]))
    sent = {"method": request.method, "path": path, "query": parameters, "body": body, "headers": headers}
    writer.write(answers.get(path) or encode_response(json.dumps(sent).encode()))


HTTP_CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"endpoint": "/u/{id}/n?q={q}&lang=d%20e&page={page}&x=a{q}b&$$top=1"},
        {"id": "a/b?", "q": "ü &", "more": [1, True]},
    ),
    (
        {"endpoint": "/q?tag={t}", "query": {"n": "{n}", "who": "{id}-$WHO", "none": "{none}"}},
        {"t": "x", "n": [1, 2], "id": 7},
    ),
    ({"endpoint": "/p/{id}", "params": {"id": {"type": "string"}}, "headers": {"X-Key": "k $WHO"}}, {"id": "x"}),
    (
        {"endpoint": "/p", "method": "POST", "auth": {"type": "bearer", "token": "$WHO"}},
        {"text": "hi", "n": 1.0, "list": []},
    ),
    (
        {
            "endpoint": "/p",
            "method": "PUT",
            "auth": {"type": "basic", "token": "ada:l"},
            "req_body_jq": "{note: .text}",
        },
        {"text": "hi"},
    ),
    (
        {"endpoint": "/p", "method": "DELETE", "auth": {"type": "basic", "username": "ad", "password": "$WHO"}},
        {"id": 3},
    ),
    ({"endpoint": "$BASE/p", "resp_body_jq": '[.method, .path] | join(" ")'}, {}),
    ({"endpoint": "/missing"}, {}),
    ({"endpoint": "/text"}, {}),
    ({"endpoint": "/nothing"}, {}),
    ({"endpoint": "/u/{id}"}, {"id": ".."}),
    ({"endpoint": "/p", "resp_body_jq": ".path.x"}, {}),
    ({"endpoint": "/p", "headers": {"X-Key": "$OTHER"}}, {}),
    ({"endpoint": "/p", "max_response_size_mb": 0.00001}, {}),
]


async def test_a_converted_http_tool_sends_the_same_requests() -> None:
    async with serve(answer) as server, Connector(NetworkRules(trusted=(server.authority,))) as network:
        env = {"WHO": "lee", "BASE": server.url("")}
        for fields, arguments in HTTP_CASES:
            endpoint = fields["endpoint"]
            document = fields | {"endpoint": endpoint if endpoint.startswith("$") else server.url(endpoint)}
            script = convert_tool(
                {"type": "http", "name": "look", "description": "Look.\nTwice.", **document}, "tools/look.yaml:1"
            )
            assert script.startswith(
                "-- Look.\n-- Twice.\n-- Converted from the http tool 'look' of tools/look.yaml:1.\n"
            )
            original = await run_tool(
                HttpTool("look", **document), arguments, network=NetworkAccess(client=network), scripts=Scripts(env=env)
            )
            converted = await run_tool(
                vaka.LuauTool(script, name="look", params=fields.get("params")),
                arguments,
                network=NetworkAccess(client=network),
                scripts=Scripts(env=env),
            )
            assert (converted.failed, converted.value) == (original.failed, original.value), (
                fields,
                converted,
                original,
            )
            if not original.failed:
                assert converted.text == original.text or original.value is not None
            elif endpoint in ("/missing", "/u/{id}"):
                assert original.text in converted.text


async def test_converted_steps_and_model_calls_give_the_same_results() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    poet = {
        "type": "generator",
        "name": "map",
        "model": "default",
        "prompt": "Rhyme [[well]].\nAlways.",
        "context": ["In C."],
    }
    count = {"type": "generator", "name": "count", "model": "default", "mode": "json_output", "output_schema": schema}
    last = "{text: (.input.input + (.steps.in.n | tostring))}"
    cut = {"type": "text_processor", "name": "cut", "model": "default", "prompt": "Cut."}
    inner = {"type": "composite", "name": "inner", "steps": [{"id": "c", "tool": cut}, {"id": "n", "tool": count}]}
    steps = [
        {"id": "poem", "tool": poet},
        {"id": "in", "tool": inner},
        {
            "id": "end",
            "tool": {"type": "invoke", "name": "shout"},
            "input_jq": last,
        },
    ]

    @vaka.tool
    async def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    tools = {
        "map": GeneratorTool("map", model="default", prompt="Rhyme [[well]].\nAlways.", context=["In C."]),
        "cut": TextProcessorTool("cut", model="default", prompt="Cut."),
        "count": GeneratorTool("count", model="default", mode="json_output", output_schema=schema),
    }
    nested = CompositeTool("inner", steps=[ToolStep("c", tools["cut"]), ToolStep("n", tools["count"])])
    original = CompositeTool(
        "all",
        steps=[ToolStep("poem", tools["map"]), ToolStep("in", nested), ToolStep("end", shout, last)],
    )
    answers: dict[str, list[Any]] = {
        "map": [say('{"x": 1}')],
        "cut": [say("cut")],
        "count": [say("three"), say('{"n": 3}')],
    }
    expected = await run_tool(original, {"input": "sea"}, answers)
    script = convert_tool({"type": "composite", "name": "all", "steps": steps})
    tool = vaka.LuauTool(script, name="all", params={"input": {"type": "string"}})
    store, model = (
        MemoryStore(),
        ScriptedModel(
            call("all", input="sea"),
            say("done"),
            agents={"all": [line for lines in answers.values() for line in lines]},
        ),
    )
    async with runtime(store, permissions=vaka.Permissions(mode="bypassPermissions")) as rt:
        await (await rt.open(agent(model, tool, shout), id="s")).run("Go.")
    assert results_by_call(await read_log(store, "s"))["call_1"].text == expected.text == "SEA3"
    asked = [(prompt.system.split("\n\nAnswer")[0], message_texts(prompt)[0]) for prompt in model.prompts[1:-1]]
    assert asked[0] == ("Rhyme [[well]].\nAlways.\n\nIn C.", "sea")
    assert asked[1:3] == [("Cut.", '{"x":1}'), (asked[2][0], "cut")]


async def test_variables_in_a_prompt_are_read_when_the_tool_runs() -> None:
    tool = {
        "type": "generator",
        "name": "g",
        "model": "default",
        "context": ["One.", {"env": "A"}, {"env": "B"}],
        "options": {"seed": 1},
    }
    script = convert_tool(tool)
    model = ScriptedModel(call("g", input="x"), say("done"), agents={"g": [say("ok")]})
    async with runtime(
        permissions=vaka.Permissions(mode="bypassPermissions"), scripts=Scripts(env={"A": "Two."})
    ) as rt:
        await (await rt.open(agent(model, vaka.LuauTool(script, name="g")))).run("Go.")
    assert (model.prompts[1].system, model.prompts[1].options) == ("One.\n\nTwo.", {"seed": 1})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resp_body_jq": "reduce .[] as $x (0; .)"}, "resp_body_jq \"reduce .[] as $x (0; .)\": 'reduce' cannot"),
        ({"endpoint": "https://a/?{x}=1"}, "the query parameter '{x}' has a name that is not constant"),
        ({"timeout": 200}, "the timeout of 200 s is longer"),
    ],
)
def test_a_tool_without_an_equivalent_says_why(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UnconvertedTool) as caught:
        convert_tool({"type": "http", "name": "t", "endpoint": "https://a/", **fields})
    assert message in str(caught.value)


def test_the_longest_timeout_is_that_of_scripts() -> None:
    assert MAX_TIMEOUT == http.MAX_TIMEOUT


def test_data_becomes_tables_and_null_has_none() -> None:
    assert luau_value({"a b": [1, True, "x\ty"], "end": {}, "l": []}) == (
        '{ ["a b"] = { 1, true, "x\\x09y" }, ["end"] = {}, l = ctx.json.decode("[]") }'
    )
    with pytest.raises(UnconvertedTool, match="null"):
        luau_value([None])
    step = {"id": "a", "tool": {"type": "http", "name": "t", "endpoint": "https://a/"}}
    other = {"id": "b", "tool": {"type": "http", "name": "t", "endpoint": "https://b/"}}
    with pytest.raises(UnconvertedTool, match="two steps have different tools"):
        convert_tool({"type": "composite", "name": "c", "steps": [step, other]})
