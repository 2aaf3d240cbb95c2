"""Folders that other people have written for Claude Code: nothing is dropped, each mistake has its file and line."""

from pathlib import Path
from typing import Any

import pytest

from vaka.config.settings import ConfigContext, SettingsFile
from vaka.core.types.errors import ConfigError
from vaka.project.components import Components, components_in_force, load_components
from vaka.project.content import ProjectContent, load_project_content
from vaka.project.frontmatter import MarkdownFile, parse_markdown, read_head
from vaka.project.plugins import find_plugins


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.fixture
def context(tmp_path: Path) -> ConfigContext:
    (tmp_path / "project/.claude").mkdir(parents=True)
    (tmp_path / "project/.git").mkdir()
    (tmp_path / "home").mkdir()
    return ConfigContext(cwd=tmp_path / "project", home=tmp_path / "home", environ={})


NOT_YAML = "the head is not YAML"
HEADS: list[tuple[str, dict[str, Any], str, str]] = [
    ("---\nname: a\ndescription: Use it: often\n---\nB", {"description": "Use it: often"}, "B", f"3: {NOT_YAML}"),
    ("---\nname: a\ntools: *\n---\nB", {"name": "a", "tools": "*"}, "B", f"3: {NOT_YAML}"),
    ("---\n\tname: a\n\tdescription: b\n---\nB", {"name": "a", "description": "b"}, "B", f"2: {NOT_YAML}"),
    ("---\nname: a\nname: b\n---\nB", {"name": "b"}, "B", "3: 'name' appears twice"),
    ('---\nname: "a\ndescription: b\n---\nB', {"name": "a", "description": "b"}, "B", NOT_YAML),
    ('---\nname: a\ndescription: "b: "c" d"\n---\nB', {"description": 'b: "c" d'}, "B", f"3: {NOT_YAML}"),
    ("---\nname:a\ndescription: [b\n---\nB", {"name": "a", "description": "[b"}, "B", NOT_YAML),
    (
        '---\ndescription: For: tests.\n\nContext: a.\nuser: "Hi: you"\nhttps://x.y\nmodel: opus\n---\nB',
        {"description": 'For: tests.\nContext: a.\nuser: "Hi: you"\nhttps://x.y', "model": "opus"},
        "B",
        NOT_YAML,
    ),
    ("---\ndescription: a: b\ntools:\n  - Read\n  - Grep\n---\nB", {"tools": "- Read\n- Grep"}, "B", NOT_YAML),
    ("---\nname: a\ndescription: b\n\nB", {"name": "a", "description": "b"}, "B", "4: the head has no closing ---"),
    ("---\nText\n\nB", {}, "---\nText\n\nB", "1: the head has no closing ---"),
    ("name: a\ndescription: b\n---\nB", {"name": "a", "description": "b"}, "B", "1: the head has no opening ---"),
    ("\n---\nname: a\n---\nB", {"name": "a"}, "B", "2: there is text before the head"),
    ("<!-- c -->\n---\nname: a\n---\nB", {"name": "a"}, "B", "2: there is text before the head"),
    ("```yaml\n---\nname: a\n---\n```\nB", {"name": "a"}, "B", "2: there is text before the head"),
    ("\ufeff---\r\nname: a\r\n---\r\nB", {"name": "a"}, "B", ""),
    ("---\nname: a\n---\nB\n---\nC", {"name": "a"}, "B\n---\nC", ""),
    ("# Title\n\n---\n\nB\n\n---\n", {}, "# Title\n\n---\n\nB\n\n---\n", ""),
    ("\n---\nB\n---\nC", {}, "\n---\nB\n---\nC", ""),
    ("---\na: &x [1, 1]\nb: [*x, *x]\n---\nB", {"b": "[*x, *x]"}, "B", NOT_YAML),
    (f"---\na: {'[' * 50_000}\n---\nB", {}, "B", NOT_YAML),
    (f"---\na:\n{'- ' * 20_000}\n---\nB", {}, "B", NOT_YAML),
    (f"---\n{'k: v: w' * 20_000}\nname: a\n---\nB", {"name": "a"}, "B", NOT_YAML),
]


