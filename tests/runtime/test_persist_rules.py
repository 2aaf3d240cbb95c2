"""Approvals for the project or the user: the rule is stored in the settings, once, and only if the answer counts."""

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.approval_project import ApprovalProject, bash_call
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.core.types.errors import ConfigError, InvalidInput, Suspended
from vaka.policy.policy import LayeredPolicy
from vaka.testing.models import ScriptedModel, call, calls, say


def allow_rules_in(path: Path) -> Any:
    return json.loads(path.read_text())["permissions"]["allow"]


# -------------------------------------------------------------------------------- project and user


async def test_an_approval_for_the_project_is_stored_in_its_local_settings(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    resolved = await project.resolve(asked, scope="project")
    assert (resolved.scope, resolved.rule) == ("project", "Bash(npm test)")
    assert json.loads(project.local_settings_file.read_text()) == {"permissions": {"allow": ["Bash(npm test)"]}}
    assert stat.S_IMODE(project.local_settings_file.stat().st_mode) == 0o600
    await project.resume(who)
    assert project.executed == ["npm test", "npm test"], "it counts at once, though the rules were read before"


async def test_an_approval_for_the_user_is_stored_in_the_user_settings(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test && make"), say("done")))
    await project.resolve(asked, scope="user")
    assert allow_rules_in(project.home / ".claude/settings.json") == ["Bash(npm test)", "Bash(make)"]


async def test_a_command_with_an_absolute_path_can_be_approved_for_the_user(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("/opt/tool run"), say("done")))
    await project.resolve(asked, scope="user")
    assert allow_rules_in(project.home / ".claude/settings.json") == ["Bash(/opt/tool run)"]


async def test_other_settings_in_the_file_are_unchanged(project: ApprovalProject) -> None:
    project.local_settings_file.parent.mkdir()
    permissions = '{"deny": ["Read(.env)"], "allow": ["Bash(ls)"]}'
    before = f'{{\n\t"zeta": {{"é": [1, 2.5]}},\n\t"permissions": {permissions},\n\t"alpha": null\n}}'
    project.local_settings_file.write_text(before)
    project.local_settings_file.chmod(0o640)
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    await project.resolve(asked, scope="project")
    text = project.local_settings_file.read_text()
    assert list(json.loads(text)) == ["zeta", "permissions", "alpha"]
    assert json.loads(text) == json.loads(before.replace('"Bash(ls)"', '"Bash(ls)", "Bash(npm test)"'))
    assert '\n\t"zeta"' in text
    assert "é" in text
    assert stat.S_IMODE(project.local_settings_file.stat().st_mode) == 0o640
    assert [file.name for file in project.local_settings_file.parent.iterdir()] == ["settings.local.json"]


@pytest.mark.parametrize("before", [b'{"permissions": null}', b'{"permissions": {"allow": null}}'])
async def test_a_rule_is_added_to_settings_without_permissions(project: ApprovalProject, before: bytes) -> None:
    project.local_settings_file.parent.mkdir()
    project.local_settings_file.write_bytes(before)
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    await project.resolve(asked, scope="project")
    assert json.loads(project.local_settings_file.read_bytes()) == {"permissions": {"allow": ["Bash(npm test)"]}}


async def test_line_ends_of_the_settings_file_are_preserved(project: ApprovalProject) -> None:
    project.local_settings_file.parent.mkdir()
    project.local_settings_file.write_bytes(b'{\r\n  "model": "x"\r\n}\r\n')
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    await project.resolve(asked, scope="project")
    text = project.local_settings_file.read_bytes()
    assert text.count(b"\n") == text.count(b"\r\n") > 3


async def test_a_rule_that_exists_is_not_written_again(project: ApprovalProject) -> None:
    project.local_settings_file.parent.mkdir()
    project.local_settings_file.write_text('{"permissions":{"allow":["Bash(npm test)"]}}')
    before = project.local_settings_file.stat()
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    await project.resolve(asked, scope="project")
    after = project.local_settings_file.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"permissions": ', "not JSON"),
        ('{"permissions": []}', "permissions: expected an object"),
        ('{"permissions": {"allow": "Bash"}}', "permissions.allow: expected a list of texts"),
        ('{"permissions": {"allow": [1]}}', "permissions.allow: expected a list of texts"),
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ('{"a": 1e999}', "cannot be written as JSON"),
        ("[]", "expected an object"),
    ],
)
async def test_invalid_settings_are_not_changed_and_the_approval_stays_open(
    project: ApprovalProject, text: str, why: str
) -> None:
    project.local_settings_file.parent.mkdir()
    project.local_settings_file.write_text(text)
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    with pytest.raises(ConfigError, match=why):
        await project.resolve(asked, scope="project")
    assert project.local_settings_file.read_text() == text
    assert await project.pending_ids() == [asked.approval]


async def test_settings_that_are_not_a_regular_file_are_not_changed(project: ApprovalProject) -> None:
    project.local_settings_file.mkdir(parents=True)
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        await project.resolve(asked, scope="project")
    project.local_settings_file.rmdir()
    os.mkfifo(project.local_settings_file)
    with pytest.raises(ConfigError, match="not a regular file"):
        await project.resolve(asked, scope="project")
    assert await project.pending_ids() == [asked.approval]


