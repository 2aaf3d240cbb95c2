"""The policy: deny over ask over allow over the mode, and the origin of each decision."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.policy.tables import each_row
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Allow, Ask, Deny, Effect, Mode, ToolSpec
from vaka.policy.decision import MODE_DECISIONS, MODES, PermissionDecision
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

CWD, HOME = "/nowhere/app", "/nowhere/kim"


def make_policy(mode: str = "default", *layers: Layer, cwd: str = CWD, **lists: Any) -> LayeredPolicy:
    return LayeredPolicy([Layer(name="user", mode=mode, **lists), *layers], cwd=cwd, home=HOME)


def decide_call(policy: LayeredPolicy, tool: str, **arguments: Any) -> PermissionDecision:
    return policy.decide(spec_of(tool), arguments)


def decision_parts(policy: LayeredPolicy, tool: str, **arguments: Any) -> tuple[str, str, str]:
    found = decide_call(policy, tool, **arguments)
    assert found.reason or found.decision == "allow"
    return found.decision, found.rule, found.layer


# -------------------------------------------------------------------------------- precedence and provenance


def test_deny_wins_over_ask_and_ask_over_allow_whatever_is_more_specific() -> None:
    deny = make_policy(deny=("Read",), ask=("Read(./a)",), allow=("Read(./a)",))
    assert decision_parts(deny, "Read", file_path="a") == ("deny", "Read", "user")
    ask = make_policy(ask=("Read(**)",), allow=("Read(./a)",))
    assert decision_parts(ask, "Read", file_path="a") == ("ask", "Read(**)", "user")
    assert decision_parts(make_policy(allow=("Read(//etc/hosts)",)), "Read", file_path="/etc/hosts") == (
        "allow",
        "Read(//etc/hosts)",
        "user",
    )


def test_a_weaker_layer_can_deny_what_a_stronger_one_allows() -> None:
    layered = LayeredPolicy([Layer(name="project", deny=("WebFetch",)), Layer(name="managed", allow=("WebFetch",))])
    assert decision_parts(layered, "WebFetch", url="https://a.example/") == ("deny", "WebFetch", "project")


def test_without_a_folder_all_tools_of_files_and_commands_are_denied_and_no_others() -> None:
    everything = make_policy("bypassPermissions").in_workspace("")
    targets = {
        "Read": {"file_path": "a"},
        "Edit": {"file_path": "a"},
        "Grep": {"pattern": "a"},
        "Bash": {"command": "ls"},
    }
    for tool, arguments in targets.items():
        assert decision_parts(everything, tool, **arguments) == ("deny", tool, "workspace")
    assert decide_call(everything, "WebFetch", url="https://a.example/").decision == "allow"
    assert decide_call(everything, "TodoWrite").decision == "allow"


def test_the_verdict_for_the_loop_is_the_decision() -> None:
    def judge(layered: LayeredPolicy, tool: str, **arguments: Any) -> object:
        return layered.judge(ToolCall(id=CallId("call_1"), name=tool, arguments=arguments), spec_of(tool), ())

    assert judge(make_policy(deny=("Read(.env)",)), "Read", path=".env") == Deny(
        "the rule Read(.env) denies /nowhere/app/.env", "Read(.env)", "user"
    )
    assert judge(make_policy(ask=("Read(.env)",)), "Read", path=".env") == Ask(
        "the rule Read(.env) asks about /nowhere/app/.env",
        "Read(.env)",
        "user",
        grant="Read(//nowhere/app/.env)",
        scopes=("once", "session"),
    )
    assert judge(make_policy(), "Read", path=".env") == Allow("default", "mode")


def test_the_offered_rule_covers_no_more_than_the_call() -> None:
    def grant(layered: LayeredPolicy, tool: str, **arguments: Any) -> str:
        verdict = layered.judge(ToolCall(id=CallId("call_1"), name=tool, arguments=arguments), spec_of(tool), ())
        assert isinstance(verdict, Ask)
        assert verdict.rule.startswith(decide_call(layered, tool, **arguments).rule)
        return verdict.grant

    assert grant(make_policy(), "Write", file_path="a*b") == "Edit(//nowhere/app/a\\*b)"
    assert grant(make_policy(), "WebFetch", url="https://a.example/x") == "WebFetch(domain:a.example)"
    assert grant(make_policy(), "Skill", command="pdf x") == "Skill(pdf x)"
    assert grant(make_policy(), "mcp__git__push", branch="main") == "mcp__git__push"
    assert grant(make_policy(ask=("WebFetch", "WebFetch(domain:*)")), "WebFetch", url="https://a.example/") == (
        "WebFetch(domain:a.example)"
    )
    assert grant(make_policy(ask=("Edit", "Edit(a)")), "Edit", file_path="a") == "Edit(//nowhere/app/a)"
    assert grant(make_policy(ask=("mcp__git",)), "mcp__git__push", branch="main") == "mcp__git__push"
    assert grant(make_policy(ask=("pay(amount:5)",)), "pay", amount=5) == "pay(amount:5)"
    assert grant(make_policy(), "Write", file_path=".git/config") == "", "what is protected is allowed once"
    assert grant(make_policy(), "Skill", command="a*") == "", "a star would mean more"


def test_edited_arguments_are_asked_about_by_the_same_rule() -> None:
    def rule(path: str) -> str:
        call = ToolCall(id=CallId("call_1"), name="Write", arguments={"file_path": path})
        verdict = make_policy().judge(call, spec_of("Write"), ())
        assert isinstance(verdict, Ask)
        return verdict.rule

    assert rule("a") == rule("b") == "default"


def test_only_tools_whose_every_call_is_denied_are_hidden() -> None:
    layered = make_policy(deny=("WebFetch", "Read(.env)", "mcp__git", "Bash(rm:*)"))
    names = ("WebFetch", "Read", "mcp__git__push", "Bash", "Write")
    assert [layered.visible(spec_of(name)) for name in names] == [False, True, False, True, True]
    assert not make_policy(deny=("Bash(*)",)).visible(spec_of("Bash"))
    assert not make_policy(deny=("Bash",)).visible(ToolSpec(name="bash")), "another name is no way around"


# -------------------------------------------------------------------------------- modes

CALLS: Mapping[str, tuple[str, dict[str, str]]] = {
    "note": ("TodoWrite", {}),
    "read": ("Read", {"file_path": "a"}),
    "reach": ("Read", {"file_path": "/etc/hosts"}),
    "edit": ("Write", {"file_path": "a"}),
    "change": ("Write", {"file_path": "/etc/hosts"}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("act", list(CALLS))
def test_the_mode_decides_where_no_rule_matches(mode: Mode, act: str) -> None:
    name, arguments = CALLS[act]
    assert decision_parts(make_policy(mode), name, **arguments) == (MODE_DECISIONS[mode][act], mode, "mode")  # type: ignore[index]  # an act


@each_row(
    [
        ("Grep", {"pattern": "x"}, "allow"),
        ("Glob", {"pattern": "**/*.py"}, "allow"),
        ("Glob", {"pattern": "/etc/*"}, "ask"),
        ("Glob", {"pattern": "../*"}, "ask"),
        ("Glob", {"pattern": "*/../../x"}, "ask"),
        ("Glob", {"pattern": "{/etc,/srv}/*"}, "ask"),
        ("Glob", {"pattern": "{a,../b}/*"}, "ask"),
        ("Glob", {"pattern": "~/.ssh/*"}, "ask"),
        ("Glob", {"pattern": 5}, "ask"),
        ("Glob", {"pattern": "*", "path": "/etc"}, "ask"),
        ("Grep", {"pattern": "x", "path": "~"}, "ask"),
        ("WebFetch", {"url": "https://a.example/"}, "ask"),
        ("WebSearch", {"query": "x"}, "ask"),
        ("NotebookEdit", {"notebook_path": "a.ipynb"}, "ask"),
        ("MultiEdit", {"file_path": "a"}, "ask"),
        ("Task", {"subagent_type": "explore"}, "allow"),
        ("TaskUpdate", {"taskId": "1"}, "allow"),
        ("AskUserQuestion", {"questions": []}, "allow"),
        ("BashOutput", {"task_id": "1"}, "allow"),
        ("Skill", {"command": "pdf"}, "ask"),
        ("mcp__git__log", {}, "ask"),
        ("something", {}, "ask"),
    ]
)
def test_the_default_mode_decides_on_each_tool(tool: str, arguments: dict[str, Any], expected: str) -> None:
    assert decide_call(make_policy(), tool, **arguments).decision == expected


def test_a_read_tool_of_the_project_runs_but_the_effect_of_an_mcp_tool_is_not_trusted() -> None:
    def answer(layer: str, name: str = "look", effect: Effect = "read", mode: str = "default") -> str:
        return make_policy(mode).decide(ToolSpec(name=name, effect=effect, layer=layer), {}).decision

    assert answer("definition") == "allow"
    assert answer("definition", effect="once") == "ask"
    assert answer("mcp") == "ask"
    assert answer("definition", name="mcp__a__look") == "ask"
    assert answer("mcp", mode="plan") == "deny"
    assert answer("definition", mode="dontAsk") == "deny"
    assert answer("plugin", name="TodoWrite", effect="once") == "ask", "only the built-in one keeps notes"


@pytest.mark.parametrize("effect", ["read", "once", "idempotent", "resume"])
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "dontAsk", "bypassPermissions"])
def test_a_tool_from_code_is_allowed(mode: str, effect: Effect) -> None:
    tool = ToolSpec(name="pay", effect=effect)
    assert make_policy(mode).decide(tool, {}).verdict == Allow("pay", "code")
    assert make_policy(mode, deny=("pay",)).decide(tool, {}).decision == "deny"
    asked = make_policy(mode, ask=("pay",)).decide(tool, {}).decision
    assert asked == ("deny" if mode == "dontAsk" else "ask")
    named_like_ours = ToolSpec(name="Read", effect=effect)
    assert make_policy(mode).decide(named_like_ours, {"uri": "x"}).verdict == Allow("Read", "code")
    assert make_policy(mode).decide(named_like_ours, {"path": "/etc/hosts"}).verdict == Allow("Read", "code")


def test_the_plan_mode_denies_changes_even_to_tools_from_code() -> None:
    assert make_policy("plan").decide(ToolSpec(name="pay", effect="once"), {}).decision == "deny"
    assert make_policy("plan").decide(ToolSpec(name="look", effect="read"), {}).decision == "allow"
    assert make_policy("plan", allow=("pay",)).decide(ToolSpec(name="pay", effect="once"), {}).decision == "allow"
    for path in ("a", ".git/config", ".claude/settings.json", "/etc/hosts"):
        assert decide_call(make_policy("plan"), "Edit", file_path=path).decision == "deny"


def test_the_mode_dont_ask_turns_a_question_into_a_denial() -> None:
    layered = make_policy("dontAsk", ask=("WebFetch",), allow=("Read",))
    found = decide_call(layered, "WebFetch", url="https://a.example/")
    assert (found.decision, found.rule, found.layer) == ("deny", "WebFetch", "user")
    assert found.reason.endswith("the mode dontAsk denies instead of asking")
    assert decision_parts(layered, "Read", file_path="/etc/hosts") == ("allow", "Read", "user")


def test_the_strongest_layer_that_names_a_mode_chooses_it() -> None:
    def mode(*layers: Layer) -> tuple[str, list[str]]:
        layered = LayeredPolicy(layers)
        return layered.mode, layered.notes

    project = Layer(name="project", mode="acceptEdits", project=True)
    assert mode(Layer(name="user", mode="plan"), project) == ("acceptEdits", [])
    assert mode(project, Layer(name="flag", mode="plan"), Layer(name="managed", mode="dontAsk")) == ("dontAsk", [])
    assert mode(Layer(name="user", mode="acceptReadOnly")) == ("default", [])
    assert mode(Layer(name="user", mode="askBeforeRunningTools")) == ("default", [])


def test_an_untrusted_layer_may_choose_only_a_stricter_mode() -> None:
    def mode(user: str, project: str, *, trusted: bool = False) -> tuple[str, int]:
        layered = LayeredPolicy(
            [Layer(name="user", mode=user), Layer(name="project", mode=project, project=True, trusted=trusted)]
        )
        return layered.mode, len(layered.notes)

    assert mode("default", "plan") == ("plan", 0)
    assert mode("default", "default") == ("default", 0)
    assert mode("default", "acceptEdits") == ("default", 1)
    assert mode("dontAsk", "default") == ("dontAsk", 1)
    assert mode("default", "acceptEdits", trusted=True) == ("acceptEdits", 0)
    assert mode("default", "bypassPermissions") == ("default", 1)
    assert mode("default", "bypassPermissions", trusted=True) == ("default", 1), "only a user or a manager may"


def test_managed_settings_can_switch_off_bypass_permissions() -> None:
    layered = LayeredPolicy([Layer(name="managed", no_bypass=True), Layer(name="flag", mode="bypassPermissions")])
    assert layered.mode == "default"
    assert layered.notes == ["the mode bypassPermissions is switched off by the settings; the mode is default"]


def test_an_unknown_mode_is_an_error_that_names_its_origin() -> None:
    with pytest.raises(ConfigError, match=r"^s\.json: defaultMode 'acceptedits': .*did you mean 'acceptEdits'"):
        LayeredPolicy([Layer(name="project", origin="s.json", mode="acceptedits")])
    with pytest.raises(InvalidInput, match="the modes are default"):
        LayeredPolicy([Layer(name="flag", mode="yolo")])


# -------------------------------------------------------------------------------- paths


@each_row(
    [
        ("Read(x/**)", "Read", "deny"),
        ("Read(x/**)", "Grep", "deny"),
        ("Read(x/**)", "Glob", "deny"),
        ("Read(x/**)", "Edit", "deny"),
        ("Read(x/**)", "Write", "deny"),
        ("Read(x/**)", "NotebookEdit", "deny"),
        ("Edit(x/**)", "Edit", "deny"),
        ("Edit(x/**)", "Write", "deny"),
        ("Edit(x/**)", "MultiEdit", "deny"),
        ("Edit(x/**)", "Read", "allow"),
        ("Edit(x/**)", "Grep", "allow"),
        ("Write(x/**)", "Write", "deny"),
        ("Write(x/**)", "Edit", "allow"),
        ("Grep(x/**)", "Grep", "deny"),
        ("Grep(x/**)", "Read", "allow"),
    ]
)
def test_a_path_rule_applies_to_file_tools(rule: str, tool: str, decision: str) -> None:
    path = "x" if tool in ("Grep", "Glob") else "x/y"
    layered = make_policy("bypassPermissions", deny=(rule,))
    assert decide_call(layered, tool, path=path).decision == decision
    asking = make_policy("bypassPermissions", ask=(rule,))
    assert decide_call(asking, tool, path=path).decision == ("ask" if decision == "deny" else "allow")


@each_row(
    [
        ("Read(//srv/**)", "Read", "allow"),
        ("Read(//srv/**)", "Grep", "allow"),
        ("Read(//srv/**)", "Write", "ask"),
        ("Edit(//srv/**)", "Write", "allow"),
        ("Edit(//srv/**)", "NotebookEdit", "allow"),
        ("Edit(//srv/**)", "Read", "allow"),
        ("Read", "Read", "allow"),
        ("Read", "Grep", "ask"),
        ("Edit", "Write", "ask"),
    ]
)
def test_a_file_that_may_be_edited_may_be_read(rule: str, tool: str, decision: str) -> None:
    assert decide_call(make_policy(allow=(rule,)), tool, path="/srv/x").decision == decision


def test_a_leading_slash_is_the_folder_of_the_settings() -> None:
    layered = LayeredPolicy(
        [
            Layer(name="user", folder="/nowhere/kim/.claude", deny=("Read(/x)",)),
            Layer(name="project", deny=("Read(/y)",)),
        ],
        cwd=CWD,
        home=HOME,
    )
    assert decide_call(layered, "Read", file_path="/nowhere/kim/.claude/x").decision == "deny"
    assert decide_call(layered, "Read", file_path="/nowhere/app/x").decision == "allow"
    assert decide_call(layered, "Read", file_path="/nowhere/app/y").decision == "deny"


def test_both_names_of_an_argument_are_checked() -> None:
    layered = make_policy(deny=("Read(.env)",))
    assert decide_call(layered, "Read", file_path="a", path=".env").decision == "deny"
    assert decide_call(layered, "Read", file_path=".env", path="a").decision == "deny"


def test_only_trusted_layers_add_working_directories() -> None:
    more = Layer(name="project", directories=("../lib", "~/notes"), project=True)
    layered = make_policy("acceptEdits", more)
    assert layered.directories == [CWD, "/nowhere/lib", "/nowhere/kim/notes"]
    for path in ("../lib/a", "/nowhere/lib/a", "~/notes/a"):
        assert decision_parts(layered, "Write", file_path=path) == ("allow", "acceptEdits", "mode")
    assert decide_call(layered, "Write", file_path="/nowhere/library/a").decision == "ask"
    untrusted = Layer(name="project", directories=("../lib",), project=True, trusted=False)
    assert make_policy("default", untrusted).directories == [CWD]
    assert len(make_policy("default", untrusted).notes) == 1


def test_a_link_is_judged_by_each_of_its_names(tmp_path: Path) -> None:
    root = tmp_path / "app"
    (root / "src").mkdir(parents=True)
    (root / "secrets").mkdir()
    (tmp_path / "outside").write_text("")
    (root / "src" / "out").symlink_to(tmp_path / "outside")
    (root / "src" / "key").symlink_to(root / "secrets" / "key")
    (root / "secrets" / "key").symlink_to(tmp_path / "outside")
    (root / "src" / "later").symlink_to(tmp_path / "not-yet-there")
    cwd = str(root)

    def read(path: str, **lists: Any) -> str:
        return decide_call(make_policy(cwd=cwd, **lists), "Read", file_path=path).decision

    assert read("src/a") == "allow"
    assert read("src/out") == "ask", "it leads out of the working directories"
    assert read("src/later") == "ask"
    assert read("src/out", allow=("Read(src/**)",)) == "ask", "the rule allows the link, not what it leads to"
    assert read("src/out", allow=(f"Read(/{tmp_path}/outside)",)) == "allow"
    assert read("src/out", deny=(f"Read(/{tmp_path}/outside)",)) == "deny"
    assert read("src/key", deny=("Read(secrets/**)",)) == "deny", "a name on the way is a name"
    assert read("secrets/../src/a", deny=("Read(./src/a)",)) == "deny"
    assert read("/proc/self/root" + cwd + "/src/a", deny=("Read(./src/a)",)) == "deny"


def test_a_link_to_a_working_directory_is_a_working_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for cwd in ("real", "link"):
        layered = make_policy("acceptEdits", cwd=str(tmp_path / cwd), allow=("Edit(/x/**)",))
        assert decide_call(layered, "Write", file_path="a").decision == "allow"
        assert decide_call(layered, "Write", file_path=str(tmp_path / cwd / "a")).decision == "allow"
        assert decide_call(layered, "Write", file_path=os.path.realpath(tmp_path / cwd / "a")).decision == "allow"


# -------------------------------------------------------------------------------- protected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", ["Write", "Edit", "MultiEdit", "NotebookEdit"])
@pytest.mark.parametrize(
    "path", [".git/config", ".claude/settings.json", "vaka.toml", ".VSCODE/tasks.json", "x/.idea/a"]
)
def test_protected_paths_are_asked_about_under_every_mode_and_rule(mode: Mode, tool: str, path: str) -> None:
    wanted = "deny" if mode in ("dontAsk", "plan") else "ask"
    for allow in ((), ("Edit(**)", "Edit", tool)):
        found = decide_call(make_policy(mode, allow=allow), tool, file_path=path)
        assert (found.decision, found.layer) == (wanted, "protected")
    assert make_policy(mode).decide(ToolSpec(name=tool), {"path": path}).decision == wanted, "handed over in code"
    assert decide_call(make_policy(mode), "Read", file_path=path).decision == MODE_DECISIONS[mode]["read"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", [".claude/commands/x.md", ".github/workflows/ci.yml", ".npmrc", "sub/.circleci/x.yml"])
def test_files_that_decide_what_runs_are_asked_about_in_every_mode_but_bypass(mode: Mode, path: str) -> None:
    wanted = {"dontAsk": "deny", "plan": "deny", "bypassPermissions": "allow"}.get(mode, "ask")
    for allow in ((), ("Edit(**)", "Edit", "Write")):
        assert decide_call(make_policy(mode, allow=allow), "Write", file_path=path).decision == wanted
    assert decide_call(make_policy(mode), "Read", file_path=path).decision == MODE_DECISIONS[mode]["read"]


@pytest.mark.parametrize(
    "command", ["git add .github/workflows/ci.yml", "actionlint .github/workflows/ci.yml", "cat .npmrc", "npm ci"]
)
def test_a_command_that_only_reads_such_a_file_is_not_asked_about(command: str) -> None:
    assert decide_call(make_policy(allow=("Bash",)), "Bash", command=command).decision == "allow"


@pytest.mark.parametrize("command", ["echo x > .npmrc", "sed -i s/a/b/ .github/workflows/ci.yml", "cp x .claude/a.md"])
def test_a_command_that_changes_such_a_file_is_asked_about(command: str) -> None:
    assert decide_call(make_policy(allow=("Bash",)), "Bash", command=command).decision == "ask"


def test_a_link_into_a_protected_folder_is_protected(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "innocent").symlink_to(".git/hooks")
    layered = make_policy("bypassPermissions", cwd=str(tmp_path))
    assert decision_parts(layered, "Write", file_path="innocent/pre-commit")[::2] == ("ask", "protected")
    assert decision_parts(layered, "Write", file_path="innocent/../config")[::2] == ("ask", "protected")


def test_may_read_and_may_write_follow_the_same_rules() -> None:
    layered = make_policy("acceptEdits", deny=("Read(.env)", "Edit(gen/**)", "Write(made/**)"), ask=("Read(key)",))
    assert isinstance(layered.may_read("a"), Allow)
    assert isinstance(layered.may_read("/etc/hosts"), Allow), "only rules apply, not the mode"
    assert layered.may_read("sub/.env") == Deny(
        "the rule Read(.env) denies /nowhere/app/sub/.env", "Read(.env)", "user"
    )
    assert isinstance(layered.may_read("key"), Ask)
    assert isinstance(layered.may_read("a\0b"), Ask)
    assert layered.may_write("a") == Allow("acceptEdits", "mode")
    assert isinstance(layered.may_write("/etc/hosts"), Ask)
    assert isinstance(layered.may_write(".git/config"), Ask)
    for path in (".env", "gen/a", "made/a"):
        assert isinstance(layered.may_write(path), Deny)


# -------------------------------------------------------------------------------- hosts, words, arguments


def test_a_host_rule_applies_to_the_host_of_a_url() -> None:
    layered = make_policy(allow=("WebFetch(domain:*.example.com)",), deny=("WebFetch(domain:127.0.0.1)",))
    assert decide_call(layered, "WebFetch", url="https://docs.example.com/").decision == "allow"
    assert decide_call(layered, "WebFetch", url="https://example.com/").decision == "ask"
    assert decide_call(layered, "WebFetch", url="https://docs.example.com@evil.org/").decision == "ask"
    assert decide_call(layered, "WebFetch", url="http://2130706433/").decision == "deny"
    assert decide_call(make_policy(deny=("WebFetch(domain:*)",)), "WebFetch", url="https://a.b/").decision == "deny"


def test_rules_match_agents_skills_and_other_arguments() -> None:
    layered = make_policy(
        deny=("Agent(deploy)", "Skill(danger *)", "mcp__git__push(branch:main*)", "TaskUpdate(delete:true)"),
        ask=("Task(model:opus)", "WebSearch(*password*)"),
        allow=("Skill(pdf *)", "mcp__git__push(branch:feature/*)", "mcp__git__tag(names:v*)"),
    )
    assert decide_call(layered, "Task", subagent_type="deploy").decision == "deny"
    assert decide_call(layered, "Agent", subagent_type="deploy").decision == "deny"
    assert decide_call(layered, "Task", subagent_type="explore").decision == "allow"
    assert decide_call(layered, "Task", subagent_type="explore", model="opus").decision == "ask"
    for command, decision in {
        "pdf": "allow",
        "pdf a b": "allow",
        "/pdf a": "allow",
        "pdfx": "ask",
        "danger": "deny",
    }.items():
        assert decide_call(layered, "Skill", command=command).decision == decision
    assert decide_call(layered, "mcp__git__push", branch="main2").decision == "deny"
    assert decide_call(layered, "mcp__git__push", branch="feature/x").decision == "allow"
    assert decide_call(layered, "mcp__git__push").decision == "ask"
    assert decide_call(layered, "mcp__git__tag", names=["v1", "v2"]).decision == "allow"
    assert decide_call(layered, "mcp__git__tag", names=["v1", "x"]).decision == "ask", "to allow, each must be meant"
    assert decide_call(layered, "TaskUpdate", taskId="1", delete=True).decision == "deny"
    assert decide_call(layered, "WebSearch", query="my password list").decision == "ask"


def test_the_default_of_an_argument_is_matched_only_to_restrict() -> None:
    schema = {"type": "object", "properties": {"force": {"type": "boolean", "default": True}}}
    tool = ToolSpec(name="push", layer="definition", parameters=schema)
    assert make_policy(deny=("push(force:true)",)).decide(tool, {}).decision == "deny"
    assert make_policy(deny=("push(force:true)",)).decide(tool, {"force": False}).decision == "ask"
    assert make_policy(allow=("push(force:true)",)).decide(tool, {}).decision == "ask"


# -------------------------------------------------------------------------------- unknown targets


@each_row(
    [
        ("Read", {}),
        ("Read", {"file_path": 5}),
        ("Read", {"file_path": "a\0b"}),
        ("Read", {"file_path": "\ud800"}),
        ("Write", {"file_path": ["a"]}),
        ("WebFetch", {}),
        ("WebFetch", {"url": "x"}),
        ("WebFetch", {"url": "https://a\\@b/"}),
        ("Grep", {"path": {}}),
        ("Skill", {"command": 5}),
    ]
)
def test_a_call_with_an_unknown_target_is_never_allowed_by_a_pattern(tool: str, arguments: dict[str, Any]) -> None:
    wide = ("Read(//**)", "Edit(//**)", "WebFetch(domain:*)", "Skill(*)")
    for mode in ("default", "acceptEdits", "plan"):
        assert decide_call(make_policy(mode, allow=wide), tool, **arguments).decision == "ask"
    assert decide_call(make_policy("dontAsk", allow=wide), tool, **arguments).decision == "deny"
    assert decide_call(make_policy("bypassPermissions"), tool, **arguments).decision == "allow"
    assert decide_call(make_policy(allow=(tool,)), tool, **arguments).decision == "allow"
    assert decide_call(make_policy("bypassPermissions", deny=(tool,)), tool, **arguments).decision == "deny"


def test_a_call_with_an_unknown_target_is_asked_about_if_a_rule_may_deny_it() -> None:
    strict = ("Read(.env)", "WebFetch(domain:evil.example)")
    for tool, arguments in (("Read", {"file_path": "a\0b"}), ("Write", {}), ("WebFetch", {"url": "https://a\\b"})):
        layered = make_policy("bypassPermissions", deny=strict, allow=(tool,))
        assert decide_call(layered, tool, **arguments).decision == "ask"
