"""Shared behaviour of built-in tools: names, descriptions, effects, repairs and stored outputs."""

import hashlib
from pathlib import Path

import msgspec
import pytest

import vaka
from tests.tools.builtin.harness import ToolHarness, value_of
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import Digest
from vaka.core.types.message import Stored
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.tools.builtin import OPT_IN, TOOLS, builtin_tools, import_tool
from vaka.tools.builtin.builtin_tool import BuiltinTool, output_digest_of, output_name_of, store_output

FILES = {
    "Read": "read",
    "Glob": "read",
    "Grep": "read",
    "Write": "idempotent",
    "Edit": "idempotent",
    "MultiEdit": "idempotent",
    "NotebookEdit": "idempotent",
}


@pytest.mark.parametrize("name", FILES)
def test_each_built_in_tool_has_its_layer_and_effect(name: str) -> None:
    (tool,) = builtin_tools([name])
    spec = tool.spec
    assert (spec.name, spec.layer, spec.effect) == (name, "builtin", FILES[name])
    assert spec.timeout is not None
    assert spec.timeout <= 60
    assert spec.description == spec.description.strip()
    assert len(spec.description) > 100
    assert tool.spec is spec
    assert repr(tool) == f"DeferredTool({name!r})"
    assert repr(import_tool(name)) == f"BuiltinTool({name!r})"


def test_the_definitions_of_all_built_in_tools_take_at_most_12_kib_of_a_prompt() -> None:
    specs = [tool.spec for tool in builtin_tools()]
    sizes = {s.name: len(msgspec.json.encode((s.name, s.description, s.parameters))) for s in specs}
    assert sum(sizes.values()) <= 12 * 1024, sizes


def test_built_in_tools_are_found_by_name_and_unknown_names_are_errors() -> None:
    assert [tool.spec.name for tool in builtin_tools(["Grep", "Read"])] == ["Grep", "Read"]
    assert {tool.spec.name for tool in builtin_tools()} == set(TOOLS) - OPT_IN
    assert {tool.spec.name for tool in builtin_tools(TOOLS)} == set(TOOLS)
    assert list(TOOLS) == sorted(TOOLS)
    with pytest.raises(InvalidInput, match="there is no built-in tool 'Raed', did you mean 'Read'"):
        builtin_tools(["Raed"])


def read_tool() -> Tool:
    return builtin_tools(["Read"])[0]


@pytest.mark.parametrize(
    ("raw", "offset", "repaired"),
    [
        ('{"file_path": "a", "offset": "3"}', 3, "offset '3' read as 3"),
        ({"file_path": "a", "offset": " 12 "}, 12, "offset ' 12 ' read as 12"),
        ('{"file_path": "a", "offset": 3}', 3, ""),
    ],
)
def test_a_number_written_as_text_is_read_as_a_number(
    raw: "str | dict[str, object]", offset: int, repaired: str
) -> None:
    read = read_tool().parse(raw)
    assert isinstance(read, ParsedArguments)
    assert (read.value["offset"], read.repaired) == (offset, repaired)


@pytest.mark.parametrize(
    ("name", "raw", "meant"),
    [
        ("Bash", '{"command": "true", "timeout": 2.0}', {"command": "true", "timeout": 2}),
        ("Grep", '{"pattern": "a", "head_limit": 5.0, "-i": "yes"}', {"pattern": "a", "head_limit": 5, "-i": True}),
        ("Read", '{"file_path": "a", "limit": 7.0}', {"file_path": "a", "limit": 7}),
    ],
)
def test_an_integer_may_be_written_with_a_decimal_point(name: str, raw: str, meant: dict[str, object]) -> None:
    (tool,) = builtin_tools([name])
    read = tool.parse(raw)
    assert isinstance(read, ParsedArguments)
    assert repr(read.value) == repr(meant)


@pytest.mark.parametrize(
    "raw",
    [
        '{"file_path": "a", "offset": "three"}',
        '{"file_path": "a", "offset": "0"}',
        '{"offset": "3"}',
        "[",
        "[1]",
        '{"file_path": 3}',
    ],
)
def test_an_argument_that_cannot_be_repaired_stays_an_error(raw: str) -> None:
    assert isinstance(read_tool().parse(raw), InvalidArguments)


@pytest.mark.parametrize(
    ("word", "meant"), [("yes", True), ("TRUE", True), (1, True), ("no", False), ("false", False), (0, False)]
)
def test_a_boolean_written_as_text_is_read_as_a_boolean(word: object, meant: bool) -> None:
    (edit,) = builtin_tools(["Edit"])
    arguments = {"file_path": "a", "old_string": "1", "new_string": "2", "replace_all": word}
    read = edit.parse(arguments)
    assert isinstance(read, ParsedArguments)
    assert read.value["replace_all"] is meant
    assert isinstance(edit.parse({**arguments, "replace_all": "perhaps"}), InvalidArguments)


@vaka.tool(effect="read")
async def recite(context: ToolContext, lines: int) -> Stored:
    """Say much."""
    return await store_output(context, "".join(f"line {number} of many\n" for number in range(1, lines + 1)))


async def test_a_long_output_is_shown_in_part_and_read_again_by_its_name(tmp_path: Path) -> None:
    text = "".join(f"line {number} of many\n" for number in range(1, 3001))
    name = output_name_of(Digest(hashlib.sha256(text.encode()).hexdigest()))
    bench = ToolHarness(tmp_path, tools=[*builtin_tools(["Read"]), recite])
    recited, page, missing, wrong = await bench.run_calls(
        ("recite", {"lines": 3000}),
        ("Read", {"file_path": name, "offset": 1500, "limit": 2}),
        ("Read", {"file_path": "output:" + "0" * 64}),
        ("Read", {"file_path": "output:me"}),
    )
    assert recited.text.startswith("line 1 of many\nline 2 of many")
    assert recited.text.endswith("line 3000 of many\n")
    assert f"lines) left out; the whole is {name}: give that to Read as file_path, or to read_output" in recited.text
    assert len(recited.text) < 5000
    assert (
        page.text
        == "  1500\tline 1500 of many\n  1501\tline 1501 of many\n[lines 1500 to 1501 of 3000; go on with offset=1502]"
    )
    assert value_of(page)["path"] == name
    assert missing.text == f"FileMissing: output:{'0' * 64} is not stored (any more)"
    assert "is not an output" in wrong.text
    results = [result for message in bench.last_messages for result in getattr(message, "results", ())]
    assert results[0].content[0].text == recited.text


async def test_a_short_output_is_shown_whole(tmp_path: Path) -> None:
    bench = ToolHarness(tmp_path, tools=[*builtin_tools(["Read"]), recite])
    assert (await bench.call("recite", lines=2)).text == "line 1 of many\nline 2 of many\n"


def test_only_digests_are_names_of_outputs() -> None:
    digest = Digest("a" * 64)
    assert output_digest_of(output_name_of(digest)) == digest
    assert [
        output_digest_of(name) for name in ("output:", "output:" + "A" * 64, "x" + output_name_of(digest), "a.txt")
    ] == [None] * 4


@pytest.mark.parametrize("name", TOOLS)
def test_the_stored_spec_of_a_tool_is_that_of_its_function(name: str) -> None:
    (tool,) = builtin_tools([name])
    made = import_tool(name)
    assert isinstance(made, BuiltinTool)
    assert (tool.spec, tool.spec.digest) == (made.spec, made.spec.digest)
    assert msgspec.json.encode(tool.spec) == msgspec.json.encode(made.spec)
