"""Traits that tools declare about themselves restrict their calls, and never allow one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import vaka
from tests.policy.decisions import list_cases
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import Workspace
from vaka.core.ports.policy import Policy
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import UNTRUSTED_LAYER, Allow, Ask, Deny, Effect, Grant, Layer, Mode, ToolSpec, Verdict
from vaka.core.types.traits import ToolTraits
from vaka.policy.decision import STRICTNESS
from vaka.policy.policy import LayeredPolicy
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

WRITING = ToolTraits(writes=True, paths=("name",))
READING = ToolTraits(reads=True, paths=("name",))
SEARCHING = ToolTraits(reads=True, folders=("folder",), pattern="pattern")
HARMLESS = (READING, SEARCHING, ToolTraits(session=True), ToolTraits(reads=True), ToolTraits(network=True, url="url"))
RULES = Layer(
    name="flag",
    deny=("Read(.env)", "Read(secrets/**)"),
    ask=("Edit(docs/**)",),
    allow=("Edit(src/**)", "Read(~/notes/**)"),
)


def judge(
    traits: ToolTraits,
    *,
    layer: str = "code",
    mode: str = "default",
    rules: Layer = RULES,
    grants: Sequence[Grant] = (),
    parameters: dict[str, Any] | None = None,
    **arguments: Any,
) -> Verdict:
    effect: Effect = "read" if layer == "mcp" else "once"
    spec = ToolSpec(name="own", layer=layer, effect=effect, parameters=parameters or {})
    layered = LayeredPolicy([rules, Layer(name="mode", mode=mode)], cwd="/nowhere", home="/nowhere/home")
    policy: Policy = layered.for_call(spec, (), lambda _: None, traits)
    if grants:
        assert isinstance(policy, LayeredPolicy)
        policy = policy.with_grants(grants)
    return policy.judge(ToolCall(id=CallId("c"), name="own", arguments=arguments), spec, ())


def test_a_rule_about_files_holds_for_a_tool_of_the_program_that_declares_its_files() -> None:
    assert isinstance(judge(READING, name=".env"), Deny)
    assert isinstance(judge(WRITING, name=".env"), Deny)
    assert isinstance(judge(WRITING, name="docs/a.md"), Ask)
    assert isinstance(judge(READING, name="docs/a.md"), Allow), "the rule asks about changes"
    assert isinstance(judge(SEARCHING, folder="docs", pattern="*.md"), Allow)
    assert isinstance(judge(SEARCHING, folder="docs", pattern="../*"), Allow), "no rule says what it may not search"
    assert isinstance(judge(WRITING, name="other.md"), Allow), "it was handed over in code"


def test_all_files_and_folders_count_that_a_tool_declares() -> None:
    pack = ToolTraits(reads=True, writes=True, commands=True, paths=("name",), folders=("folder",), command="command")
    assert isinstance(judge(pack, name="out.zip", folder="src", command="zip"), Allow)
    assert isinstance(judge(pack, name=".env", folder="src", command="zip"), Deny)
    assert isinstance(judge(pack, name="out.zip", folder="secrets", command="zip"), Deny)
    assert isinstance(judge(pack, name="docs/out.zip", folder="src", command="zip"), Ask)


def test_an_argument_that_is_not_given_names_its_default_or_no_file() -> None:
    assert isinstance(judge(WRITING), Allow)
    for default, verdict in ((".env", Deny), ("docs/a.md", Ask), ("a.md", Allow), (None, Allow)):
        assert isinstance(judge(WRITING, parameters={"properties": {"name": {"default": default}}}), verdict)


def test_a_person_is_asked_before_a_tool_that_declares_its_files_changes_a_protected_one() -> None:
    asked = judge(WRITING, name=".git/config")
    assert isinstance(asked, Ask)
    assert asked.layer == "protected"
    assert isinstance(judge(READING, name=".git/config"), Allow)


def test_an_approval_of_one_file_answers_the_rule_that_asked() -> None:
    asked = judge(WRITING, name="docs/a.md")
    assert isinstance(asked, Ask)
    grant = Grant(rule="Edit(//nowhere/docs/a.md)", answers=tuple(asked.rule_names))
    assert isinstance(judge(WRITING, grants=[grant], name="docs/a.md"), Allow)
    assert isinstance(judge(WRITING, grants=[grant], name="docs/b.md"), Ask)


def test_a_file_that_is_not_named_by_a_string_is_asked_about_where_rules_are_about_files() -> None:
    assert isinstance(judge(WRITING, name=["a"]), Ask)
    assert isinstance(judge(WRITING, name=["a"], rules=Layer(name="flag")), Allow)


@pytest.mark.parametrize("traits", HARMLESS)
@pytest.mark.parametrize("layer", ["mcp", UNTRUSTED_LAYER, "project", "user"])
def test_a_foreign_tool_that_declares_itself_harmless_is_still_asked_about(layer: str, traits: ToolTraits) -> None:
    calls: tuple[dict[str, Any], ...] = ({"name": "src/a.py"}, {"folder": "src", "pattern": "*"}, {})
    for arguments in calls:
        assert isinstance(judge(traits, layer=layer, **arguments), Ask)
        assert isinstance(judge(traits, layer=layer, mode="plan", **arguments), Deny)
        assert isinstance(judge(traits, layer=layer, mode="acceptEdits", **arguments), Ask)


def test_no_traits_make_any_decision_milder() -> None:
    declared = (WRITING, *HARMLESS, ToolTraits(reads=True, paths=("file_path", "path")), ToolTraits(writes=True))
    for mode in get_args(Mode):
        policy = LayeredPolicy([RULES, Layer(name="mode", mode=mode)], cwd="/nowhere", home="/nowhere/home")
        for case in list_cases():
            before = policy.decide(case.spec, case.arguments).decision
            for traits in declared:
                judging = policy.for_call(case.spec, (), lambda _: None, traits)
                after = judging.decide(case.spec, case.arguments).decision if judging is not policy else before
                assert STRICTNESS[after] >= STRICTNESS[before], (mode, case.name, traits)


def test_a_built_in_tool_is_judged_by_what_vaka_knows_about_it() -> None:
    spec = ToolSpec(name="Write", layer="builtin")
    policy = LayeredPolicy([RULES], cwd="/nowhere", home="/nowhere/home")
    assert policy.for_call(spec, (), lambda _: None, READING) is policy


async def test_a_denied_file_is_not_written_by_a_tool_that_declares_it(tmp_path: Path) -> None:
    @vaka.tool(traits=WRITING)
    def save(name: str) -> str:
        """Save a file."""
        (tmp_path / name).write_text("x")
        return "saved"

    store, model = MemoryStore(), ScriptedModel(call("save", name=".env"), call("save", name="a"), say("done"))
    async with runtime(
        store, workspace=Workspace(cwd=str(tmp_path)), permissions=vaka.Permissions(deny=["Read(.env)"])
    ) as rt:
        await (await rt.open(agent(model, save), id="s")).run("Go.")
    results = list(results_by_call(await read_log(store, "s")).values())
    assert [result.reason for result in results] == ["denied", ""]
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_pending_approval_outlives_new_traits_of_its_tool() -> None:
    @vaka.tool
    def save(name: str) -> str:
        """Save a file."""
        return name

    described = vaka.tool(save.function, traits=WRITING)
    assert described.spec.digest == save.spec.digest
    assert msgspec.json.encode(described.spec) == msgspec.json.encode(save.spec)
