"""Grants of a session: allow rules that only answer the questions they were given for."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.tables import each_row
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Allow, Ask, Deny, Grant, Verdict
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

CWD, HOME = "/nowhere/app", "/nowhere/kim"


def make_policy(mode: str = "default", cwd: str = CWD, **lists: Any) -> LayeredPolicy:
    return LayeredPolicy([Layer(name="user", mode=mode, **lists)], cwd=cwd, home=HOME)


def make_call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=CallId("call_1"), name=tool, arguments=arguments)


def judge_call(layered: Any, tool: str, **arguments: Any) -> Verdict:
    found: Verdict = layered.judge(make_call(tool, **arguments), spec_of(tool), ())
    return found


def judge_bash(layered: Any, command: str) -> str:
    return type(judge_call(layered, "Bash", command=command)).__name__


def require_ask(layered: Any, tool: str, **arguments: Any) -> Ask:
    verdict = judge_call(layered, tool, **arguments)
    assert isinstance(verdict, Ask)
    return verdict


def grant_for_session(layered: LayeredPolicy, tool: str, **arguments: Any) -> Any:
    """Approve a question for the session with the rule that it offers."""
    ask = require_ask(layered, tool, **arguments)
    assert ask.grant
    return layered.with_grants([Grant(rule=ask.grant, answers=tuple(ask.rule_names))])


# -------------------------------------------------------------------------------- scope of a grant


def test_a_grant_for_a_command_covers_only_that_command() -> None:
    after = grant_for_session(make_policy(), "Bash", command="npm test && git add .")
    assert (
        judge_bash(after, "npm test")
        == judge_bash(after, "git add . ; npm test")
        == judge_bash(after, "npm test | tail -5")
        == "Allow"
    )
    for other in (
        "npm",
        "npm test x",
        "npm run evil",
        "git add x",
        "npm test; rm x",
        "npm test > out",
        "$(npm test) x",
    ):
        assert judge_bash(after, other) == "Ask", other


def test_a_grant_for_a_file_covers_that_file_for_every_tool() -> None:
    after = grant_for_session(make_policy(), "Write", file_path="src/a.py", content="x")
    assert isinstance(judge_call(after, "Edit", file_path="src/a.py"), Allow)
    assert isinstance(judge_call(after, "Write", file_path="src/b.py"), Ask)
    assert judge_bash(after, "echo x > src/b.py") == "Ask"


def test_a_grant_for_a_host_covers_that_host() -> None:
    after = grant_for_session(make_policy(), "WebFetch", url="https://x.example/1")
    assert isinstance(judge_call(after, "WebFetch", url="https://x.example/2"), Allow)
    assert isinstance(judge_call(after, "WebFetch", url="https://evil.x.example/"), Ask)


def test_a_granted_call_is_allowed_by_the_session_layer() -> None:
    after = grant_for_session(make_policy(), "WebFetch", url="https://x.example/1")
    assert judge_call(after, "WebFetch", url="https://x.example/2") == Allow("WebFetch(domain:x.example)", "session")


@each_row(
    [
        "curl x | sh",
        "cat list | xargs rm",
        "python <<EOF\nx\nEOF",
        "python <<< x",
        "python < f",
        "gen > >(sh)",
        "{ python; } < f",
        "while read l; do make; done < f",
        "bash -c 'make y'",
        "eval 'make z'",
        "make $X",
        "$X",
        "rm -rf $X",
        "make 'two\nlines'",
        "make \x1b[2K",
        "make ''",
        "PATH=. make",
        "make (",
        "rm *.o",
        "make \u202e",
    ],
)
def test_a_command_that_no_rule_can_express_is_approved_once(command: str) -> None:
    assert require_ask(make_policy(), "Bash", command=command).grant == ""


def test_a_grant_for_a_link_names_each_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    layered = make_policy(cwd=str(tmp_path))
    ask = require_ask(layered, "Write", file_path="link/a")
    assert ask.grant == f"Edit(/{tmp_path}/link/a)\nEdit(/{tmp_path}/real/a)"
    after = grant_for_session(layered, "Write", file_path="link/a")
    (tmp_path / "link").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("other")
    assert isinstance(judge_call(after, "Write", file_path="link/a"), Ask), "it leads elsewhere now"


# -------------------------------------------------------------------------------- precedence


def test_a_deny_rule_wins_over_a_grant() -> None:
    grant = Grant(rule="Bash\nEdit(//**)\nWebFetch", answers=("default",))
    strict = make_policy(deny=("Bash(rm:*)", "Edit(/secret)", "WebFetch(domain:x.example)")).with_grants([grant])
    assert judge_bash(strict, "rm x") == "Deny"
    assert isinstance(judge_call(strict, "Write", file_path="secret"), Deny)
    assert isinstance(judge_call(strict, "WebFetch", url="https://x.example/"), Deny)
    assert judge_bash(strict, "make") == "Allow"


def test_a_protected_path_is_asked_about_despite_a_grant() -> None:
    after = make_policy().with_grants([Grant(rule="Edit(//**)\nBash", answers=("default", ".git"))])
    assert isinstance(judge_call(after, "Write", file_path=".git/config"), Ask)
    assert isinstance(judge_call(after, "Write", file_path=".claude/settings.local.json"), Ask)
    assert judge_bash(after, "rm -rf $X") == "Ask"
    assert isinstance(judge_call(after, "Write", file_path="a"), Allow)


@each_row(["default", "acceptEdits", "bypassPermissions"])
def test_an_ask_rule_is_answered_only_by_a_grant_for_it(mode: str) -> None:
    asking = make_policy(mode, ask=("Bash(git push:*)",), allow=("Bash(git:*)",))
    matching = Grant(rule="Bash(git push x)", answers=("Bash(git push:*)",))
    other = Grant(rule="Bash(git push x)", answers=("default",))
    assert judge_bash(asking.with_grants([other]), "git push x") == "Ask"
    assert judge_bash(asking.with_grants([matching]), "git push x") == "Allow"
    assert judge_bash(asking.with_grants([matching]), "git push y") == "Ask"
    assert judge_bash(asking.with_grants([matching]), "git push x && git push y") == "Ask"
    assert judge_bash(asking.with_grants([matching]), "git push x && git status") == "Allow"


def test_each_of_several_ask_rules_must_be_answered() -> None:
    asking = make_policy(ask=("Bash(git push:*)", "Bash(git:*)"))
    ask = require_ask(asking, "Bash", command="git push x")
    assert ask.rule_names == {"Bash(git push:*)", "Bash(git:*)"}
    assert ask.scopes == ("once", "session")
    one = asking.with_grants([Grant(rule=ask.grant, answers=("Bash(git push:*)",))])
    assert require_ask(one, "Bash", command="git push x").rule_names == {"Bash(git:*)"}
    assert judge_bash(grant_for_session(asking, "Bash", command="git push x"), "git push x") == "Allow"


def test_an_ask_rule_about_a_tool_is_answered_part_by_part() -> None:
    asking = make_policy(ask=("Bash",), allow=("Bash(ls:*)",))
    after = grant_for_session(asking, "Bash", command="ls && make")
    assert judge_bash(after, "make; ls") == "Allow"
    assert judge_bash(after, "make && ls -l") == judge_bash(after, "make x") == "Ask"
    files = make_policy("acceptEdits", ask=("Edit", "Edit(src/**)"))
    after = grant_for_session(files, "Edit", file_path="src/a")
    assert isinstance(judge_call(after, "Edit", file_path="src/a"), Allow)
    assert require_ask(after, "Edit", file_path="src/b").rule_names == {"Edit", "Edit(src/**)"}


def test_a_rule_about_an_argument_is_answered_for_that_argument() -> None:
    asking = make_policy(ask=("pay(to:Ann)", "pay(to:Bob)"), allow=("pay",))
    after = grant_for_session(asking, "pay", to="Ann", amount=5)
    assert isinstance(judge_call(after, "pay", to="Ann", amount=6), Allow)
    assert isinstance(judge_call(after, "pay", to="Bob"), Ask)


def test_an_approval_holds_once_where_only_managed_settings_allow() -> None:
    managed = LayeredPolicy([Layer(name="managed", exclusive=True)], cwd=CWD, home=HOME)
    assert require_ask(managed, "Bash", command="make").grant == ""
    assert managed.with_grants([Grant(rule="Bash", answers=("default",))]) is managed


def test_a_grant_that_is_not_a_rule_allows_nothing() -> None:
    after = make_policy().with_grants([Grant(rule="Bash(\n)(\n*\n/etc/passwd", answers=("default",))])
    assert judge_bash(after, "make") == "Ask"


# -------------------------------------------------------------------------------- rules written by a person


@each_row(
    [
        ("Bash(npm run test:*)", "Bash", {"command": "npm run test -- --watch"}, True),
        ("Bash(npm run test:*)", "Bash", {"command": "npm run build"}, False),
        ("Bash(npm run test:*)", "Bash", {"command": "npm run test && ls"}, True),
        ("Bash(npm run test:*)", "Bash", {"command": "npm run test && make"}, False),
        ("Bash(npm run test:*)\nBash(make)", "Bash", {"command": "npm run test && make"}, True),
        ("Bash(make)", "Bash", {"command": "ls"}, False),
        ("Bash", "Bash", {"command": "make"}, True),
        ("Edit(src/**)", "Write", {"file_path": "src/a.py"}, True),
        ("Edit(src/**)", "Write", {"file_path": "doc/a.py"}, False),
        ("Edit(.git/**)", "Write", {"file_path": ".git/config"}, False),
        ("Read(//etc/**)", "Read", {"file_path": "/etc/hosts"}, True),
        ("Read(//var/**)", "Read", {"file_path": "a"}, False),
        ("WebFetch(domain:*.x.org)", "WebFetch", {"url": "https://a.x.org/"}, True),
        ("WebFetch(domain:y.org)", "WebFetch", {"url": "https://a.x.org/"}, False),
        ("pay", "pay", {"amount": 5}, True),
        ("pay(amount:5)", "pay", {"amount": 6}, False),
        ("Write(a)", "Write", {"file_path": "a"}, False),
    ],
)
def test_covers_tells_whether_rules_allow_a_call(rule: str, tool: str, arguments: Any, covers: bool) -> None:
    assert make_policy().covers(rule, make_call(tool, **arguments), spec_of(tool)) is covers


@each_row(["Bash(", "Bash()", "*", "/etc/passwd", "a b"])
def test_covers_raises_for_an_invalid_rule(rule: str) -> None:
    with pytest.raises(InvalidInput, match="rule"):
        make_policy().covers(rule, make_call("Bash", command="make"), spec_of("Bash"))


words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)


@given(st.lists(words, min_size=1, max_size=4), words)
def test_the_offered_rule_matches_the_command_without_further_words(arguments: list[str], more: str) -> None:
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in arguments)
    verdict = judge_call(make_policy(), "Bash", command=f"make {quoted}")
    if not isinstance(verdict, Ask) or not verdict.grant:
        return
    after = make_policy().with_grants([Grant(rule=verdict.grant, answers=tuple(verdict.rule_names))])
    assert judge_bash(after, f"make {quoted}") == "Allow"
    extra = more.replace("'", "'\\''")
    assert judge_bash(after, f"make {quoted} '{extra}'") == judge_bash(after, f"make '{extra}' {quoted}") == "Ask"
    assert judge_bash(after, f"make {quoted}'{extra}'") == "Ask"


RULES = (
    "Bash",
    "Bash(git:*)",
    "Bash(git push:*)",
    "Bash(git push x)",
    "Bash(rm:*)",
    "Edit",
    "Edit(src/**)",
    "Edit(//**)",
    "Read(.env)",
    "Read(//etc/**)",
    "WebFetch",
    "WebFetch(domain:*.x.org)",
    "mcp__git__push",
    "mcp__git__push(branch:main)",
)
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Bash", {"command": "git push x"}),
    ("Bash", {"command": "git push x && rm y"}),
    ("Bash", {"command": "rm -rf $X"}),
    ("Bash", {"command": "git status > src/a"}),
    ("Bash", {"command": "cat .env"}),
    ("Write", {"file_path": "src/a"}),
    ("Edit", {"file_path": ".git/config"}),
    ("Read", {"file_path": "/etc/hosts"}),
    ("Read", {"file_path": ".env"}),
    ("WebFetch", {"url": "https://a.x.org/"}),
    ("mcp__git__push", {"branch": "main"}),
)
rule_lists = st.lists(st.sampled_from(RULES), max_size=3).map(tuple)
ask_names = st.lists(st.sampled_from((*RULES, "default", "acceptEdits", "bypassPermissions", ".git")), max_size=4).map(
    tuple
)
rule_kinds = st.fixed_dictionaries({"allow": rule_lists, "ask": rule_lists, "deny": rule_lists})
grants = st.lists(
    st.builds(lambda rules, asks: Grant(rule="\n".join(rules), answers=asks), rule_lists, ask_names), max_size=3
)
modes = st.sampled_from(("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"))


@given(modes, rule_kinds, grants, st.sampled_from(CALLS))
@settings(max_examples=max(100, settings().max_examples))
def test_a_grant_only_answers_questions(
    mode: str, rules: Any, granted: list[Grant], one: tuple[str, dict[str, Any]]
) -> None:
    base, more = make_policy(mode, **rules), make_policy(mode, **rules).with_grants(granted)
    before, after = (judge_call(layered, one[0], **one[1]) for layered in (base, more))
    assert isinstance(after, Deny) == isinstance(before, Deny) or (
        isinstance(before, Deny) and mode != "bypassPermissions"
    )
    if isinstance(before, Allow):
        assert isinstance(after, Allow)
    if isinstance(before, Ask) and before.layer in ("protected", "guard", "syntax"):
        assert isinstance(after, Ask)
    asking = before.rule_names & {*rules["ask"]} if isinstance(before, Ask) else set()
    if asking - {name for grant in granted for name in grant.answers}:
        assert isinstance(after, Ask), "no grant answers that rule"


@given(modes, rule_kinds, st.sampled_from(CALLS))
@settings(max_examples=max(100, settings().max_examples))
def test_the_offered_rule_is_sufficient_in_its_scopes(mode: str, rules: Any, one: tuple[str, dict[str, Any]]) -> None:
    layered = make_policy(mode, **rules)
    ask = judge_call(layered, one[0], **one[1])
    if not isinstance(ask, Ask) or not ask.grant:
        return
    session = layered.with_grants([Grant(rule=ask.grant, answers=tuple(ask.rule_names))])
    assert isinstance(judge_call(session, one[0], **one[1]), Allow)
    saved = LayeredPolicy(
        [Layer(name="user", mode=mode, **rules), Layer(name="local", allow=tuple(ask.grant.splitlines()))],
        cwd=CWD,
        home=HOME,
    )
    assert isinstance(judge_call(saved, one[0], **one[1]), Allow) is (ask.scopes == ())


@each_row(
    ["python3", "python3 -u -", "/usr/bin/perl -w", "timeout 5 node", "bash", "xargs rm", "nohup xargs -n1 rm"],
)
def test_a_program_that_runs_its_input_is_approved_once(command: str) -> None:
    assert require_ask(make_policy(), "Bash", command=command).grant == ""


@each_row(["python3 run.py", "python3 -m pytest", "node -e 1", "bash build.sh", "timeout 5 make"])
def test_a_program_with_a_script_may_be_approved_for_longer(command: str) -> None:
    assert require_ask(make_policy(), "Bash", command=command).grant == f"Bash({command})"


def test_the_name_of_a_tool_never_becomes_a_rule_for_others() -> None:
    assert require_ask(make_policy(), "mcp__x__pay").grant == "mcp__x__pay"
    assert require_ask(make_policy(), "mcp__x__*").grant == ""
    assert require_ask(make_policy(), "mcp__x").grant == ""


def test_a_rule_for_one_name_does_not_allow_a_call_that_gives_two() -> None:
    rules = make_policy(allow=("Skill(pdf)",), deny=("Skill(secret)",))
    decisions = {
        name: rules.decide(spec_of("Skill"), {"command": "pdf", "skill": name}).decision
        for name in ("pdf", "other", "secret")
    }
    assert decisions == {"pdf": "allow", "other": "ask", "secret": "deny"}
