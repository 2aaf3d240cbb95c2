"""Rules by tool name: deny over ask over allow, and the mode where no rule speaks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.ports.policy import Policy
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Allow, Ask, Deny, Effect, ToolSpec, Verdict
from vaka.policy.decision import MODES, Mode, parse_mode
from vaka.policy.names import NamePolicy, combine


def make_spec(name: str = "Bash", *, effect: Effect = "once", layer: str = "builtin") -> ToolSpec:
    return ToolSpec(name=name, effect=effect, layer=layer)


def judge_tool(policy: Policy, tool: ToolSpec) -> Verdict:
    return policy.judge(ToolCall(id=CallId("call_1"), name=tool.name), tool, ())


# -------------------------------------------------------------------------------- precedence


def test_deny_wins_over_ask_and_ask_over_allow() -> None:
    everything = NamePolicy(deny=["Bash"], ask=["Bash"], allow=["Bash"])
    assert judge_tool(everything, make_spec()) == Deny("Bash is denied by the rule 'Bash'", "Bash", "flag")
    asked = NamePolicy(ask=["Bash"], allow=["Bash"])
    assert judge_tool(asked, make_spec()) == Ask("the rule 'Bash' asks about Bash", "Bash", "flag")
    assert judge_tool(NamePolicy(allow=["Bash"]), make_spec()) == Allow("Bash", "flag")


@pytest.mark.parametrize("mode", MODES)
def test_rules_win_over_every_mode(mode: str) -> None:
    assert isinstance(judge_tool(NamePolicy(mode, deny=["Bash"]), make_spec(layer="code")), Deny)
    assert judge_tool(NamePolicy(mode, allow=["Bash"]), make_spec()) == Allow("Bash", "flag")


@pytest.mark.parametrize("layer", ["code", "builtin"])
def test_deny_and_ask_rules_win_over_handing_a_tool_over(layer: str) -> None:
    assert isinstance(judge_tool(NamePolicy(deny=["Bash"]), make_spec(layer=layer)), Deny)
    assert isinstance(judge_tool(NamePolicy(ask=["Bash"]), make_spec(layer=layer)), Ask)


def test_an_ask_rule_in_a_mode_that_never_asks_denies() -> None:
    verdict = judge_tool(NamePolicy("dontAsk", ask=["Bash"], allow=["Bash"]), make_spec(layer="code"))
    assert verdict == Deny("the rule 'Bash' asks about Bash, and nobody is to be asked", "Bash", "flag")
    assert isinstance(judge_tool(NamePolicy("bypassPermissions", ask=["Bash"]), make_spec()), Ask)


# -------------------------------------------------------------------------------- nothing matched

ALLOWED_BY_CODE = Allow("Bash", "code")
ASKED = Ask("Bash may change something", "default", "mode")


@pytest.mark.parametrize(
    ("mode", "effect", "expected"), [
        ("default", "read", Allow("default", "mode")),
        ("default", "once", ASKED),
        ("default", "idempotent", ASKED),
        ("default", "resume", ASKED),
        ("acceptEdits", "read", Allow("acceptEdits", "mode")),
        ("acceptEdits", "once", Ask("Bash may change something", "acceptEdits", "mode")),
        ("plan", "read", Allow("plan", "mode")),
        ("plan", "once", Deny("Bash may change something, and in plan mode nothing is changed", "plan", "mode")),
        ("dontAsk", "read", Deny("Bash is not among the tools that were allowed beforehand", "dontAsk", "mode")),
        ("dontAsk", "once", Deny("Bash is not among the tools that were allowed beforehand", "dontAsk", "mode")),
        ("bypassPermissions", "read", Allow("bypassPermissions", "mode")),
        ("bypassPermissions", "once", Allow("bypassPermissions", "mode")),
    ]
)  # fmt: skip
def test_the_mode_decides_about_tools_from_elsewhere(mode: Mode, effect: Effect, expected: Verdict) -> None:
    assert judge_tool(NamePolicy(mode), make_spec(effect=effect)) == expected


@pytest.mark.parametrize("effect", ["read", "once", "idempotent", "resume"])
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "dontAsk", "bypassPermissions"])
def test_a_tool_handed_over_in_code_is_allowed_by_that_act(mode: Mode, effect: Effect) -> None:
    assert judge_tool(NamePolicy(mode), make_spec(effect=effect, layer="code")) == ALLOWED_BY_CODE


def test_planning_changes_nothing_not_even_with_tools_handed_over_in_code() -> None:
    policy = NamePolicy("plan")
    assert judge_tool(policy, make_spec(effect="read", layer="code")) == ALLOWED_BY_CODE
    assert isinstance(judge_tool(policy, make_spec(effect="once", layer="code")), Deny)
    assert judge_tool(NamePolicy("plan", allow=["Bash"]), make_spec(effect="once", layer="code")) == Allow(
        "Bash", "flag"
    )


def test_a_mode_nobody_knows_is_refused_with_the_near_one() -> None:
    with pytest.raises(InvalidInput, match="no permission mode 'acceptedits'; did you mean 'acceptEdits'"):
        NamePolicy("acceptedits")
    with pytest.raises(InvalidInput, match="the modes are default, acceptEdits, plan, dontAsk, bypassPermissions"):
        NamePolicy("yolo")
    assert [parse_mode(mode) for mode in MODES] == list(MODES)


# -------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rule", "name", "speaks"), [
        ("Bash", "Bash", True),
        ("Bash", "bash", False),
        ("Bash", "BashOutput", False),
        ("mcp__git", "mcp__git__push", True),
        ("mcp__git", "mcp__github__push", False),
        ("mcp__git", "mcp__git", True),
        ("mcp__git__push", "mcp__git__push", True),
        ("mcp__git__push", "mcp__git__push__all", False),
        ("mcp__git__*", "mcp__git__push", True),
        ("mcp__git__*", "mcp__github__push", False),
        ("mcp__*__push", "mcp__git__push", True),
        ("mcp__*__push", "mcp__push", False),
        ("*", "anything", True),
        ("Web*", "WebFetch", True),
        ("*Fetch", "WebFetch", True),
        ("W*b*tch", "WebFetch", True),
        ("W*x*tch", "WebFetch", False),
        ("We*ebFetch", "WebFetch", False),
        ("a*a", "a", False),
        ("a**b", "ab", True),
    ]
)  # fmt: skip
def test_which_tools_a_rule_speaks_of(rule: str, name: str, speaks: bool) -> None:
    policy = NamePolicy("bypassPermissions", deny=[rule])
    assert isinstance(judge_tool(policy, make_spec(name)), Deny) is speaks
    assert policy.visible(make_spec(name)) is not speaks


def test_allowing_a_server_allows_its_tools_and_no_others() -> None:
    for rule in ("mcp__git", "mcp__git__*", "mcp__git__pu*"):
        policy = NamePolicy(allow=[rule])
        assert judge_tool(policy, make_spec("mcp__git__push")) == Allow(rule, "flag")
        assert isinstance(judge_tool(policy, make_spec("mcp__github__push")), Ask)


@pytest.mark.parametrize("rule", ["*", "Web*", "mcp__*", "mcp__git*", "mcp__*__push", "mcp____*", "xmcp__git__*"])
def test_an_allow_rule_may_not_be_wider_than_a_server(rule: str) -> None:
    with pytest.raises(InvalidInput, match="is too wide"):
        NamePolicy(allow=[rule])
    NamePolicy(ask=[rule], deny=[rule])


@pytest.mark.parametrize("rule", ["Bash(git *)", "Read(./.env)", "Bash()", "Bash(git"])
def test_patterns_are_refused_and_the_name_is_suggested(rule: str) -> None:
    name = rule.partition("(")[0]
    for kind in ("allow", "ask", "deny"):
        with pytest.raises(InvalidInput) as caught:
            NamePolicy(**{kind: [rule]})  # type: ignore[arg-type]  # each of the three lists
        assert str(caught.value) == f"rule {rule!r} has a pattern, but rules go by the tool's name here; write {name!r}"


@pytest.mark.parametrize("rule", ["", " ", "Bash ", "Bash, Read", "Bash,Read", "Bash)", "(git *)", "a\tb"])
def test_what_cannot_be_a_name_is_refused(rule: str) -> None:
    with pytest.raises(InvalidInput, match="is not the name of a tool"):
        NamePolicy(deny=[rule])


def test_one_rule_can_be_given_alone() -> None:
    assert NamePolicy(deny="Bash").deny == ("Bash",)


def test_only_denied_tools_are_hidden() -> None:
    policy = NamePolicy("dontAsk", allow=["a"], ask=["b"], deny=["c"], cwd="somewhere")
    assert [policy.visible(make_spec(name)) for name in "abcd"] == [True, True, False, True]
    assert policy.cwd == "somewhere"


# -------------------------------------------------------------------------------- narrowing

STRICTNESS = {Allow: 0, Ask: 1, Deny: 2}
NAMES = ["Bash", "Read", "mcp__git__push", "mcp__git__pull", "mcp__web__get"]

tools = st.builds(
    make_spec,
    st.sampled_from(NAMES),
    effect=st.sampled_from(["read", "idempotent", "once", "resume"]),
    layer=st.sampled_from(["code", "builtin", "mcp"]),
)
wide = st.lists(st.sampled_from([*NAMES, "*", "mcp__*", "mcp__git", "*Bash", "mcp__*__p*"]), max_size=3)
exact = st.lists(st.sampled_from([*NAMES, "mcp__git", "mcp__git__*"]), max_size=3)
policies = st.builds(NamePolicy, mode=st.sampled_from(MODES), allow=exact, ask=wide, deny=wide)


def strictness(policy: Policy, tool: ToolSpec) -> int:
    return STRICTNESS[type(judge_tool(policy, tool))]


@given(policies, wide, tools)
def test_one_more_deny_rule_never_permits_more(policy: NamePolicy, more: list[str], tool: ToolSpec) -> None:
    stricter = NamePolicy(policy.mode, policy.allow, policy.ask, [*policy.deny, *more])
    assert strictness(stricter, tool) >= strictness(policy, tool)
    assert policy.visible(tool) or not stricter.visible(tool)


@given(policies, wide, tools)
def test_one_more_ask_rule_allows_nothing_new(policy: NamePolicy, more: list[str], tool: ToolSpec) -> None:
    asking = NamePolicy(policy.mode, policy.allow, [*policy.ask, *more], policy.deny)
    assert strictness(asking, tool) > 0 or strictness(policy, tool) == 0


@given(policies, tools)
def test_the_order_of_rules_changes_no_decision(policy: NamePolicy, tool: ToolSpec) -> None:
    turned = NamePolicy(policy.mode, policy.allow[::-1], policy.ask[::-1], policy.deny[::-1])
    assert strictness(turned, tool) == strictness(policy, tool)


@given(policies, policies, tools)
def test_narrowing_is_exactly_as_strict_as_the_stricter_of_two(
    parent: NamePolicy, child: NamePolicy, tool: ToolSpec
) -> None:
    both = combine(parent, child)
    assert strictness(both, tool) == max(strictness(parent, tool), strictness(child, tool))
    assert both.visible(tool) == (parent.visible(tool) and child.visible(tool))
    assert strictness(combine(both, parent), tool) == strictness(both, tool)


def test_two_who_ask_for_different_reasons_ask_one_question_of_its_own() -> None:
    asked = judge_tool(combine(NamePolicy(ask=["Bash"]), NamePolicy(ask=["B*"])), make_spec())
    assert asked == Ask("the rule 'Bash' asks about Bash; the rule 'B*' asks about Bash", "Bash & B*", "flag")
    same = NamePolicy(ask=["Bash"])
    assert judge_tool(combine(same, same), make_spec()) == judge_tool(same, make_spec())
    assert judge_tool(combine(same, NamePolicy("bypassPermissions")), make_spec()) == judge_tool(same, make_spec())
    assert judge_tool(combine(NamePolicy("bypassPermissions"), same), make_spec()) == judge_tool(same, make_spec())
    assert judge_tool(combine(NamePolicy(allow=["Bash"]), NamePolicy("bypassPermissions")), make_spec()) == Allow(
        "Bash", "flag"
    )
