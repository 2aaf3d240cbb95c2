"""Rules judge a command from the folder it runs in, also after a cd of an earlier command."""

from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.shell_harness import ShellHarness
from vaka.config.options import Permissions
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolResult
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.runtime.runtime import Runtime

DENY = ("Read(./secret/plan)", "Read(./sub/key)", "Edit(./sub/locked)")


class RuledShellBench(ShellHarness):
    """Commands under rules about files."""

    rules: Any = None

    def runtime(self, **options: Any) -> Runtime:
        """Return a runtime that judges by the rules."""
        return super().runtime(permissions=Permissions(policy=self.rules), **options)


@pytest.fixture
def bench(tmp_path: Path) -> RuledShellBench:
    made = RuledShellBench(tmp_path)
    for path in ("secret/plan", "sub/secret/plan", "sub/key", "sub/deep/x", "key"):
        made.write(path, f"{path} is here\n")
    made.rules = LayeredPolicy(
        [Layer(name="flag", mode="bypassPermissions", deny=DENY)], cwd=str(tmp_path), home=str(tmp_path)
    )
    return made


def is_refused(result: ToolResult) -> bool:
    return result.failed and result.reason == "denied"


async def test_a_denied_file_is_denied_from_every_working_folder(bench: RuledShellBench) -> None:
    assert (await bench.bash("cat key")).text.startswith("key is here")
    await bench.bash("cd sub")
    assert is_refused(await bench.bash("cat key")), "it is sub/key from here"
    assert is_refused(await bench.bash("echo x > locked"))
    assert is_refused(await bench.bash("cat ../secret/plan"))
    assert (await bench.bash("cat secret/plan")).text.startswith("sub/secret/plan is here"), "another one is denied"
    assert is_refused(await bench.bash("cd .. && cat secret/plan"))
    await bench.bash("cd deep")
    assert is_refused(await bench.bash("cat ../key"))
    await bench.bash("cd ../..")
    assert (await bench.bash("cat key")).text.startswith("key is here")


async def test_a_denied_file_is_denied_from_a_working_folder_in_the_call(bench: RuledShellBench) -> None:
    assert is_refused(await bench.bash("cat key", workdir="sub"))
    assert (await bench.bash("cat key", workdir=".")).text.startswith("key is here")
    assert is_refused(await bench.bash("cat plan", workdir="secret"))
    await bench.bash("cd sub")
    assert is_refused(await bench.bash("cat ../key", workdir="deep"))
    assert (await bench.bash("cat key", workdir="..")).text.startswith("key is here")


async def test_a_link_to_a_folder_is_judged_as_the_folder(bench: RuledShellBench) -> None:
    (bench.root / "way").symlink_to("sub")
    await bench.bash("cd way")
    assert is_refused(await bench.bash("cat key"))
    assert is_refused(await bench.bash("cat key", workdir="../way"))


async def test_a_command_is_judged_in_the_folder_that_the_one_before_it_in_its_step_has_left(
    bench: RuledShellBench,
) -> None:
    done = await bench.run_calls(("Bash", {"command": "cd sub"}), ("Bash", {"command": "cat key"}), at_once=True)
    results = {result.call: result for result in done}
    assert f"the working folder is now {bench.root}/sub" in results[CallId("call_1")].text
    assert is_refused(results[CallId("call_2")]), "it is sub/key from there"


async def test_a_removed_working_folder_does_not_bypass_the_rules(bench: RuledShellBench) -> None:
    (bench.root / "hollow").mkdir()
    await bench.bash("cd hollow")
    (bench.root / "hollow").rmdir()
    result = await bench.bash("cat secret/plan")
    assert "secret/plan is here" not in result.text
    assert is_refused(await bench.bash("cat secret/plan"))


async def test_the_rules_use_the_working_folder_of_the_log_after_a_restart(bench: RuledShellBench) -> None:
    await bench.bash("cd sub")
    await bench.restart()
    assert is_refused(await bench.bash("cat key"))


def test_an_invalid_workdir_is_never_allowed(tmp_path: Path) -> None:
    rules = LayeredPolicy([Layer(name="flag", allow=("Bash",), deny=DENY)], cwd=str(tmp_path))
    spec = ShellHarness(tmp_path).tools[0].spec
    assert rules.decide(spec, {"command": "cat key", "workdir": 7}).decision == "ask"
    assert rules.decide(spec, {"command": "cat key", "workdir": "a\0b"}).decision == "ask"
