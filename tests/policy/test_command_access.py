"""Rules about the hosts that commands reach, and about commands that run without the sandbox."""

from typing import Any

import pytest

from tests.policy.test_policy import decide_call, make_policy
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Allow, Ask, CommandAccess, Deny, Grant, Verdict
from vaka.policy.command_access import as_asked
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

OUTSIDE = {"dangerouslyDisableSandbox": True}


def call_of(command: str, **more: Any) -> ToolCall:
    return ToolCall(id=CallId("call_1"), name="Bash", arguments={"command": command, **more})


def judge(policy: LayeredPolicy, command: str, **more: Any) -> Verdict:
    return policy.judge(call_of(command, **more), spec_of("Bash"), ())


def decide(policy: LayeredPolicy, command: str, **more: Any) -> str:
    return decide_call(policy, "Bash", command=command, **more).decision


# -------------------------------------------------------------------------------- hosts


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
def test_a_host_that_a_command_asks_for_is_asked_about_in_every_mode(mode: str) -> None:
    asked = judge(make_policy(mode, allow=("Bash",)), "make", allow_hosts=["example.com"])
    assert isinstance(asked, Ask)
    assert (asked.layer, asked.grant, asked.scopes) == ("network", "Bash(domain:example.com)", ())
    assert asked.access == CommandAccess(requested_hosts=("example.com",))
    assert decide(make_policy("dontAsk", allow=("Bash",)), "make", allow_hosts=["example.com"]) == "deny"


@pytest.mark.parametrize(
    ("rule", "hosts", "decision"),
    [
        ("example.com", ["example.com"], "allow"),
        ("example.com", ["EXAMPLE.com.", "example.com:443"], "allow"),
        ("example.com", ["example.com:8080"], "ask"),
        ("example.com", ["www.example.com"], "ask"),
        ("example.com", ["example.com", "example.net"], "ask"),
        ("*.example.com", ["a.b.example.com"], "allow"),
        ("*.example.com", ["example.com"], "ask"),
        (".example.com", ["example.com", "a.example.com"], "allow"),
        ("example.com:8080", ["example.com:8080"], "allow"),
        ("example.com:8080", ["example.com"], "ask"),
        ("10.1.0.0/16:9000", ["10.1.2.3:9000"], "allow"),
        ("10.1.0.0/16", ["10.2.0.1"], "ask"),
        ("::1", ["[::1]:80", "::1"], "allow"),
        ("bücher.example", ["xn--bcher-kva.example"], "allow"),
    ],
)
def test_an_allow_rule_covers_its_hosts_on_its_ports(rule: str, hosts: list[str], decision: str) -> None:
    policy = make_policy(allow=("Bash(make)", f"Bash(domain:{rule})"))
    assert decide(policy, "make", allow_hosts=hosts) == decision


@pytest.mark.parametrize("rule", ["*", "example.com", "*.com", "example.com:8080"])
def test_a_deny_rule_for_a_host_wins_on_any_of_its_ports(rule: str) -> None:
    policy = make_policy("bypassPermissions", allow=("Bash(domain:example.com:8080)",), deny=(f"Bash(domain:{rule})",))
    assert decide(policy, "make", allow_hosts=["example.com:8080"]) == "deny"
    assert decide(policy, "make") == "allow"


def test_the_rules_for_hosts_come_with_every_permitted_command() -> None:
    lists: dict[str, Any] = {"ask": ("Bash(domain:b.example)",), "deny": ("Bash(domain:c.example)",)}
    policy = make_policy(allow=("Bash(make)", "Bash(domain:a.example:81)"), **lists)
    verdict = judge(policy, "make")
    assert isinstance(verdict, Allow)
    assert verdict.access == CommandAccess(hosts=("a.example:81",), denied_hosts=("c.example", "b.example"))
    asked = judge(policy, "make", allow_hosts=["b.example"])
    assert isinstance(asked, Ask)
    assert (asked.rule, asked.grant, asked.scopes) == (
        "Bash(domain:b.example)",
        "Bash(domain:b.example)",
        ("once", "session"),
    )
    granted = policy.with_grants([Grant(rule=asked.grant, answers=(asked.rule,))])
    assert isinstance(judge(granted, "make", allow_hosts=["b.example"]), Allow)
    allowed = judge(granted, "make")
    assert isinstance(allowed, Allow)
    assert allowed.access.hosts == ("a.example:81", "b.example")
    assert allowed.access.denied_hosts == ("c.example",)


