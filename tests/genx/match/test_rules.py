"""Rules of match: documents, their problems, the prompt and templates of it."""

import sys
from typing import Any

import pytest

from vaka.core.types.errors import ConfigError
from vaka.genx.match.matcher import compile_rules
from vaka.genx.match.rules import (
    Example,
    MatchRule,
    Pattern,
    RuleTest,
    RuleVar,
    check_rule,
    parse_rule,
    rule_document,
)

PLAY: dict[str, Any] = {
    "name": "play_song",
    "references": {"moods": "calm, loud\nor sad", "artists": "any singer or band"},
    "vars": {
        "title": {"label": "song title"},
        "artist": {"label": "singer", "type": "string"},
        "count": {"type": "int"},
    },
    "patterns": [
        "play [title]",
        ["play [title] by [artist]"],
        ["sing [歌曲名]", "title=[歌曲名]"],
        ["stop it", "pause"],
        ["[count] songs please", "play_song: count=[count]"],
    ],
    "examples": [
        ["a plain wish"],
        ["two wishes", "play A, then B", "play_song: title=A\ntitle=B"],
        {"subject": "none", "input": "good morning", "output": "nothing"},
    ],
    "tests": ["play Yesterday", {"input": "play 3", "args": {"count": 3}, "rule": "pause"}],
}


def test_a_rule_document_becomes_values_and_the_same_document_again() -> None:
    rule = parse_rule(PLAY)
    assert rule.vars["title"] == RuleVar(label="song title")
    assert rule.patterns[1] == Pattern("play [title] by [artist]")
    assert rule.examples[2] == Example("none", "good morning", "nothing")
    assert rule.tests == (RuleTest(input="play Yesterday"), RuleTest(input="play 3", args={"count": 3}, rule="pause"))
    document = rule_document(rule)
    assert document["patterns"][:3] == ["play [title]", "play [title] by [artist]", ["sing [歌曲名]", "title=[歌曲名]"]]
    assert document["examples"][0] == ["a plain wish"]
    assert parse_rule(document) == rule
    assert rule_document(parse_rule({"name": "empty"})) == {"name": "empty"}
    by_objects = {"name": "p", "patterns": [{"input": "a", "output": "b"}], "examples": ["only a subject"]}
    assert rule_document(parse_rule(by_objects)) == {
        "name": "p",
        "patterns": [["a", "b"]],
        "examples": [["only a subject"]],
    }


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name is required"),
    ({"name": None}, "name is required"),
    ({"name": 3}, "name is a text, not a number; quote it"),
    ({"name": "a: b"}, "must not contain ':'"),
    ({"name": "a\nb"}, "must not contain ':', newlines"),
    ({"patterns": "play"}, "patterns is a list, not a text"),
    ({"patterns": [[]]}, "invalid pattern array length: 0"),
    ({"patterns": [["a", "b", "c"]]}, "invalid pattern array length: 3"),
    ({"patterns": [True]}, "not a bool; quote it"),
    ({"patterns": [["a", 1]]}, "with a number in it; quote it"),
    ({"patterns": [{"input": 1}]}, "input is a text, not a number"),
    ({"patterns": ["a\nb"]}, 'pattern "a\\nb" contains newline'),
    ({"patterns": ["a\n"]}, "contains newline"),
    ({"patterns": [["a", "b\nc"]]}, "contains newline"),
    ({"patterns": ["play [titel]"]}, "has placeholder [titel] not defined in vars; did you mean 'title'?"),
    ({"examples": [[]]}, "invalid example array length: 0 (expected 1-3)"),
    ({"examples": [["a", "b", "c", "d"]]}, "invalid example array length: 4 (expected 1-3)"),
    ({"examples": [7]}, "example is [subject, user text, output]"),
    ({"vars": []}, "vars is a mapping, not a list"),
    ({"vars": {"title": "text"}}, 'var "title" is a mapping with label and type, not a text'),
    ({"vars": {"title": {"type": "number"}}}, 'var "title" has invalid type "number"'),
    ({"vars": {"title": {"label": "a [b]"}}}, "label must not contain"),
    ({"vars": {"title": {"label": "a\nb"}}}, "label contains newline"),
    ({"references": {"a": 1}}, 'reference "a" is a text, not a number'),
    ({"tests": [3]}, "a test is a text or {input, args}"),
    ({"tests": [{"args": {}}]}, "a test needs an input"),
    ({"tests": [{"input": "a", "args": {"x": None}}]}, 'argument "x" of a test is null'),
]


