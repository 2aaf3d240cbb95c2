"""What is allowed for good: kept in the settings of a project or a user, once, whole, and only if the answer counts."""

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.office import Office, bash
from tests.runtime.scene import agent, runtime
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, Suspended
from vaka.policy.layered import LayeredPolicy
from vaka.testing.models import ScriptedModel, call, calls, say


def allowed(path: Path) -> Any:
    return json.loads(path.read_text())["permissions"]["allow"]


# -------------------------------------------------------------------------------- project and user


async def test_a_yes_for_the_project_is_kept_in_its_local_settings(office: Office) -> None:
    who = office.worker(bash("npm test"), bash("npm test"), say("done"))
    [asked] = await office.asks(who)
    resolved = await office.answer(asked, scope="project")
    assert (resolved.scope, resolved.rule) == ("project", "Bash(npm test)")
    assert json.loads(office.local.read_text()) == {"permissions": {"allow": ["Bash(npm test)"]}}
    assert stat.S_IMODE(office.local.stat().st_mode) == 0o600
    await office.go_on(who)
    assert office.ran == ["npm test", "npm test"], "it counts at once, though the rules were read before"


async def test_a_yes_for_the_user_is_kept_in_their_settings(office: Office) -> None:
    [asked] = await office.asks(office.worker(bash("npm test && make"), say("done")))
    await office.answer(asked, scope="user")
    assert allowed(office.home / ".claude/settings.json") == ["Bash(npm test)", "Bash(make)"]


async def test_a_command_with_a_whole_path_can_be_kept_for_good(office: Office) -> None:
    [asked] = await office.asks(office.worker(bash("/opt/tool run"), say("done")))
    await office.answer(asked, scope="user")
    assert allowed(office.home / ".claude/settings.json") == ["Bash(/opt/tool run)"]


async def test_the_rest_of_the_settings_stays_as_it_is(office: Office) -> None:
    office.local.parent.mkdir()
    permissions = '{"deny": ["Read(.env)"], "allow": ["Bash(ls)"]}'
    before = f'{{\n\t"zeta": {{"é": [1, 2.5]}},\n\t"permissions": {permissions},\n\t"alpha": null\n}}'
    office.local.write_text(before)
    office.local.chmod(0o640)
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    await office.answer(asked, scope="project")
    text = office.local.read_text()
    assert list(json.loads(text)) == ["zeta", "permissions", "alpha"]
    assert json.loads(text) == json.loads(before.replace('"Bash(ls)"', '"Bash(ls)", "Bash(npm test)"'))
    assert '\n\t"zeta"' in text
    assert "é" in text
    assert stat.S_IMODE(office.local.stat().st_mode) == 0o640
    assert [file.name for file in office.local.parent.iterdir()] == ["settings.local.json"]


@pytest.mark.parametrize("before", [b'{"permissions": null}', b'{"permissions": {"allow": null}}'])
async def test_settings_that_say_nothing_of_permissions_yet_take_the_rule(office: Office, before: bytes) -> None:
    office.local.parent.mkdir()
    office.local.write_bytes(before)
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    await office.answer(asked, scope="project")
    assert json.loads(office.local.read_bytes()) == {"permissions": {"allow": ["Bash(npm test)"]}}


async def test_the_ends_of_lines_stay_as_they_are(office: Office) -> None:
    office.local.parent.mkdir()
    office.local.write_bytes(b'{\r\n  "model": "x"\r\n}\r\n')
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    await office.answer(asked, scope="project")
    text = office.local.read_bytes()
    assert text.count(b"\n") == text.count(b"\r\n") > 3


async def test_a_rule_that_is_there_is_not_written_again(office: Office) -> None:
    office.local.parent.mkdir()
    office.local.write_text('{"permissions":{"allow":["Bash(npm test)"]}}')
    before = office.local.stat()
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    await office.answer(asked, scope="project")
    after = office.local.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize(
    ("text", "why"), [
        ('{"permissions": ', "not JSON"),
        ('{"permissions": []}', "permissions: expected an object"),
        ('{"permissions": {"allow": "Bash"}}', "permissions.allow: expected a list of texts"),
        ('{"permissions": {"allow": [1]}}', "permissions.allow: expected a list of texts"),
        ('{"a": 1, "a": 2}', "'a' stands there twice"),
        ('{"a": 1e999}', "cannot be written again"),
        ("[]", "expected an object"),
    ],
)  # fmt: skip
async def test_settings_that_are_broken_are_left_alone_and_the_question_stays_open(
    office: Office, text: str, why: str
) -> None:
    office.local.parent.mkdir()
    office.local.write_text(text)
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    with pytest.raises(ConfigError, match=why):
        await office.answer(asked, scope="project")
    assert office.local.read_text() == text
    assert await office.waiting() == [asked.approval]


async def test_settings_that_are_no_plain_file_are_left_alone(office: Office) -> None:
    office.local.mkdir(parents=True)
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        await office.answer(asked, scope="project")
    office.local.rmdir()
    os.mkfifo(office.local)
    with pytest.raises(ConfigError, match="not a regular file"):
        await office.answer(asked, scope="project")
    assert await office.waiting() == [asked.approval]