def test_a_question_about_a_command_and_its_hosts_offers_rules_for_both() -> None:
    policy = make_policy()
    asked = judge(policy, "npm ci > log", allow_hosts=["example.com", "example.net:8080"])
    assert isinstance(asked, Ask)
    assert asked.grant.splitlines() == [
        "Bash(npm ci)",
        "Edit(//nowhere/app/log)",
        "Bash(domain:example.com)",
        "Bash(domain:example.net:8080)",
    ]
    assert policy.covers(asked.grant, call_of("npm ci > log", allow_hosts=["example.com"]), spec_of("Bash"))


def test_a_question_about_hosts_alone_is_answered_by_a_rule_for_hosts_alone() -> None:
    policy, command = make_policy("bypassPermissions"), "for x in a b; do curl $x; done"
    asked = judge(policy, command, allow_hosts=["example.com"])
    assert isinstance(asked, Ask)
    assert (asked.layer, asked.grant) == ("network", "Bash(domain:example.com)")
    call = as_asked(call_of(command, allow_hosts=["example.com"]), asked.layer)
    assert policy.covers(asked.grant, call, spec_of("Bash"))
    assert not policy.covers("Bash(domain:example.net)", call, spec_of("Bash"))
    assert as_asked(call_of(command), "mode") == call_of(command)


@pytest.mark.parametrize(
    "hosts", ["example.com", [7], ["*.example.com"], ["10.0.0.0/8"], ["https://a.example"], ["a b"]]
)
def test_hosts_that_are_not_hosts_are_never_allowed(hosts: Any) -> None:
    policy = make_policy(allow=("Bash(make)", "Bash(domain:example.com)"))
    assert decide(policy, "make", allow_hosts=hosts) == "ask"
    verdict = judge(policy, "make", allow_hosts=hosts)
    assert isinstance(verdict, Ask)
    assert verdict.access == CommandAccess()


@pytest.mark.parametrize(
    "text", ["Bash(domain:*)", "Bash(domain:a/b)", "Bash(unsandboxed:domain:a.example)", "Bash(domain:a:99999)"]
)
def test_a_rule_that_allows_every_host_or_none_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError):
        make_policy(allow=(text,))
    with pytest.raises(InvalidInput):
        LayeredPolicy([Layer(name="flag", allow=(text,))])


# -------------------------------------------------------------------------------- without the sandbox


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
@pytest.mark.parametrize("command", ["make", "ls", "x=1", "echo a > b"])
def test_a_command_without_the_sandbox_is_asked_about_in_every_mode(mode: str, command: str) -> None:
    policy = make_policy(mode, allow=("Bash", "Bash(ls)", "Edit"))
    assert decide(policy, command, **OUTSIDE) == "ask"
    assert decide(policy, command) == "allow"
    assert decide(make_policy("dontAsk", allow=("Bash",)), command, **OUTSIDE) == "deny"
    assert decide(make_policy("plan", allow=("Bash",)), command, **OUTSIDE) == "deny"


def test_only_a_rule_for_commands_without_the_sandbox_allows_one() -> None:
    asked = judge(make_policy(), "npm publish", **OUTSIDE)
    assert isinstance(asked, Ask)
    assert (asked.layer, asked.grant, asked.scopes) == ("sandbox", "Bash(unsandboxed:npm publish)", ())
    assert asked.access == CommandAccess(unsandboxed=True)
    policy = make_policy(allow=(asked.grant,))
    verdict = judge(policy, "npm publish", **OUTSIDE)
    assert isinstance(verdict, Allow)
    assert (verdict.rule, verdict.access.unsandboxed) == ("Bash(unsandboxed:npm publish)", True)
    assert decide(policy, "npm publish --tag x", **OUTSIDE) == "ask"
    assert decide(policy, "npm publish") == "ask", "the rule is not about the command in the sandbox"
    assert decide(make_policy(allow=("Bash(unsandboxed:npm:*)",)), "npm publish --tag x", **OUTSIDE) == "allow"
    assert decide(make_policy(allow=("Bash(unsandboxed:*)",)), "npm publish && make", **OUTSIDE) == "allow"


def test_rules_that_restrict_commands_hold_without_the_sandbox_too() -> None:
    every = ("Bash(unsandboxed:*)",)
    assert decide(make_policy(allow=every, deny=("Bash(npm publish:*)",)), "make; npm publish", **OUTSIDE) == "deny"
    assert decide(make_policy(allow=every, ask=("Bash(npm:*)",)), "npm publish", **OUTSIDE) == "ask"
    assert decide(make_policy(allow=every, deny=("Read(.env)",)), "cat .env", **OUTSIDE) == "deny"
    assert decide(make_policy(allow=every), "rm -rf /", **OUTSIDE) == "deny"