def test_sloppy_heads_are_read_and_reported_with_their_line() -> None:
    failed: list[object] = []
    for text, fields, body, problem in HEADS:
        parsed = parse_markdown(text)
        problems = [f"{line}: {message}" for line, message in parsed.problems]
        wrong = {name: parsed.fields.get(name) for name, value in fields.items() if parsed.fields.get(name) != value}
        reported = any(problem in message for message in problems) if problem else not problems
        if wrong or parsed.body != body or not reported:
            failed.append((text[:80], wrong, parsed.body[:80], problems))
    assert failed == []


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("Read Write Bash(git log *)", ("Read", "Write", "Bash(git log *)")),
        ("Read,Write,Read", ("Read", "Write")),
        ("['Read', Write]", ("Read", "Write")),
        ('"Read", "Write"', ("Read", "Write")),
        ("\n- Read\n- 'Bash(a: b)'", ("Read", "Bash(a: b)")),
        ("{Read: true, Write: false}", ("Read",)),
        ("mcp__server__*, Read", ("mcp__server__*", "Read")),
        ("[]", ()),
        ("", None),
    ],
)
def test_lists_of_tools_are_read_from_every_form(value: str, names: tuple[str, ...] | None) -> None:
    parsed = parse_markdown(f"---\nallowed_tools: {value}\n---\n")
    assert parsed.names("allowed-tools") == names


def names_of(found: Components) -> dict[str, list[str]]:
    return {
        "skills": [item.name for item in found.skills],
        "commands": [item.name for item in found.commands],
        "agents": [item.name for item in found.agents],
    }


def test_every_sloppy_file_is_listed_with_file_and_line(tmp_path: Path) -> None:
    head = "---\nname: {}\ndescription: D.\n---\nB"
    write(tmp_path / "skills/group/inner/SKILL.md", head.format("inner"))
    write(tmp_path / "skills/lower/skill.md", head.format("lower"))
    write(tmp_path / "skills/one/SKILL.md", head.format("Same Name"))
    write(tmp_path / "skills/two/SKILL.md", head.format("one"))
    (tmp_path / "skills/latin").mkdir()
    (tmp_path / "skills/latin/SKILL.md").write_bytes("---\nname: latin\ndescription: Caf\xe9\n---\nB".encode("latin-1"))
    write(tmp_path / "skills/flat.md", head.format("flat"))
    write(tmp_path / "skills/README.md", head.format("about"))
    write(tmp_path / "skills/notes.md", "Only notes.")
    write(tmp_path / "commands/My Command.md", "---\nallowed-tools: Read\n---\n\n***\n# Does it\nB")
    write(tmp_path / "agents/helper.md", "---\nname: Help Me\ndescription: D.\nallowedTools: Read, Grep\n---\nB")
    write(tmp_path / "agents/again/reviewer.md", head.format("help-me"))
    write(tmp_path / "agents/README.md", "# About these agents")
    write(tmp_path / "agents/plain.md", "You are plain.")
    found = load_components([("project", tmp_path)])
    assert names_of(found) == {
        "skills": ["flat", "inner", "latin", "lower", "one", "two"],
        "commands": ["My-Command"],
        "agents": ["help-me", "helper", "plain"],
    }
    assert found.commands[0].description == "Does it"
    assert found.skills[2].description == "Caf\ufffd"
    assert [agent.tools for agent in found.agents] == [None, ("Read", "Grep"), None]
    problems = [problem for item in (*found.skills, *found.commands, *found.agents) for problem in item.problems]
    assert all(problem.startswith(f"{tmp_path}/") for problem in problems)
    for place in (
        "skills/flat.md:1: a skill is a folder; move the file to flat/SKILL.md",
        "skills/lower/skill.md:1: the file is named skill.md",
        "skills/one/SKILL.md:2: the name 'Same Name'",
        "skills/two/SKILL.md:1: the name 'one' is also the name of",
        "commands/My Command.md:1: the file's name",
        "agents/helper.md:2: the name 'Help Me'",
        "agents/helper.md:1: the name 'help-me' is also the name of",
        "skills/latin/SKILL.md:3: the head has bytes that are not UTF-8",
        "agents/plain.md:1: it has no description",
    ):
        assert any(problem.startswith(f"{tmp_path}/{place}") for problem in problems), (place, problems)
    assert found.problems == (
        f"{tmp_path}/agents/README.md:1: it has no head with name and description, so it is not an agent",
    )