@pytest.mark.parametrize(("change", "fragment"), WRONG)
def test_a_wrong_rule_is_refused_with_what_is_wrong(change: dict[str, Any], fragment: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_rule({**PLAY, **change})
    assert fragment in str(refused.value)


def test_all_problems_of_a_rule_are_reported_with_their_paths() -> None:
    document: dict[str, Any] = {
        **PLAY,
        "patterns": ["play [x]", [], "ok"],
        "paterns": [],
        "vars": {"title": {"type": "y"}, "名": None},
    }
    problems = [(problem.path, problem.is_warning) for problem in check_rule(document)]
    assert problems == [
        (("paterns",), True),
        (("vars", "title", "type"), False),
        (("vars", "名"), True),
        (("patterns", 0), False),
        (("patterns", 1), False),
    ]
    outputs = check_rule({"name": "r", "patterns": [["on", "r: state=on"]]})
    assert [(item.is_warning, "sets state, which is not defined" in item.message) for item in outputs] == [(True, True)]
    assert check_rule([1])[0].message == "rule: a rule is a mapping with a name, not a list"
    assert len(check_rule({"name": "r", "patterns": ["x" * 200 + "[y]"]})[0].message) < 150


def test_the_prompt_has_references_patterns_and_numbered_examples_in_order() -> None:
    pause = parse_rule(
        {"name": "pause", "references": {"moods": "none"}, "patterns": ["pause", ""], "examples": [["x", "y"]]}
    )
    compiled = compile_rules([parse_rule(PLAY), pause])
    assert (
        compiled.prompt[compiled.prompt.index("<references>") :]
        == """\
<references>
- artists: any singer or band
- moods: none
</references>

<patterns>
- play [song title] -> play_song: title=[song title]
- play [song title] by [singer] -> play_song: title=[song title], artist=[singer]
- sing [歌曲名] -> play_song: title=[歌曲名]
- stop it -> pause
- [count] songs please -> play_song: count=[count]
- pause -> pause
-  -> pause
</patterns>

<examples>
## Case 1: a plain wish
### User text:

### Formatted to:


## Case 2: two wishes
### User text:
play A, then B
### Formatted to:
play_song: title=A
play_song: title=B

## Case 3: none
### User text:
good morning
### Formatted to:
nothing

## Case 4: x
### User text:
y
### Formatted to:

</examples>"""
    )
    assert "<references>" not in compile_rules([MatchRule(name="r")]).prompt
    assert "<examples>" not in compile_rules([MatchRule(name="r", patterns=(Pattern("a [x]"),))]).prompt


def test_of_two_rules_with_one_name_the_first_parses_and_both_are_in_the_prompt() -> None:
    first = parse_rule({"name": "r", "vars": {"n": {"type": "int"}}, "patterns": ["one [n]"]})
    second = parse_rule({"name": "r", "vars": {"m": {}}, "patterns": ["two [m]"]})
    compiled = compile_rules([first, second])
    assert "'r' is defined twice" in compiled.warnings[0]
    assert "- one [n] -> r: n=[n]\n- two [m] -> r: m=[m]" in compiled.prompt
    assert compiled.parser().feed("r: n=4, m=5\n")[0].args == {"n": 4}
    with pytest.raises(ConfigError, match="at least one rule"):
        compile_rules([])


def test_a_template_sees_references_and_expanded_rules() -> None:
    template = (
        "{% for key, text in References.items() %}\n{{ key }}={{ text | upper | trim }};\n{% endfor %}"
        "{% for rule in Rules if rule.Patterns %}{{ loop.index + 1 }} {{ rule.Name }}: "
        "{{ rule.Patterns | join(' / ', attribute='Output') }}{% endfor %}"
        "{% for e in Rules[0].Examples[:2] %}|{{ e.Subject }}~{{ e.UserText }}~{{ e.FormattedTo | tojson }}{% endfor %}"
        "{{ (References | dictsort | first)[0] if Rules is defined else 'x' }}"
    )
    assert compile_rules([parse_rule(PLAY)], template=template).prompt == (
        "artists=ANY SINGER OR BAND;\nmoods=CALM, LOUD\nOR SAD;\n"
        "2 play_song: play_song: title=[song title] / play_song: title=[song title], artist=[singer]"
        " / play_song: title=[歌曲名] / play_song: pause / play_song: count=[count]"
        '|a plain wish~~""|two wishes~play A, then B~"play_song: title=A\\nplay_song: title=B"artists'
    )


@pytest.mark.parametrize(
    ("template", "fragment"),
    [
        ("a\n{% for %}", "template, line 2:"),
        ("{{ MatchRule }}", "'MatchRule' is undefined"),
        ("{{ Rules.__class__ }}", "template: "),
        ("{{ Rules.append(1) }}", "calls are not available"),
        ("{% set x = 'a' %}", "Assign is not available"),
        ("{{ 'a' * 9 }}", "Mul is not available"),
        ("{{ 9 ** 9 }}", "Pow is not available"),
        ("{% macro f() %}{% endmacro %}", "Macro is not available"),
        ("{% include 'x' %}", "Include is not available"),
        ("{% for r in Rules recursive %}{% endfor %}", "recursive loops are not available"),
        ("{{ 'a' | indent(1000000000) }}", "numbers up to 10,000 are available"),
        ("{{ 'a' | replace('a', 'b') }}", "No filter named 'replace'"),
        ("{% for a in L %}" * 4 + "x" + "{% endfor %}" * 4, "more than 100,000 rounds"),
        ("{{ L | join(L | join('" + "x" * 1500 + "')) }}", "longer than 2,000,000 characters"),
        ("{% for a in L %}{{ '" + "y" * 30_000 + "' }}{% endfor %}", "longer than 2,000,000 characters"),
        ("{{ L | join('\n', 'Input')" + " | indent(9999)" * 3 + "}}", "longer than 2,000,000 characters"),
        (
            "{% for a in L %}{% for b in L %}{{ 1 if 'z' == a.Input ~ '" + "z" * 9_000 + "' }}{% endfor %}{% endfor %}",
            "more than 50,000,000 characters",
        ),
        (
            "{% for a in L %}{% for b in L %}{{ ('" + "z" * 9_000 + "' + b.Input) | length }}{% endfor %}{% endfor %}",
            "more than 50,000,000 characters",
        ),
        ("{{ Rules[0].Name" + " | upper" * 300 + " }}", "nested too deep"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "nested too deep"),
        ("x" * 200_001, "the limit is 200,000"),
        ("{{ Rules + 'a' }}", "template: "),
    ],
)
def test_a_template_that_is_wrong_or_too_costly_is_an_error(template: str, fragment: str) -> None:
    rule = MatchRule(name="r", patterns=tuple(Pattern(f"p{number}") for number in range(100)))
    source = template.replace("L ", "Rules[0].Patterns ").replace("L |", "Rules[0].Patterns |")
    with pytest.raises(ConfigError) as refused:
        compile_rules([rule], template=source)
    assert fragment in str(refused.value)


def test_a_template_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vaka.genx.match.template", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r"pip install 'vaka\[definitions\]'"):
        compile_rules([MatchRule(name="r")], template="x")
