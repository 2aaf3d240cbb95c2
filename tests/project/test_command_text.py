"""The text of commands and skills when they are used: arguments never become commands, code stays as it is."""

from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime, write
from vaka.config.options import Workspace
from vaka.core.types.message import ToolCall, UserMessage, text_of
from vaka.core.types.tool import Allow, Ask, Deny
from vaka.project.command_text import Arguments, split_body
from vaka.project.content import ProjectSource
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say


async def use(folder: Path, model: Any, *prompts: str, trusted: bool = True, **options: Any) -> dict[str, Any]:
    """Run turns of an agent with Bash in one session and return the results of its calls."""
    store = MemoryStore()
    async with runtime(
        store, workspace=Workspace(cwd=str(folder)), project=Project(content=ProjectSource(trusted=trusted)), **options
    ) as rt:
        session = await rt.open(agent(model, "Bash"), id="s")
        for prompt in prompts:
            await session.run(prompt)
    return results_by_call(await read_log(store, "s"))


def texts_of(model: Any) -> list[str]:
    return [text_of(message.content) for message in model.prompts[-1].messages if isinstance(message, UserMessage)]


@pytest.mark.parametrize(
    ("command", "arguments", "expected"),
    [
        ("git log $ARGUMENTS", "-5 --stat", "git log -5 --stat"),
        ("git log $ARGUMENTS", "a; touch x", "git log 'a;' touch x"),
        ("git show $1", "'a; touch x'", "git show 'a; touch x'"),
        ('echo "$1 $2"', "'$(touch x)' \"`id`\"", 'echo "\\$(touch x) \\`id\\`"'),
        ('echo "$1"', "'\"; touch x; \"'", 'echo "\\"; touch x; \\""'),
        ("echo '$ARGUMENTS'", "it's; touch x", "echo 'it'\\''s; touch x'"),
        ('echo \\"$1', "';x'", "echo \\\"';x'"),
        ('sh -c "ls $1"', "a.txt", 'sh -c "ls a.txt"'),
        ('sh -c "ls $1"', "'; touch x'", None),
        ("echo $(ls $1)", "'; touch x'", None),
        ("eval ls $1", "'; touch x'", None),
        ("echo \\$1 $2", "'a; touch x' b", None),
        ('echo "\\$1"', "'; touch x'", None),
        ("ls # $1", "'a\ntouch x'", None),
        ("(( $1 ))", "'a[$(touch x)]'", None),
        ("# don't\necho $1", "'; touch x'", None),
        ("ls;# it's\necho $1", "'$(touch x)'", None),
        ('echo "`ls $1`"', "'; touch x'", None),
        ("echo ${a[$1]}", "'a[$(touch x)]'", None),
        ("declare x=$1", "'a[$(touch x)]'", None),
        ("ls; unset $1", "'a[$(touch x)]'", None),
        ("printf -v $1 x", "'a[$(touch x)]'", None),
        ("trap $1 EXIT", "'touch x;'", None),
        ("echo $$1", "'; touch x'", None),
        ("git log ${BASE} -- /usr/local/a#b $1", "'; x'", "git log ${BASE} -- /usr/local/a#b '; x'"),
        ("ls $1", "", "ls "),
        ("awk '{print $1}' f", "x", "awk '{print x}' f"),
        ("date", "'; touch x'", "date"),
    ],
)
def test_arguments_in_a_shell_command_stay_texts(command: str, arguments: str, expected: str | None) -> None:
    assert Arguments(arguments, command).insert_into_command(command) == expected


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("Costs $100 or $5.50, not $1.", "x", "Costs $100 or $5.50, not x."),
        ("$ARGUMENTS[0] and $ARGUMENTS[1]", "a b", "a and b"),
        ("$0, then $1.", "a b", "a, then b."),
        ("$ARGUMENTS", "keep  'two spaces'", "keep  'two spaces'"),
        ("$1", "it's", "it's"),
        ("$ARGUMENTSX $3", "a", "$ARGUMENTSX "),
    ],
)
def test_placeholders_take_their_arguments(body: str, arguments: str, expected: str) -> None:
    assert Arguments(arguments, body).insert(body) == expected