def test_a_description_that_begins_far_below_is_found(tmp_path: Path) -> None:
    notes = "  note\n" * 5000
    long = write(tmp_path / "long.md", f"---\nname: a\nnotes: |\n{notes}description: At the end.\n---\nB")
    head: MarkdownFile = read_head(long)
    assert (head.text("description"), head.body) == ("At the end.", "B")


def test_marketplaces_and_plugins_without_manifest_bring_their_parts_once(tmp_path: Path) -> None:
    skill = "---\nname: {}\ndescription: D.\n---\nB"
    for name in ("pdf", "csv"):
        write(tmp_path / f"market/skills/{name}/SKILL.md", skill.format(name))
    write(tmp_path / "market/plugins/kit/.claude-plugin/plugin.json", '{"name": "other", "agents": ["./agents/a.md"],}')
    write(tmp_path / "market/plugins/kit/agents/a.md", skill.format("a"))
    write(
        tmp_path / "market/plugins/kit/commands/run.md",
        "---\nallowed-tools: Bash(${CLAUDE_PLUGIN_ROOT}/x:*)\n---\nRun.",
    )
    write(tmp_path / "market/single/SKILL.md", skill.format("single"))
    write(
        tmp_path / "market/.claude-plugin/marketplace.json",
        '{"name": "m", "plugins": ['
        '{"name": "docs", "source": "./", "strict": false, "skills": ["./skills/pdf", "../outside"]},'
        '{"name": "kit", "source": "./plugins/kit"}, {"name": "single", "source": "./single"},'
        '{"name": "gone", "source": "./gone"}, {"name": "out", "source": "../.."},'
        '{"name": "far", "source": {"source": "github", "repo": "a/b"}}, 7,'
        '{"name": "farther", "source": "github:a/b"}]}',
    )
    write(tmp_path / "bare/commands/hello.md", "Hello.")
    write(tmp_path / "market/plugins/kit/inner/.claude-plugin/plugin.json", '{"name": "inner"}')
    write(tmp_path / "market/plugins/kit/inner/commands/no.md", "Of another plugin.")
    problems: list[str] = []
    write(tmp_path / "alone/SKILL.md", skill.format("alone"))
    found = load_components([], find_plugins([tmp_path / name for name in ("market", "bare", "alone")], problems))
    assert names_of(found) == {
        "skills": ["docs:pdf", "single:single", "alone:alone"],
        "commands": ["kit:run", "bare:hello"],
        "agents": ["kit:a"],
    }
    assert found.commands[0].allowed_tools == (f"Bash({tmp_path}/market/plugins/kit/x:*)",)
    assert found.find_command("run") is found.commands[0]
    texts = "\n".join([*problems, *found.problems])
    for text in (
        "2 plugins are left out, since their source is not a folder here: plugins[3] './gone', plugins[4] '../..'",
        "3 plugins are left out, since they are not in this folder: far, plugins[6], farther",
        "'../outside' leads out of the plugin",
        "plugin.json:1: not JSON",
    ):
        assert text in texts, (text, texts)