def test_a_deny_rule_keeps_all_commands_or_some_in_the_sandbox() -> None:
    denied = judge(make_policy("bypassPermissions", deny=("Bash(unsandboxed:*)",)), "make", **OUTSIDE)
    assert isinstance(denied, Deny)
    assert (denied.rule, denied.reason) == ("Bash(unsandboxed:*)", "the rule Bash(unsandboxed:*) denies it")
    some = make_policy("bypassPermissions", deny=("Bash(unsandboxed:npm:*)",))
    assert decide(some, "npm ci", **OUTSIDE) == "deny"
    assert decide(some, "make", **OUTSIDE) == "ask"
    assert (decide(some, "npm ci"), decide(make_policy(deny=("Bash(unsandboxed:*)",)), "ls")) == ("allow", "allow")
    assert some.visible(spec_of("Bash"))
    assert decide(make_policy(deny=("Bash(dangerouslyDisableSandbox:true)",)), "ls", **OUTSIDE) == "deny"


@pytest.mark.parametrize("reverse", [False, True])
def test_a_denial_without_the_sandbox_names_the_rule_that_denies(reverse: bool) -> None:
    layers = [
        Layer(name="user", deny=("Bash(make:*)",)),
        Layer(name="flags", allow=("Bash(unsandboxed:make:*)",)),
    ]
    denied = judge(LayeredPolicy(layers[::-1] if reverse else layers), "make all", **OUTSIDE)
    assert isinstance(denied, Deny)
    assert (denied.rule, denied.reason) == ("Bash(make:*)", "the rule Bash(make:*) denies it")


def test_a_project_without_trust_can_neither_allow_a_host_nor_let_a_command_leave_the_sandbox() -> None:
    rules = ("Bash(domain:example.com)", "Bash(unsandboxed:*)", "Bash")
    layer = Layer(name="project", allow=rules, project=True, trusted=False)
    policy = LayeredPolicy([layer, Layer(name="user", mode="bypassPermissions")])
    assert decide(policy, "make", allow_hosts=["example.com"]) == "ask"
    assert decide(policy, "make", **OUTSIDE) == "ask"
    verdict = judge(policy, "make")
    assert isinstance(verdict, Allow)
    assert verdict.access == CommandAccess()


def test_tools_in_a_workspace_never_leave_the_sandbox() -> None:
    policy = make_policy("bypassPermissions", allow=("Bash(unsandboxed:*)",)).in_workspace("/nowhere/tenant")
    assert decide(policy, "make", **OUTSIDE) == "deny"


# -------------------------------------------------------------------------------- the state of plugins


def test_a_rule_that_names_it_lets_a_plugin_write_its_own_state() -> None:
    policy = make_policy(allow=("Edit(.claude/plugin-state/**)",))
    for path in (".claude/plugin-state/a.json", ".claude/plugin-state/deep/b"):
        found = decide_call(policy, "Write", file_path=path)
        assert (found.decision, found.rule) == ("allow", "Edit(.claude/plugin-state/**)")
    assert (
        decide_call(
            make_policy(allow=("Edit(/.claude/plugin-state)",)), "Edit", file_path=".claude/plugin-state/x"
        ).decision
        == "allow"
    )
    denied = make_policy(allow=("Edit(.claude/plugin-state/**)",), deny=("Edit(*.json)",))
    assert decide_call(denied, "Write", file_path=".claude/plugin-state/a.json").decision == "deny"


@pytest.mark.parametrize(
    "name",
    [
        "settings.json",
        "settings.local.json",
        "settings.d/x",
        "hooks/x.sh",
        "agents/a.md",
        "commands/c.md",
        "skills/s/SKILL.md",
        "plugins/p/plugin.json",
        "rules/r.md",
        "output-styles/o.md",
        "CLAUDE.md",
        ".mcp.json",
        "plugin-state/.mcp.json",
        "plugin-state/.git/config",
        "plugin-state/.claude/settings.json",
        "plugin-state",
        "plugin-state/../hooks/x.sh",
        "other/x",
        ".x/y",
    ],
)
@pytest.mark.parametrize("rule", ["Edit", "Edit(**)", "Edit(.claude/**)", "Edit(.claude/*/**)", "Edit(.claude/{name})"])
def test_no_rule_allows_what_agents_read_or_run(name: str, rule: str) -> None:
    rules = (rule.replace("{name}", name), "Edit(.claude/plugin-state/**)")
    path = f".claude/{name}"
    decision = decide_call(make_policy(allow=rules), "Write", file_path=path).decision
    assert decision == ("allow" if name == "other/x" and rule.endswith("{name})") else "ask")
