"""Settings files that are edited while a runtime is open: what applies, when, and what never does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import Workspace
from vaka.core.types.monitor import Logged
from vaka.project.content import ProjectSource
from vaka.runtime.live_settings import LoadedSettings
from vaka.runtime.options import Environment, Project
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say


class LiveProject:
    """A project whose settings count, and a session in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.store = MemoryStore()
        (root / "project/.git").mkdir(parents=True)

    def write(self, name: str = "project/.claude/settings.json", text: str = "", **document: Any) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or json.dumps(document))

    async def run(self, *turns: "tuple[Callable[[], None], str]", tools: Any = (), **more: Any) -> list[str]:
        """Run a command of Bash in each turn, after a change; return the results."""
        script = [line for _, command in turns for line in (call("Bash", command=command), say("done"))]
        source = ProjectSource(settings=True, **more)
        folder = str(self.root / "project")
        async with runtime(
            self.store,
            workspace=Workspace(cwd=folder),
            project=Project(content=source),
            environment=Environment(clock=self.clock),
            permissions=vaka.Permissions(ask="deny"),
        ) as rt:
            session = await rt.open(agent(ScriptedModel(*script), "Bash", "Read", *tools), id="s")
            for change, _ in turns:
                change()
                await session.run("Go.")
        return [result.text for result in results_by_call(await read_log(self.store, "s")).values()]

    async def warnings(self) -> list[str]:
        return [event.data.message for event in await read_log(self.store, "s") if isinstance(event.data, Logged)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return LiveProject(tmp_path)


def nothing() -> None:
    """Change nothing."""


async def test_an_edited_file_applies_from_the_next_turn_on_and_a_broken_one_keeps_the_old_rules(
    project: LiveProject,
) -> None:
    touch = "touch made"
    results = await project.run(
        (nothing, touch),
        (lambda: project.write(permissions={"allow": [f"Bash({touch})"]}), touch),
        (lambda: project.write(text="{ half"), touch),
        (nothing, touch),
        (lambda: project.write(permissions={"allow": [f"Bash({touch})"], "deny": ["Bash(touch:*)"]}), touch),
    )
    assert ["exit code 0" in result for result in results] == [False, True, True, True, False]
    warnings = await project.warnings()
    assert len(warnings) == 1, "a broken file is warned about once"
    assert "settings.json:1: not JSON" in warnings[0]


async def test_an_untrusted_folder_can_tighten_but_never_allow(project: LiveProject) -> None:
    project.write("home/.claude/settings.json", permissions={"allow": ["Bash(touch:*)"]})
    results = await project.run(
        (nothing, "touch a"),
        (lambda: project.write(permissions={"allow": ["Bash(make:*)"]}, env={"GREETING": "hi"}), "make it"),
        (lambda: project.write(permissions={"deny": ["Bash(touch:*)"], "defaultMode": "bypassPermissions"}), "touch b"),
        (nothing, "make it"),
        trusted=False,
    )
    names = sorted(path.name for path in (project.root / "project").iterdir() if path.is_file())
    assert names == ["a"], results


async def test_in_a_turn_only_what_tightens_applies(project: LiveProject) -> None:
    project.write(permissions={"allow": ["Bash(touch:*)", "change"]})

    @vaka.tool(effect="once")
    async def change() -> str:
        """Edit the settings."""
        project.clock.advance(2)
        project.write(permissions={"allow": ["Bash(touch:*)", "Bash(mkdir:*)", "change"], "deny": ["Bash(touch b)"]})
        return "changed"

    model = ScriptedModel(
        call("change"),
        call("Bash", command="touch a"),
        call("Bash", command="touch b"),
        call("Bash", command="mkdir c"),
        say("done"),
        call("Bash", command="mkdir c"),
        say("done"),
    )
    source = ProjectSource(settings=True)
    folder = project.root / "project"
    async with runtime(
        project.store,
        workspace=Workspace(cwd=str(folder)),
        project=Project(content=source),
        environment=Environment(clock=project.clock),
        permissions=vaka.Permissions(ask="deny"),
    ) as rt:
        session = await rt.open(agent(model, "Bash", change), id="s")
        await session.run("Go.")
        assert sorted(path.name for path in folder.iterdir() if path.name in "abc") == ["a"]
        await session.run("Again.")
    assert (folder / "c").is_dir(), "a rule that allows applies from the next turn on"


async def test_hooks_and_variables_of_an_edited_file_apply_to_the_next_turn(project: LiveProject) -> None:
    hook = {"hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}
    allow = {"allow": ["Bash(echo:*)"]}
    project.write(permissions=allow, env={"GREETING": "one"})
    results = await project.run(
        (nothing, "echo [$GREETING]"),
        (lambda: project.write(permissions=allow, env={"GREETING": "two"}, hooks={"PreToolUse": [hook]}), "echo 1"),
        (lambda: project.write(permissions=allow, env={"GREETING": "two"}), "echo [$GREETING]"),
        (lambda: project.write(permissions=allow), "echo [$GREETING]"),
    )
    assert [result.split("\n")[0].strip() for result in results][::2] == ["[one]", "[two]"]
    assert "no" in results[1]
    assert "[]" in results[3]


async def test_a_rule_that_hides_a_file_binds_searches_and_commands_at_once(project: LiveProject) -> None:
    (project.root / "project/.env").write_text("KEY=1")
    project.write(permissions={"allow": ["Bash(cat:*)"]})
    results = await project.run(
        (nothing, "cat .env"),
        (lambda: project.write(permissions={"allow": ["Bash(cat:*)"], "deny": ["Read(.env)"]}), "cat .en*"),
    )
    assert "KEY=1" in results[0]
    assert "KEY=1" not in results[1]


class TrustFile:
    """Settings that only say whether the folder is trusted: as long as a file exists."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def places(self) -> list[Path]:
        return [self._path]

    def load(self) -> LoadedSettings:
        return LoadedSettings(trusted=self._path.exists())


async def test_hooks_and_allowed_tools_of_commands_end_with_the_trust_of_their_folder(project: LiveProject) -> None:
    hooks = "hooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks:\n        - command: touch hooked"
    project.write("project/.claude/commands/go.md", f"---\nallowed-tools: Bash(touch:*)\n{hooks}\n---\n!`touch made`")
    folder = project.root / "project"
    model = ScriptedModel(*[call("Bash", command="touch called"), say("done")] * 2)
    source = ProjectSource()
    made = []
    async with runtime(
        project.store,
        workspace=Workspace(cwd=str(folder)),
        project=Project(content=source),
        environment=Environment(clock=project.clock),
        permissions=vaka.Permissions(ask="deny"),
    ) as rt:
        rt.follow_settings(TrustFile(project.root / "trust"))
        session = await rt.open(agent(model, "Bash"), id="s")
        for _ in range(2):
            await session.run("/go")
            made.append(sorted(path.name for path in folder.iterdir() if path.is_file()))
            for name in made[-1]:
                (folder / name).unlink()
            (project.root / "trust").unlink(missing_ok=True)
    assert made == [["called", "hooked", "made"], []]
