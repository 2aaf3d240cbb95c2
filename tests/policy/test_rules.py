"""Parsing of rules: their meaning, and the errors of invalid ones."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.tables import each_row
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.policy.decision import DecisionKind
from vaka.policy.paths import PathAnchors
from vaka.policy.rules import Layer, Rule, read_rule, read_rules

PLACE = PathAnchors(cwd="/site", home="/home/kim", folder="/site")
KINDS: tuple[DecisionKind, ...] = ("deny", "ask", "allow")


def parse_rule(text: str, kind: DecisionKind = "deny") -> Rule:
    return read_rule(text, kind, Layer(name="user", origin="settings.json"), PLACE)


@each_row(
    [
        ("Bash", ("Bash",), "tool", "", ""),
        (" Bash ", ("Bash",), "tool", "", ""),
        ("Bash(*)", ("Bash",), "tool", "", ""),
        ("Bash(npm run test:*)", ("Bash",), "command", "", "npm run test:*"),
        ("Bash(echo $(date))", ("Bash",), "command", "", "echo $(date)"),
        ("Bash(run_in_background:true)", ("Bash",), "field", "run_in_background", "true"),
        ("Bash(timeout:*)", ("Bash",), "command", "", "timeout:*"),
        ("Bash(async:*)", ("Bash",), "command", "", "async:*"),
        ("bash(ls)", ("bash", "Bash"), "command", "", "ls"),
        ("Read(./.env)", ("Read",), "path", "", "./.env"),
        ("Edit(/src/**)", ("Edit",), "path", "", "/src/**"),
        ("Write(docs/**)", ("Write",), "path", "", "docs/**"),
        ("Read(limit:5)", ("Read",), "field", "limit", "5"),
        ("Read(a:b)", ("Read",), "path", "", "a:b"),
        ("Grep(output_mode:content)", ("Grep",), "field", "output_mode", "content"),
        ("WebFetch(domain:example.com)", ("WebFetch",), "domain", "", "domain:example.com"),
        ("WebFetch(prompt:*secret*)", ("WebFetch",), "field", "prompt", "*secret*"),
        ("WebSearch(*passwords*)", ("WebSearch",), "words", "", "*passwords*"),
        ("Agent(explore)", ("Task", "Agent"), "words", "", "explore"),
        ("Task(explore)", ("Task", "Agent"), "words", "", "explore"),
        ("Task(model:opus)", ("Task", "Agent"), "field", "model", "opus"),
        ("Skill(pdf *)", ("Skill",), "words", "", "pdf *"),
        ("Skill(pdf:*)", ("Skill",), "words", "", "pdf:*"),
        ("mcp__git", ("mcp__git",), "tool", "", ""),
        ("mcp__git__push(branch:main)", ("mcp__git__push",), "field", "branch", "main"),
        ("mcp__git__*(branch:main)", ("mcp__git__*",), "field", "branch", "main"),
        ("pay(amount:5)", ("pay",), "field", "amount", "5"),
    ]
)
def test_a_rule_is_parsed_by_its_tool_and_pattern(
    text: str, tools: tuple[str, ...], sort: str, field: str, pattern: str
) -> None:
    found = parse_rule(text)
    assert (found.tools, found.match_kind, found.field, found.pattern) == (tools, sort, field, pattern)
    assert (found.text, found.kind, found.layer, found.origin) == (text.strip(), "deny", "user", "settings.json")


@each_row(
    [
        ("", "expected Tool or Tool(pattern)"),
        ("Bash()", "expected Tool or Tool(pattern)"),
        ("Bash( )", "expected Tool or Tool(pattern)"),
        ("Bash(ls", "expected Tool or Tool(pattern)"),
        ("Bash ls", "expected Tool or Tool(pattern)"),
        ("Bash, Read", "expected Tool or Tool(pattern)"),
        ("Bash,Read", "expected Tool or Tool(pattern)"),
        ("Bash (ls)", "expected Tool or Tool(pattern)"),
        ("(ls)", "expected Tool or Tool(pattern)"),
        ("Bash(ls)x", "expected Tool or Tool(pattern)"),
        ("./secrets", "for a path write Read(./secrets)"),
        (".env", "for a path write Read(.env)"),
        ("src/**", "for a path write Read(src/**)"),
        ("WebFetch(https)", "WebFetch(domain:example.com)"),
        ("WebFetch(domain:a b)", "expected a host such as"),
        ("WebFetch(domain:https://a.b)", "expected a host such as"),
        ("Read(!x)", "cannot cancel"),
        ("Read(~ann/x)", "expected ~/"),
        ("pay(5)", "such as pay(name:value)"),
        ("mcp__git__push(main)", "such as mcp__git__push(name:value)"),
        ("TodoWrite(x)", "such as TodoWrite(name:value)"),
    ]
)
def test_an_invalid_rule_raises_with_the_reason(text: str, why: str) -> None:
    for kind in KINDS:
        with pytest.raises(ValueError) as caught:
            parse_rule(text, kind)
        assert why in str(caught.value)


@each_row(["*", "Web*", "mcp__*", "mcp__git*", "mcp__*__push", "mcp____*", "B*(ls)", "*(a:b)"])
def test_a_star_in_a_tool_name_may_allow_only_the_tools_of_one_server(text: str) -> None:
    with pytest.raises(ValueError, match="may only follow 'mcp__server__'"):
        parse_rule(text, "allow")
    for allowed in ("mcp__git__*", "mcp__git__pu*", "mcp__git"):
        assert parse_rule(allowed, "allow").names_tool("mcp__git__push")


@each_row(
    [
        ("Bash", "Bash", True),
        ("Bash", "bash", False),
        ("Bash", "BashOutput", False),
        ("bash", "Bash", True),
        ("bash", "bash", True),
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
        ("Task", "Agent", True),
        ("Agent", "Task", True),
    ]
)
def test_a_rule_matches_tools_by_name(text: str, tool: str, speaks: bool) -> None:
    assert parse_rule(text).names_tool(tool) is speaks


# -------------------------------------------------------------------------------- layers


def read_layers(*layers: Layer) -> tuple[list[str], list[str]]:
    rules, notes = read_rules(layers, "/site", "/home/kim")
    return [f"{rule.kind} {rule.text} {rule.layer}" for rule in rules], notes


def test_rules_of_all_layers_are_in_force() -> None:
    found, notes = read_layers(
        Layer(name="user", allow=("Bash(ls)",)),
        Layer(name="project", deny=("Bash(rm:*)",), ask=("WebFetch",)),
    )
    assert found == ["allow Bash(ls) user", "deny Bash(rm:*) project", "ask WebFetch project"]
    assert notes == []


@each_row(["user", "settings", "managed", "environment"])
def test_an_invalid_rule_is_an_error_that_names_the_file_the_layer_and_the_rule(name: str) -> None:
    for kind in KINDS:
        lists: dict[str, tuple[str, ...]] = {kind: ("Bash(",)}
        with pytest.raises(ConfigError) as caught:
            read_layers(Layer(name=name, origin="/x/settings.json", **lists))  # type: ignore[arg-type]  # one of the lists
        assert str(caught.value).startswith(f"/x/settings.json ({name}): {kind} rule 'Bash(': expected Tool")


def test_an_invalid_rule_of_a_flag_is_invalid_input() -> None:
    with pytest.raises(InvalidInput, match=r"--deny \(flag\): deny rule 'Bash\(': expected Tool"):
        read_layers(Layer(name="flag", origin="--deny", deny=("Bash(",)))


def test_an_invalid_rule_of_a_project_is_ignored_only_if_it_allows() -> None:
    found, notes = read_layers(Layer(name="project", origin="p.json", project=True, allow=("Bash(", "Bash(ls)")))
    assert found == ["allow Bash(ls) project"]
    assert [note.partition(": expected")[0] for note in notes] == [
        "p.json (project): allow rule 'Bash(' does not count"
    ]
    for layer in (
        Layer(name="project", project=True, trusted=False, deny=("Bash(",)),
        Layer(name="project", project=True, trusted=False, ask=("Bash(",)),
    ):
        with pytest.raises(ConfigError):
            read_layers(layer)


def test_an_untrusted_layer_can_only_restrict() -> None:
    layer = Layer(
        name="project",
        origin="p.json",
        project=True,
        trusted=False,
        allow=("Bash",),
        deny=("Read(.env)",),
        ask=("Edit",),
    )
    found, notes = read_layers(layer)
    assert found == ["deny Read(.env) project", "ask Edit project"]
    assert notes == [
        "p.json (project): allow rule 'Bash' does not count: this folder is not trusted; --trust counts it"
    ]


def test_an_exclusive_layer_is_the_only_one_that_allows() -> None:
    found, notes = read_layers(
        Layer(name="user", allow=("Bash",), deny=("WebFetch",)), Layer(name="managed", allow=("Read",), exclusive=True)
    )
    assert found == ["deny WebFetch user", "allow Read managed"]
    assert notes == ["user: allow rule 'Bash' does not count: only the managed settings may allow"]


def test_paths_are_allowed_by_read_and_edit_but_denied_by_any_name() -> None:
    found, notes = read_layers(Layer(name="user", allow=("Write(docs/**)", "Glob(src/**)"), deny=("Write(secret/**)",)))
    assert found == ["deny Write(secret/**) user"]
    assert notes == [
        "user: allow rule 'Write(docs/**)' does not count: write Edit(docs/**)",
        "user: allow rule 'Glob(src/**)' does not count: write Read(src/**)",
    ]


def test_a_misspelled_tool_name_is_noted() -> None:
    found, notes = read_layers(Layer(name="user", deny=("Baash", "my_tool")))
    assert found == ["deny Baash user", "deny my_tool user"]
    assert notes == ["user: rule 'Baash' names no built-in tool; did you mean 'Bash'?"]


@given(st.text(max_size=30), st.sampled_from(KINDS))
def test_any_text_is_a_rule_or_an_error(text: str, kind: DecisionKind) -> None:
    for written in (text, f"Bash({text})", f"Read({text})", f"WebFetch(domain:{text})", f"Task({text})", f"x({text})"):
        with contextlib.suppress(ValueError):
            assert parse_rule(written, kind).tools