def test_installed_plugins_and_all_folders_up_to_the_repository_are_used(context: ConfigContext) -> None:
    plugins, inner = context.home / ".claude/plugins", context.cwd / "packages/app"
    for name in ("on", "off", "elsewhere"):
        write(plugins / f"cache/m/{name}/1.0/commands/go.md", "Go.")
    entries = (
        '"on@m": [{"scope": "user", "installPath": "cache/m/on/1.0"}], "off@m": {"installPath": "cache/m/off/1.0"},'
        '"elsewhere@m": [{"projectPath": "/other", "installPath": "cache/m/elsewhere/1.0"}],'
        '"lost@m": [{"installPath": "cache/lost"}]'
    )
    write(plugins / "installed_plugins.json", f'{{"version": 2, "plugins": {{{entries}}}}}')
    write(context.cwd / ".claude/commands/root.md", "Of the repository.")
    write(context.cwd / ".claude/commands/same.md", "Of the repository.")
    write(inner / ".claude/commands/same.md", "Of the package.")
    switches = SettingsFile(layer="user", path=Path("settings.json"), document={"enabledPlugins": {"off@m": False}})
    helper = write(inner / ".claude/agents/a.md", "---\nname: a\ndescription: D.\nskills: gone\n---\nB")
    below = ConfigContext(cwd=inner, home=context.home, environ={})
    found = components_in_force(below, files=[switches])
    assert names_of(found)["commands"] == ["same", "root", "same", "on:go"]
    same = found.find_command("same")
    assert same is not None
    assert same.description == "Of the package."
    assert len(found.problems) == 2
    assert "plugins.lost@m: there is no folder" in found.problems[0]
    assert found.problems[1] == f"{helper}: skills: there is no skill 'gone'"


def test_a_folder_that_is_not_trusted_cannot_switch_off_plugins_or_memory_of_the_user(context: ConfigContext) -> None:
    write(context.home / ".claude/plugins/kit/.claude-plugin/plugin.json", '{"name": "kit"}')
    write(context.home / ".claude/plugins/kit/commands/go.md", "Go.")
    write(context.home / ".claude/CLAUDE.md", "Mine.")
    document = {"enabledPlugins": {"kit@m": False}, "claudeMdExcludes": ["**/CLAUDE.md"]}
    for trusted in (False, True):
        file = SettingsFile(layer="project", path=Path("s"), document=document, project=True, trusted=trusted)
        content = load_project_content(context, [file], trusted=trusted)
        assert names_of(content.components)["commands"] == ([] if trusted else ["kit:go"])
        assert content.prompt.endswith("Mine.") is not trusted


def test_a_plugin_in_a_relative_folder_has_an_absolute_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "kit/commands/go.md", "Go to ${CLAUDE_PLUGIN_ROOT}.")
    (command,) = load_components([], find_plugins([Path("kit")])).commands
    assert command.read_body() == f"Go to {tmp_path}/kit."


def test_a_file_that_became_a_link_to_a_key_is_not_read(tmp_path: Path) -> None:
    key = write(tmp_path / "home/.ssh/id_rsa", "PRIVATE")
    path = write(tmp_path / "commands/go.md", "Go.")
    (command,) = load_components([("project", tmp_path)]).commands
    path.unlink()
    path.symlink_to(key)
    with pytest.raises(ConfigError, match="may hold secrets"):
        command.read_body()