def test_hostile_texts_take_linear_time() -> None:
    command = "echo $1 '" * 20_000
    assert Arguments("a;b", command).insert_into_command(command) is not None
    for body in ("!`" * 100_000, " !`x" * 100_000, "```\n````\n" * 50_000):
        assert "".join(f"!`{piece}`" if kind == "command" else piece for kind, piece in split_body(body)) == body


def test_only_blocks_outside_of_code_are_commands() -> None:
    body = "Now !`date`.\nNot `!`date`` nor a!`b`; use `assert!` or `assert_eq!`.\n```\n!`date`\n```js\n```\n- !`pwd`"
    assert [piece for kind, piece in split_body(body) if kind == "command"] == ["date", "pwd"]
    assert "".join(f"!`{piece}`" if kind == "command" else piece for kind, piece in split_body(body)) == body


async def test_a_code_block_that_begins_with_a_mark_is_a_command(folder: Path) -> None:
    head = "---\nallowed-tools: Bash(echo:*)\n---\n"
    body = "A\n```!\necho $1\necho two\n```\nB\n```!\ntouch made\n```\n```!\n```\n```! open"
    write(folder / ".claude/commands/show.md", head + body)
    model = ScriptedModel(say("done"))
    await use(folder, model, "/show 'one; touch made'")
    (text,) = texts_of(model)
    assert text.startswith("A\none; touch made\ntwo\nB\n[touch made: not run")
    assert text.endswith("]\n```!\n```\n```! open")
    assert not (folder / "made").exists()


async def test_the_arguments_and_outputs_of_a_command_are_not_read_again(folder: Path) -> None:
    write(folder / "secret.txt", "SECRET")
    write(folder / "names", "@secret.txt !`touch made`")
    head = "---\nallowed-tools: Bash(cat:*), Bash(echo:*)\n---\n"
    write(folder / ".claude/commands/show.md", head + 'Names: !`cat names` !`echo "$1"`\nUsed: $ARGUMENTS')
    model = ScriptedModel(say("done"), say("done"))
    await use(folder, model, "/show '!`touch made`'", "/show '\"; touch made; \"'")
    first, second = texts_of(model)
    assert first == "Names: @secret.txt !`touch made` !`touch made`\nUsed: '!`touch made`'"
    assert '"; touch made; "' in second
    assert not (folder / "made").exists()


@pytest.mark.parametrize(
    ("verdict", "options", "runs"),
    [
        (Allow(), {"permissions": vaka.Permissions(mode="default")}, True),
        (Allow(), {"permissions": vaka.Permissions(mode="bypassPermissions", deny=("Bash(touch:*)",))}, False),
        (Ask("a hook asks"), {"permissions": vaka.Permissions(mode="bypassPermissions")}, False),
        (Deny("a hook refuses"), {"permissions": vaka.Permissions(mode="bypassPermissions")}, False),
        (None, {"permissions": vaka.Permissions(mode="bypassPermissions")}, True),
        (None, {"permissions": vaka.Permissions(mode="default")}, False),
        (None, {"permissions": vaka.Permissions(mode="plan")}, False),
    ],
)
async def test_a_block_runs_only_if_neither_rules_nor_middleware_ask_or_deny(
    folder: Path, verdict: Any, options: dict[str, Any], runs: bool
) -> None:
    async def judge(turn: Any, call: ToolCall) -> Any:
        return verdict or call

    write(folder / ".claude/commands/make.md", "Made: !`touch made`")
    guard = vaka.Middleware.from_functions("guard", before_tool=judge)
    model = ScriptedModel(say("done"))
    async with runtime(
        MemoryStore(), workspace=Workspace(cwd=str(folder)), project=Project(content=ProjectSource()), **options
    ) as rt:
        await (await rt.open(vaka.Agent("a", model=model, tools=["Bash"], middleware=[guard]), id="s")).run("/make")
    assert (folder / "made").exists() is runs
    assert ("not run" in texts_of(model)[0]) is not runs


async def test_a_command_inserts_a_bounded_amount_of_files(folder: Path) -> None:
    write(folder / "large.txt", "x" * 200_000)
    write(folder / ".claude/commands/all.md", "@large.txt\n" * 100)
    model = ScriptedModel(say("done"))
    await use(folder, model, "/all")
    assert texts_of(model)[0].count("<file") == 5
    assert texts_of(model)[0].count("@large.txt") == 100


