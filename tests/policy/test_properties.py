"""Properties of all rules: a restricting rule never permits more, and the order of rules changes nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vaka.core.ports.policy import Policy
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Allow, Ask, Deny, ToolSpec
from vaka.policy.decision import MODES, is_stricter
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

STRICTNESS = {Allow: 0, Ask: 1, Deny: 2}

ANY = [
    "Bash",
    "Bash(git:*)",
    "Bash(git push *)",
    "Bash(npm run test)",
    "Bash(rm:*)",
    "Bash(* main)",
    "Bash(echo:*)",
    "Read",
    "Read(.env)",
    "Read(src/**)",
    "Read(//etc/**)",
    "Read(/src/*.py)",
    "Read(~/x)",
    "Edit",
    "Edit(src/**)",
    "Edit(**)",
    "Edit(//**)",
    "Edit(.git/**)",
    "WebFetch",
    "WebFetch(domain:a.example)",
    "WebFetch(domain:*.example)",
    "Task",
    "Agent(explore)",
    "Skill(pdf *)",
    "mcp__git",
    "mcp__git__push",
    "mcp__git__push(branch:main)",
    "pay",
    "pay(amount:5)",
    "Grep",
    "Glob",
]
TIGHT = [*ANY, "*", "Web*", "mcp__*", "Write(src/**)", "*(branch:main)"]
PATHS = ["src/a.py", ".env", "src/.env", "/etc/hosts", "~/x", "../y", ".git/config", "vaka.toml", "src/../.env", "a\0b"]
COMMANDS = [
    "git status",
    "git push origin main",
    "git -C x push",
    "npm run test",
    "rm -rf build",
    "rm -rf /",
    "ls; rm x",
    "cat .env",
    "cat src/a.py | sort",
    "echo x > src/a.py",
    "echo x > .git/config",
    "$CMD x",
    "echo $(rm x)",
    "if",
    "",
    "timeout 5 npm run test",
    "FOO=1 npm run test",
    "cd /etc && cat hosts",
    "bash -c 'git push'",
]

URLS = ["https://a.example/", "https://b.example", "x"]


def calls_of(tools: list[str], field: str, values: list[str]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.sampled_from(tools), st.sampled_from(values).map(lambda value: {field: value}))


calls = st.one_of(
    calls_of(["Read", "Write", "Edit", "NotebookEdit", "Grep", "Glob"], "path", PATHS),
    calls_of(["Bash"], "command", COMMANDS),
    calls_of(["WebFetch"], "url", URLS),
    calls_of(["Task"], "subagent_type", ["explore", "x"]),
    calls_of(["Skill"], "command", ["pdf", "x"]),
    calls_of(["mcp__git__push"], "branch", ["main", "x"]),
    st.tuples(st.sampled_from(["pay", "TodoWrite"]), st.sampled_from([{"amount": 5}, {}])),
)
layers = st.builds(
    Layer,
    name=st.sampled_from(["user", "project"]),
    folder=st.sampled_from(["", "/nowhere"]),
    allow=st.lists(st.sampled_from(ANY), max_size=4).map(tuple),
    ask=st.lists(st.sampled_from(TIGHT), max_size=2).map(tuple),
    deny=st.lists(st.sampled_from(TIGHT), max_size=2).map(tuple),
    mode=st.sampled_from(MODES),
)
layer_lists = st.lists(layers, min_size=1, max_size=2)


def make_policy(layer_list: list[Layer]) -> LayeredPolicy:
    return LayeredPolicy(layer_list, cwd="/nowhere/app", home="/nowhere/kim")


def make_spec(name: str, *, code: bool = False) -> ToolSpec:
    return ToolSpec(name=name) if code else spec_of(name)


def strictness_of(judge: Policy, call: tuple[str, dict[str, Any]], *, code: bool = False) -> int:
    name, arguments = call
    asked = ToolCall(id=CallId("call_1"), name=name, arguments=arguments)
    return STRICTNESS[type(judge.judge(asked, make_spec(name, code=code), ()))]


@given(layer_lists, st.sampled_from(TIGHT), calls, st.booleans())
def test_one_more_deny_rule_never_permits_more(layer_list: list[Layer], rule: str, call: Any, code: bool) -> None:
    before, after = make_policy(layer_list), make_policy([*layer_list, Layer(name="flag", deny=(rule,))])
    assert strictness_of(after, call, code=code) >= strictness_of(before, call, code=code)
    assert before.visible(make_spec(call[0])) or not after.visible(make_spec(call[0]))


@given(layer_lists, st.sampled_from(TIGHT), calls, st.booleans())
def test_one_more_ask_rule_allows_nothing_new(layer_list: list[Layer], rule: str, call: Any, code: bool) -> None:
    after = make_policy([*layer_list, Layer(name="flag", ask=(rule,))])
    assert strictness_of(after, call, code=code) > 0 or strictness_of(make_policy(layer_list), call, code=code) == 0


@given(layer_lists, calls)
def test_the_order_of_rules_and_of_layers_changes_no_decision(layer_list: list[Layer], call: Any) -> None:
    mode = Layer(name="flag", mode=layer_list[-1].mode)
    turned = [
        Layer(name=one.name, folder=one.folder, allow=one.allow[::-1], ask=one.ask[::-1], deny=one.deny[::-1])
        for one in reversed(layer_list)
    ]
    one, other = make_policy([*layer_list, mode]), make_policy([*turned, mode])
    assert strictness_of(one, call) == strictness_of(other, call)
    found = [judge.decide(make_spec(call[0]), call[1]) for judge in (one, other)]
    assert (found[0].subject == found[1].subject and found[0].asks == found[1].asks) or found[0].decision != "ask"


@given(layer_lists, calls)
def test_an_untrusted_layer_never_permits_more(layer_list: list[Layer], call: Any) -> None:
    guest = Layer(
        name="local",
        project=True,
        trusted=False,
        allow=("Bash", "Edit(//**)", "WebFetch"),
        mode=layer_list[0].mode,
        directories=("/",),
    )
    assert strictness_of(make_policy([*layer_list, guest]), call) >= strictness_of(make_policy(layer_list), call)


@given(layer_lists, calls)
def test_a_stricter_mode_never_permits_more(layer_list: list[Layer], call: Any) -> None:
    found = {mode: strictness_of(make_policy([*layer_list, Layer(name="flag", mode=mode)]), call) for mode in MODES}
    for mode in MODES:
        for than in MODES:
            if is_stricter(mode, than):  # type: ignore[arg-type]  # both are modes
                assert found[mode] >= found[than]


@given(
    st.sampled_from(["Read", "Edit", "Grep", "Glob", "Bash", "WebFetch", "Task", "Skill", "x"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    ),
)
def test_any_arguments_are_judged_and_none_raise(tool: str, value: Any) -> None:
    names = ("file_path", "path", "pattern", "command", "url", "subagent_type", "skill", "amount")
    judge = make_policy([Layer(name="user", allow=("Read(//**)",), deny=("Read(.env)", "x(amount:5)"))])
    for name in names:
        assert judge.decide(spec_of(tool), {name: value}).decision in ("allow", "ask", "deny")