async def test_an_unwritable_settings_file_leaves_the_approval_open(project: ApprovalProject) -> None:
    (project.folder / ".claude").write_text("")
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    with pytest.raises(ConfigError, match="cannot be written"):
        await project.resolve(asked, scope="project")
    assert await project.pending_ids() == [asked.approval]


async def test_a_link_in_the_project_cannot_redirect_the_rule(project: ApprovalProject, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else/settings.local.json").write_text("{}")
    (project.folder / ".claude").symlink_to(tmp_path / "else")
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    with pytest.raises(InvalidInput, match="leads out of the project"):
        await project.resolve(asked, scope="project")
    assert (tmp_path / "else/settings.local.json").read_text() == "{}"


async def test_the_user_settings_may_be_a_link(project: ApprovalProject, tmp_path: Path) -> None:
    (project.home / ".claude").mkdir()
    (tmp_path / "dotfiles.json").write_text("{}")
    (project.home / ".claude/settings.json").symlink_to(tmp_path / "dotfiles.json")
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    await project.resolve(asked, scope="user")
    assert (project.home / ".claude/settings.json").is_symlink()
    assert allow_rules_in(tmp_path / "dotfiles.json") == ["Bash(npm test)"]


async def test_a_rule_of_a_subfolder_is_stored_at_the_root_of_the_project(project: ApprovalProject) -> None:
    deep = project.folder / "a/b"
    deep.mkdir(parents=True)
    inner = LayeredPolicy(cwd=str(deep), home=str(project.home))
    [asked] = await project.run_until_asked(
        project.make_agent(bash_call("npm test"), say("done")), permissions=vaka.Permissions(policy=inner)
    )
    with pytest.raises(InvalidInput, match="write // before a whole path"):
        await project.resolve(asked, scope="project", rule="Bash(npm test)\nEdit(/src/**)")
    await project.resolve(asked, scope="project")
    assert allow_rules_in(project.local_settings_file) == ["Bash(npm test)"]


async def test_the_home_directory_and_a_missing_folder_are_not_projects(project: ApprovalProject) -> None:
    at_home = LayeredPolicy(cwd=str(project.home), home=str(project.home))
    [asked] = await project.run_until_asked(
        project.make_agent(bash_call("npm test"), say("done")), permissions=vaka.Permissions(policy=at_home)
    )
    with pytest.raises(InvalidInput, match="is your home directory, not a project; use scope 'user'"):
        await project.resolve(asked, scope="project")
    gone = LayeredPolicy(cwd=str(project.home / "gone"), home=str(project.home))
    async with project.runtime(permissions=vaka.Permissions(policy=gone)) as rt:
        with pytest.raises(Suspended):
            await (await rt.open(project.make_agent(bash_call("npm test")), id="other")).run("Go.")
        with pytest.raises(InvalidInput, match="does not exist"):
            await rt.resolve((await rt.decisions("other"))[0].id, "approve", scope="project")


async def test_an_ask_rule_of_the_settings_cannot_be_approved_for_the_project(project: ApprovalProject) -> None:
    rules = {"ask": ("Bash(git push:*)",)}
    [asked] = await project.run_until_asked(project.make_agent(bash_call("git push x"), say("done")), rules=rules)
    with pytest.raises(InvalidInput, match="would ask again all the same; possible is once or session"):
        await project.resolve(asked, scope="project")
    assert not project.local_settings_file.exists()


async def test_rules_that_are_stored_concurrently_are_all_kept(project: ApprovalProject) -> None:
    who = project.make_agent(calls(*(bash_call(f"make {n}") for n in range(8))), say("done"))
    asked = await project.run_until_asked(who)
    await asyncio.gather(*(project.resolve(one, scope="project") for one in asked))
    assert sorted(allow_rules_in(project.local_settings_file)) == [f"Bash(make {n})" for n in range(8)]


# -------------------------------------------------------------------------------- one answer wins


async def test_the_rule_of_an_answer_that_came_second_is_removed_again(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    store: Any = project.store.open_handle()
    offer = store.events.offer

    async def late(*arguments: Any, **more: Any) -> int:
        store.events.offer = offer  # only the first one is late
        await project.resolve(asked, "reject", message="no", by="bob")
        done: int = await offer(*arguments, **more)
        return done

    store.events.offer = late  # another process decides first
    async with runtime(store) as rt:
        event = await rt.resolve(asked.approval, "approve", scope="project", by="ana")
    assert (event.data.decision, event.data.by) == ("reject", "bob")  # type: ignore[attr-defined]  # an answer
    assert allow_rules_in(project.local_settings_file) == []


async def test_a_second_answer_returns_the_first_and_stores_no_rule(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    first = await project.resolve(asked, "reject", by="ana")
    assert await project.resolve(asked, scope="project") == first
    assert not project.local_settings_file.exists()


async def test_a_question_cannot_be_approved(project: ApprovalProject) -> None:
    @vaka.tool(effect="resume")
    async def wonder(context: vaka.ToolContext) -> str:
        """Ask something."""
        return str(await context.ask("Colour?"))

    async with project.runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("wonder")), wonder), id="s")
        with pytest.raises(Suspended) as caught:
            await session.run("Go.")
        with pytest.raises(InvalidInput, match="is a question"):
            await rt.resolve(caught.value.decisions[0], "approve")