async def test_a_place_that_cannot_be_written_leaves_the_question_open(office: Office) -> None:
    (office.project / ".claude").write_text("")
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    with pytest.raises(ConfigError, match="cannot be written"):
        await office.answer(asked, scope="project")
    assert await office.waiting() == [asked.approval]


async def test_a_project_cannot_lead_the_rule_elsewhere(office: Office, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else/settings.local.json").write_text("{}")
    (office.project / ".claude").symlink_to(tmp_path / "else")
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    with pytest.raises(InvalidInput, match="leads out of the project"):
        await office.answer(asked, scope="project")
    assert (tmp_path / "else/settings.local.json").read_text() == "{}"


async def test_a_users_settings_may_be_a_link(office: Office, tmp_path: Path) -> None:
    (office.home / ".claude").mkdir()
    (tmp_path / "dotfiles.json").write_text("{}")
    (office.home / ".claude/settings.json").symlink_to(tmp_path / "dotfiles.json")
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    await office.answer(asked, scope="user")
    assert (office.home / ".claude/settings.json").is_symlink()
    assert allowed(tmp_path / "dotfiles.json") == ["Bash(npm test)"]


async def test_the_project_is_where_its_settings_are_or_its_repository_begins(office: Office) -> None:
    deep = office.project / "a/b"
    deep.mkdir(parents=True)
    inner = LayeredPolicy(cwd=str(deep), home=str(office.home))
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")), policy=inner)
    with pytest.raises(InvalidInput, match="write // before a whole path"):
        await office.answer(asked, scope="project", rule="Bash(npm test)\nEdit(/src/**)")
    await office.answer(asked, scope="project")
    assert allowed(office.local) == ["Bash(npm test)"]


async def test_a_home_is_no_project_and_a_folder_that_is_gone_is_none(office: Office) -> None:
    at_home = LayeredPolicy(cwd=str(office.home), home=str(office.home))
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")), policy=at_home)
    with pytest.raises(InvalidInput, match="is a home and no project"):
        await office.answer(asked, scope="project")
    gone = LayeredPolicy(cwd=str(office.home / "gone"), home=str(office.home))
    async with office.runtime(policy=gone) as rt:
        with pytest.raises(Suspended):
            await (await rt.open(office.worker(bash("npm test")), id="other")).run("Go.")
        with pytest.raises(InvalidInput, match="is not here"):
            await rt.resolve((await rt.decisions("other"))[0].id, "approve", scope="project")


async def test_a_rule_that_asks_in_the_settings_cannot_be_answered_for_good(office: Office) -> None:
    rules = {"ask": ("Bash(git push:*)",)}
    [asked] = await office.asks(office.worker(bash("git push x"), say("done")), rules=rules)
    with pytest.raises(InvalidInput, match="would ask again all the same; possible is once or session"):
        await office.answer(asked, scope="project")
    assert not office.local.exists()


async def test_of_two_who_keep_rules_at_once_neither_loses_one(office: Office) -> None:
    who = office.worker(calls(*(bash(f"make {n}") for n in range(8))), say("done"))
    asked = await office.asks(who)
    await asyncio.gather(*(office.answer(one, scope="project") for one in asked))
    assert sorted(allowed(office.local)) == [f"Bash(make {n})" for n in range(8)]


# -------------------------------------------------------------------------------- one answer wins


async def test_what_was_kept_for_an_answer_that_came_second_is_taken_back(office: Office) -> None:
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    store: Any = office.store.handle()
    offer = store.events.offer

    async def late(*arguments: Any, **more: Any) -> int:
        store.events.offer = offer  # only the first one is late
        await office.answer(asked, "reject", message="no", by="bob")
        done: int = await offer(*arguments, **more)
        return done

    store.events.offer = late  # somebody else is faster
    async with runtime(store) as rt:
        event = await rt.resolve(asked.approval, "approve", scope="project", by="ana")
    assert (event.data.decision, event.data.by) == ("reject", "bob")  # type: ignore[attr-defined]  # an answer
    assert allowed(office.local) == []


async def test_the_second_answer_hears_that_there_was_one(office: Office) -> None:
    [asked] = await office.asks(office.worker(bash("npm test"), say("done")))
    await office.answer(asked, "reject", by="ana")
    with pytest.raises(NotFound):
        await office.answer(asked, scope="project")
    assert not office.local.exists()


async def test_a_question_is_not_approved(office: Office) -> None:
    @vaka.tool(effect="resume")
    async def wonder(context: vaka.ToolContext) -> str:
        """Ask something."""
        return str(await context.ask("Colour?"))

    async with office.runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("wonder")), wonder), id="s")
        with pytest.raises(Suspended) as caught:
            await session.run("Go.")
        with pytest.raises(InvalidInput, match="is a question"):
            await rt.resolve(caught.value.decisions[0], "approve")