async def test_a_skill_without_arguments_keeps_the_dollars_of_its_code(folder: Path) -> None:
    body = "Run:\n```\nawk '{print $1}' @notes.txt\n```\nand `@notes.txt`, see @notes.txt."
    write(folder / ".claude/skills/cut/SKILL.md", f"---\nname: cut\ndescription: D.\n---\n{body}")
    write(folder / "notes.txt", "The notes.")
    model = ScriptedModel(calls(call("Skill", skill="cut"), call("Skill", skill="cut", args="x")), say("done"))
    results = await use(folder, model, "Go.")
    assert "awk '{print $1}' @notes.txt\n```\nand `@notes.txt`, see @notes.txt\n<file" in results["call_1"].text
    assert results["call_1"].text.count("The notes.") == 1
    assert "awk '{print x}'" in results["call_2"].text


async def test_a_command_may_refer_to_files_of_its_plugin(folder: Path) -> None:
    plugin = folder.parent / "home/.claude/plugins/kit"
    write(plugin / ".claude-plugin/plugin.json", '{"name": "kit"}')
    root = "${CLAUDE_PLUGIN_ROOT}"
    write(plugin / "commands/report.md", f"Fill in @{root}/form.md, @{root}/../other.md and @{root}/key.md")
    write(plugin / "form.md", "The form.")
    write(plugin.parent / "other.md", "Not of the plugin.")
    (plugin / "key.md").symlink_to(write(folder.parent / "home/.ssh/id_rsa", "PRIVATE"))
    model = ScriptedModel(say("done"))
    await use(folder, model, "/report")
    (text,) = texts_of(model)
    assert "The form." in text
    assert "Not of the plugin." not in text
    assert "PRIVATE" not in text


async def test_the_allowed_tools_of_a_command_do_not_count_in_the_mode_plan(folder: Path) -> None:
    write(folder / ".claude/commands/make.md", "---\nallowed-tools: Bash(touch:*)\n---\n!`touch block` !`pwd`")
    model = ScriptedModel(call("Bash", command="touch called"), say("done"))
    await use(folder, model, "/make", permissions=vaka.Permissions(mode="plan", ask="deny"))
    assert [path.name for path in folder.iterdir() if path.is_file()] == []
    assert str(folder) in texts_of(model)[0]


@pytest.mark.parametrize("trusted", [True, False])
async def test_the_allowed_tools_of_a_command_hold_for_its_turn_only(folder: Path, trusted: bool) -> None:
    head = "---\nallowed-tools: Bash(touch one*), Bash(touch denied), Bash(((broken\n---\n"
    write(folder / ".claude/commands/make.md", head + "Make it.")
    write(folder / ".claude/agents/helper.md", "---\nname: helper\ndescription: D.\n---\nYou help.")
    bash = [call("Bash", command=f"touch {name}") for name in ("one", "two", "denied")]
    model = ScriptedModel(
        calls(*bash, call("Task", prompt="Go.", subagent_type="helper")),
        say("done"),
        call("Bash", command="touch one-later"),
        say("done"),
        agents={"helper": [call("Bash", command="touch one-of-the-child"), say("done")]},
    )
    await use(
        folder,
        model,
        "/make",
        "And again.",
        trusted=trusted,
        permissions=vaka.Permissions(deny=("Bash(touch denied)",), ask="deny"),
    )
    made = sorted(path.name for path in folder.iterdir() if path.is_file())
    assert made == (["one"] if trusted else [])


async def test_references_to_files_that_would_need_a_question_stay_as_they_are(folder: Path) -> None:
    write(folder.parent / "home/.ssh/id_rsa", "PRIVATE")
    write(folder / "denied.txt", "DENIED")
    write(folder / "notes.txt", "NOTES")
    (folder / "link.txt").symlink_to(folder.parent / "home/.ssh/id_rsa")
    write(folder / ".claude/commands/all.md", "@~/.ssh/id_rsa @../home/.ssh/id_rsa @link.txt @denied.txt (@x) @a\0b $1")
    model = ScriptedModel(say("done"))
    await use(folder, model, "/all @notes.txt", permissions=vaka.Permissions(deny=("Read(denied.txt)",)))
    (text,) = texts_of(model)
    assert text.startswith("@~/.ssh/id_rsa @../home/.ssh/id_rsa @link.txt @denied.txt (@x) @a\0b @notes.txt\n<file")
    assert ("PRIVATE" in text, "DENIED" in text, "NOTES" in text) == (False, False, True)