@pytest.mark.parametrize("trusted", [False, True])
def test_links_to_the_folder_of_the_user_may_lead_to_texts_only(context: ConfigContext, trusted: bool) -> None:
    settings = write(context.home / ".claude/settings.json", '{"env": {"X": "PRIVATE"}}')
    shared = write(context.home / ".claude/shared.md", "Shared.")
    names = ("CLAUDE.md", ".claude/CLAUDE.md", ".claude/rules/a.md", ".claude/commands/a.md", ".claude/agents/a.md")
    for name in (*names, ".claude/skills/a/SKILL.md"):
        (context.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (context.cwd / name).symlink_to(settings)
    (context.cwd / ".claude/rules/b.md").symlink_to(shared)
    content = load_project_content(context, trusted=trusted)
    assert ("Shared." in content.prompt, "PRIVATE" in content.prompt) == (True, False)
    assert names_of(content.components) == {"skills": [], "commands": [], "agents": []}
    assert sum("not a text" in problem for problem in content.problems) == 6


@pytest.mark.parametrize("trusted", [False, True])
def test_a_link_to_a_folder_brings_no_nested_memory_without_trust(context: ConfigContext, trusted: bool) -> None:
    write(context.home / "notes/deep/CLAUDE.md", "Private notes.")
    context.cwd.mkdir(parents=True, exist_ok=True)
    (context.cwd / "docs").symlink_to(context.home / "notes")
    content = load_project_content(context, trusted=trusted)
    texts = [text.text for text in content.texts_for(context.cwd / "docs/deep/a.txt")]
    assert texts == (["Private notes."] if trusted else [])


def test_links_must_not_carry_other_files_into_the_prompt(context: ConfigContext, tmp_path: Path) -> None:
    key = write(context.home / ".ssh/id_rsa", "PRIVATE KEY")
    notes = write(context.home / "notes.md", "Private notes.")
    write(context.home / "shared/tool/SKILL.md", "---\nname: tool\ndescription: D.\n---\nB")
    write(context.cwd / "docs/rules.md", "Inside.")
    claude = context.cwd / ".claude"
    for name, target in (
        ("commands/key.md", key),
        ("commands/notes.md", notes),
        ("commands/inside.md", context.cwd / "docs/rules.md"),
        ("commands/all", context.home),
        ("skills/tool", context.home / "shared/tool"),
        ("rules/key.md", key),
        ("skills/low/skill.md", key),
        ("skills/flat.md", key),
        ("CLAUDE.md", key),
        ("output-styles/key.md", key),
    ):
        (claude / name).parent.mkdir(parents=True, exist_ok=True)
        (claude / name).symlink_to(target)
    (context.cwd / "CLAUDE.md").symlink_to(notes)
    files = [SettingsFile(layer="project", path=Path("s"), document={"outputStyle": "key"})]
    for trusted in (False, True):
        content = load_project_content(context, files, trusted=trusted)
        expected = ["all:notes", "all:shared:tool:SKILL", "inside", "notes"] if trusted else ["inside"]
        assert names_of(content.components)["commands"] == expected
        assert names_of(content.components)["skills"] == (["tool"] if trusted else [])
        assert ("Private notes." in content.prompt) is trusted
        assert "PRIVATE" not in content.prompt + "".join(item.description for item in content.components.commands)
        assert any("may hold secrets" in problem for problem in content.problems)


def load_memory(context: ConfigContext, text: str, **more: Any) -> ProjectContent:
    write(context.cwd / "CLAUDE.md", text)
    return load_project_content(context, **more)


@pytest.mark.parametrize(
    ("text", "expected", "problem"),
    [
        ("See @~/.claude/mine.md.", "See Mine..", ""),
        (
            "@~/.claude/settings.json",
            "@~/.claude/settings.json",
            "CLAUDE.md:1: @~/.claude/settings.json: is not a text",
        ),
        ("@~/.claude/.credentials.json", "@~/.claude/.credentials.json", "CLAUDE.md:1: "),
        ("a\n@../outside.md", "a\n@../outside.md", "CLAUDE.md:2: @../outside.md: is outside of the project"),
        ("@docs/link.md", "@docs/link.md", "is outside of the project"),
        ("@~no-such-user/x.md @~/.claude/none.md", "@~no-such-user/x.md @~/.claude/none.md", "there is no such file"),
        ("Use @scope/package, ask @jane.doe or me@x.md", "Use @scope/package, ask @jane.doe or me@x.md", ""),
        ("```\n```js\n@docs/a.md\n```\n@docs/a.md", "```\n```js\n@docs/a.md\n```\nA", ""),
        ("`@docs/a.md` ``@docs/a.md``", "`@docs/a.md` ``@docs/a.md``", ""),
        ("<!-- @docs/a.md\n-->\n@docs/none.md", "@docs/none.md", "CLAUDE.md:3: @docs/none.md: there is no such file"),
        ("@docs/a.md\r\nnext", "A\nnext", ""),
    ],
)
def test_imports_stay_in_the_project_and_mistakes_have_a_line(
    context: ConfigContext, monkeypatch: pytest.MonkeyPatch, text: str, expected: str, problem: str
) -> None:
    monkeypatch.setenv("HOME", str(context.home))
    write(context.home / ".claude/mine.md", "Mine.")
    write(context.home / ".claude/settings.json", '{"env": {"KEY": "secret"}}')
    write(context.home / ".claude/.credentials.json", '{"token": "secret"}')
    write(context.cwd.parent / "outside.md", "secret")
    write(context.cwd / "docs/a.md", "A")
    (context.cwd / "docs/link.md").symlink_to(context.cwd.parent / "outside.md")
    content = load_memory(context, text)
    assert [memory.text for memory in content.memory] == [expected]
    assert any(problem in found for found in content.problems) if problem else content.problems == ()


def test_the_memory_of_the_user_may_import_their_texts_from_everywhere(
    context: ConfigContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(context.home))
    write(context.home / "dotfiles/style.md", "My style.")
    write(context.home / ".ssh/id_rsa", "PRIVATE")
    write(context.home / ".claude/CLAUDE.md", "@~/dotfiles/style.md @~/.ssh/id_rsa")
    (memory,) = load_project_content(context).memory
    assert memory.text == "My style. @~/.ssh/id_rsa"


def test_rules_with_patterns_are_relative_to_the_folder_of_their_project(context: ConfigContext) -> None:
    rules = context.cwd / ".claude/rules"
    write(rules / "list.md", "---\npaths:\n  - packages/app/**/*.{ts,tsx}\n---\nList.")
    write(rules / "text.md", '---\npaths: "*.sql, packages/my app/*.md"\n---\nText.')
    write(rules / "star.md", "---\npaths: **/*.py\n---\nStar.")
    write(rules / "broken.md", "---\npaths: [a\n---\nAlways.")
    write(context.home / ".claude/rules/mine.md", "---\npaths: packages/**\n---\nMine.")
    inner = context.cwd / "packages/app"
    inner.mkdir(parents=True)
    content = load_project_content(ConfigContext(cwd=inner, home=context.home, environ={}))
    assert "Always." in content.prompt
    for name, expected in (
        ("a.ts", ["Mine.", "List."]),
        ("deep/b.tsx", ["Mine.", "List."]),
        ("x.sql", ["Mine.", "Text."]),
        ("y.py", ["Mine.", "Star."]),
        ("../my app/z.md", []),
        ("z.txt", ["Mine."]),
    ):
        assert [text.text for text in content.texts_for(inner / name)] == expected, name
    assert any("star.md:2: the head is not YAML" in problem for problem in content.problems)


def test_nested_memory_honours_excludes_and_repeats_nothing(context: ConfigContext) -> None:
    write(context.cwd / "lib/CLAUDE.md", "Lib. @../CLAUDE.md")
    write(context.cwd / "other/CLAUDE.md", "Other.")
    write(context.cwd / "dot/.claude/CLAUDE.md", "Dot.")
    write(context.cwd.parent / "beside/CLAUDE.md", "Beside.")
    files = [SettingsFile(layer="user", path=Path("s"), document={"claudeMdExcludes": "**/other/CLAUDE.md"})]
    content = load_memory(context, "Root.", files=files)
    assert [memory.text for memory in content.memory] == ["Root."]
    assert content.has_file_texts
    for path, expected in (
        ("lib/a.py", ["Lib."]),
        ("other/a.py", []),
        ("dot/a.py", ["Dot."]),
        ("../beside/a.py", []),
        ("lib/../../beside/a.py", []),
    ):
        assert [text.text for text in content.texts_for(context.cwd / path)] == expected, path