async def test_a_skill_inserts_no_files_of_its_folder_that_rules_deny(folder: Path) -> None:
    for name in ("denied.txt", "asked.txt", "notes.txt"):
        write(folder / "kit" / name, name.upper())
    text = "@kit/denied.txt @kit/asked.txt @kit/notes.txt"
    write(folder / "kit/SKILL.md", f"---\nname: all\ndescription: D.\n---\n{text}")
    (folder / ".claude/skills").mkdir(parents=True)
    (folder / ".claude/skills/all").symlink_to(folder / "kit")
    model = ScriptedModel(say("done"))
    await use(
        folder,
        model,
        "/all",
        permissions=vaka.Permissions(deny=("Read(kit/denied.txt)",), confirm=("Read(kit/asked.txt)",)),
    )
    (text,) = texts_of(model)
    assert ("DENIED" in text, "ASKED" in text, "NOTES" in text) == (False, False, True)


async def test_the_files_of_a_skill_can_be_read_while_it_is_used(folder: Path) -> None:
    skill = folder.parent / "home/.claude/skills/forms"
    write(skill / "SKILL.md", "---\nname: forms\ndescription: D.\n---\nSee reference.md.")
    write(skill / "reference.md", "The reference.")
    write(skill.parent / "other.md", "Other.")
    reads = calls(*(call("Read", file_path=str(path)) for path in (skill / "reference.md", skill.parent / "other.md")))
    model = ScriptedModel(reads, call("Skill", skill="forms"), reads, say("done"))
    store = MemoryStore()
    async with runtime(
        store,
        workspace=Workspace(cwd=str(folder)),
        project=Project(content=ProjectSource()),
        permissions=vaka.Permissions(ask="deny"),
    ) as rt:
        await (await rt.open(agent(model, "Read"), id="s")).run("Go.")
    found = results_by_call(await read_log(store, "s"))
    results = [found[f"call_{number}"] for number in range(1, 6)]
    assert [result.failed for result in results] == [True, True, False, False, True]


async def test_commands_and_tools_cannot_change_the_skills_of_the_user(folder: Path) -> None:
    skill = write(folder.parent / "home/.claude/skills/forms/SKILL.md", "---\nname: forms\ndescription: D.\n---\nB")
    uses = calls(
        call("Bash", command=f"echo x >> {skill}"),
        call("Write", file_path=str(skill), content="x"),
        call("Bash", command=f"cat {skill}"),
    )
    model = ScriptedModel(uses, say("done"))
    store = MemoryStore()
    options: Any = {"permissions": vaka.Permissions(mode="bypassPermissions", ask="deny")}
    async with runtime(
        store, workspace=Workspace(cwd=str(folder)), project=Project(content=ProjectSource()), **options
    ) as rt:
        await (await rt.open(agent(model, "Bash", "Write"), id="s")).run("Go.")
    results = results_by_call(await read_log(store, "s"))
    assert "name: forms" in results["call_3"].text
    assert skill.read_text().endswith("B")


async def test_a_skill_that_allows_nothing_is_read_without_a_question(folder: Path) -> None:
    for name, head in (("plain", ""), ("asked", ""), ("denied", ""), ("wide", "allowed-tools: Bash\n")):
        write(folder / f".claude/skills/{name}/SKILL.md", f"---\nname: {name}\ndescription: D.\n{head}---\nBody.")
    uses = [call("Skill", skill=name) for name in ("plain", "asked", "denied", "wide", "missing")]
    model = ScriptedModel(calls(*uses), say("done"))
    rules: dict[str, Any] = {
        "permissions": vaka.Permissions(deny=("Skill(denied)",), confirm=("Skill(asked)",), ask="deny")
    }
    results = await use(folder, model, "Go.", **rules)
    read = [number for number in range(1, 6) if not results[f"call_{number}"].failed]
    assert read == [1]
