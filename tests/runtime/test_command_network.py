"""Commands and the network: refused hosts, approvals for hosts, and commands without the sandbox."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import vaka
from tests.net.http_server import encode_response, respond_by_path, serve
from tests.runtime.runtime_fixtures import agent, collect, merge_options, read_log, results_by_call, runtime
from vaka.config.options import Commands, NetworkAccess, Workspace
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import InvalidInput, Suspended
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import Allow
from vaka.project.content import ProjectSource
from vaka.runtime.options import Project
from vaka.sandbox.linux import Landlock
from vaka.sandbox.select import select_sandbox
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, ScriptLine, call, calls, say

GET = """
import os, sys, urllib.request
for name in ("NO_PROXY", "no_proxy"):  # here the test stands for the rest of the world
    os.environ.pop(name, None)
for host in sys.argv[1:]:
    try: print(urllib.request.urlopen(f"http://{host}/", timeout=20).read().decode())
    except OSError as error: print(error)
"""


class Site(NamedTuple):
    """A web server on this machine, and a project whose script fetches pages."""

    host: str
    folder: Path

    def fetch(self, *hosts: str, **more: Any) -> ScriptLine:
        return call("Bash", command=f"python3 get.py {' '.join(hosts or (self.host,))}", **more)

    def options(self, **more: Any) -> dict[str, Any]:
        rules = vaka.Permissions(allow=("Bash(python3 get.py:*)",), ask="suspend")
        return merge_options(
            {
                "workspace": Workspace(cwd=str(self.folder)),
                "network": NetworkAccess(trusted_hosts=(self.host,)),
                "permissions": rules,
            },
            more,
        )


@pytest.fixture
async def site(folder: Path) -> AsyncIterator[Site]:
    (folder / "get.py").write_text(GET)
    async with serve(respond_by_path({"/": encode_response(b"yes")})) as server:
        yield Site(f"127.0.0.1:{server.port}", folder)


async def run_until_asked(store: MemoryStore, who: vaka.Agent, **options: Any) -> list[ApprovalRequested]:
    """Start the turn of a session, or go on with it; return what a person is asked then."""
    async with runtime(store.open_handle(), **options) as rt:
        session = await rt.open(who, id="s")
        try:
            await (session.run("Go.") if not await rt.store.sessions.find(session.id) else collect(session.resume()))
        except Suspended:
            pass
        rows = await rt.decisions()
    return [row.event.data for row in rows if isinstance(row.event.data, ApprovalRequested)]


async def resolve(store: MemoryStore, asked: ApprovalRequested, **answer: Any) -> None:
    """Answer in a process of its own."""
    async with runtime(store.open_handle()) as rt:
        await rt.resolve(asked.approval, "approve", **answer)


async def results_of(store: MemoryStore) -> list[ToolResult]:
    return list(results_by_call(await read_log(store, "s")).values())


async def run_calls(*made: ScriptLine, **options: Any) -> list[ToolResult]:
    store = MemoryStore()
    await run_until_asked(store, agent(ScriptedModel(*made, say("done")), "Bash", "BashOutput"), **options)
    return await results_of(store)


# -------------------------------------------------------------------------------- refused hosts


async def test_the_result_names_a_refused_host_and_what_would_allow_it(site: Site) -> None:
    [result] = await run_calls(site.fetch(site.host, "9.9.9.9:8080"), **site.options())
    assert "HTTP Error 403" in result.text
    hosts = f'"{site.host}", "9.9.9.9:8080"'
    assert (
        f"[the sandbox refused the network to {site.host}, 9.9.9.9:8080: no rule lets commands reach them. If the "
        f"command needs them, call Bash again with allow_hosts=[{hosts}], and a person is asked; the allow rules "
        f"Bash(domain:{site.host}) and Bash(domain:9.9.9.9:8080) let all commands reach them]"
    ) in result.text
    value: Any = result.value
    assert value["refused_hosts"][0] == {"host": site.host, "rule": f"Bash(domain:{site.host})", "trusted_host": ""}


async def test_a_host_that_the_network_rules_or_a_deny_rule_refuse_is_named_with_the_reason(site: Site) -> None:
    allow = ("Bash", f"Bash(domain:{site.host})")
    rules = vaka.Permissions(allow=allow, deny=("Bash(domain:9.9.9.9)",))
    options = {**site.options(permissions=rules), "network": NetworkAccess(trusted_hosts=())}
    [result] = await run_calls(site.fetch(site.host, "9.9.9.9"), **options)
    assert f"only the user can change that: --allow-host {site.host}]" in result.text
    assert "[the sandbox refused the network to 9.9.9.9, which a rule denies]" in result.text
    assert "allow_hosts" not in result.text
    value: Any = result.value
    assert [(one["rule"], one["trusted_host"]) for one in value["refused_hosts"]] == [("", site.host), ("", "")]


async def test_rules_and_settings_let_commands_reach_hosts(site: Site) -> None:
    rule = ("Bash(python3 get.py:*)", f"Bash(domain:{site.host})")
    assert "yes" in (await run_calls(site.fetch(), **site.options(permissions=vaka.Permissions(allow=rule))))[0].text
    assert "yes" in (await run_calls(site.fetch(), **site.options(commands=Commands(hosts=(site.host,)))))[0].text
    denied = site.options(
        commands=Commands(hosts=(site.host,)), permissions=vaka.Permissions(deny=(f"Bash(domain:{site.host})",))
    )
    assert "which a rule denies" in (await run_calls(site.fetch(), **denied))[0].text


async def test_a_program_that_ignores_the_proxy_is_explained_when_it_fails(site: Site) -> None:
    command = "python3 -c 'import socket; socket.create_connection((\"name.invalid\", 80))'"
    quiet = "echo Network is unreachable"
    failed, fine = await run_calls(
        call("Bash", command=command),
        call("Bash", command=quiet),
        **site.options(permissions=vaka.Permissions(allow=("Bash",))),
    )
    assert "[commands have no network but the proxy that HTTPS_PROXY names" in failed.text
    assert "[commands have" not in fine.text


async def test_a_command_in_the_background_reports_refused_hosts_with_its_output(site: Site) -> None:
    os.mkfifo(site.folder / "ended")
    start = call("Bash", command=f"python3 get.py {site.host}; echo > ended", run_in_background=True)
    wait, read = call("Bash", command="cat ended"), call("BashOutput", task_id="bash_1")
    result = (await run_calls(start, wait, read, **site.options(permissions=vaka.Permissions(allow=("Bash",)))))[2]
    assert f"[the sandbox refused the network to {site.host}" in result.text
    value: Any = result.value
    assert value["refused_hosts"][0]["host"] == site.host


# -------------------------------------------------------------------------------- approvals for hosts


async def test_an_approval_for_once_lets_one_call_reach_a_host(site: Site) -> None:
    model = ScriptedModel(site.fetch(allow_hosts=[site.host]), site.fetch(), say("done"))
    store, who = MemoryStore(), agent(model, "Bash")
    [asked] = await run_until_asked(store, who, **site.options())
    assert (asked.layer, asked.grant, asked.allowed_scopes) == (
        "network",
        f"Bash(domain:{site.host})",
        ("once", "session", "project", "user"),
    )
    await resolve(store, asked)
    assert await run_until_asked(store, who, **site.options()) == []
    first, second = await results_of(store)
    assert "yes" in first.text
    assert "the sandbox refused" in second.text


async def test_an_approval_for_the_session_holds_for_children_and_after_a_restart(site: Site) -> None:
    model = ScriptedModel(
        site.fetch(allow_hosts=[site.host]),
        site.fetch(),
        call("Task", prompt="Fetch it."),
        say("done"),
        agents={"general-purpose": [site.fetch(), say("fetched")]},
    )
    store, who = MemoryStore(), agent(model, "Bash")
    [asked] = await run_until_asked(store, who, **site.options(project=Project(child_agents=True)))
    await resolve(store, asked, scope="session")
    assert await run_until_asked(store, who, **site.options(project=Project(child_agents=True))) == []
    texts = [result.text for result in await results_of(store)]
    assert [text.partition("\n")[0] for text in texts] == ["yes", "yes", "yes", "fetched"]


async def test_an_approval_for_the_project_is_a_rule_that_counts_in_other_sessions_at_once(site: Site) -> None:
    settings = {"project": Project(content=ProjectSource(trusted=False, settings=True))}
    store, model = MemoryStore(), ScriptedModel(site.fetch(allow_hosts=[site.host]), say("done"))
    [asked] = await run_until_asked(store, agent(model, "Bash"), **site.options(**settings))
    await resolve(store, asked, scope="project")
    [result] = await run_calls(site.fetch(), **site.options(**settings))
    assert "yes" in result.text
    assert f"Bash(domain:{site.host})" in (site.folder / ".claude/settings.local.json").read_text()


async def test_calls_that_wait_for_the_same_host_are_approved_together(site: Site) -> None:
    one = site.fetch(allow_hosts=[site.host])
    other = call("Bash", command=f"python3 get.py {site.host} && true", allow_hosts=[site.host])
    store, model = MemoryStore(), ScriptedModel(calls(one, other), say("done"))
    who = agent(model, "Bash")
    asked = await run_until_asked(store, who, **site.options(permissions=vaka.Permissions(allow=("Bash",))))
    assert len(asked) == 2
    await resolve(store, asked[0], scope="session")
    assert await run_until_asked(store, who, **site.options(permissions=vaka.Permissions(allow=("Bash",)))) == []
    assert ["yes" in result.text for result in await results_of(store)] == [True, True]


async def test_a_deny_rule_and_a_turn_that_asks_no_person_refuse_the_call(site: Site) -> None:
    fetch = site.fetch(allow_hosts=[site.host])
    for permissions in (vaka.Permissions(ask="deny"), vaka.Permissions(deny=(f"Bash(domain:{site.host})",))):
        [result] = await run_calls(fetch, **site.options(permissions=permissions))
        assert (result.reason, "yes" in result.text) == ("denied", False)


# -------------------------------------------------------------------------------- without the sandbox


async def test_an_approved_command_runs_without_the_sandbox(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    command = f"echo made > {outside}"
    model = ScriptedModel(
        call("Bash", command=command, dangerouslyDisableSandbox=True),
        call("Bash", command=f"rm {outside}"),
        say("done"),
    )
    store, who = MemoryStore(), agent(model, "Bash")
    options = site.options(permissions=vaka.Permissions(mode="bypassPermissions", allow=("Bash",)))
    [asked] = await run_until_asked(store, who, **options)
    assert (asked.layer, outside.exists()) == ("sandbox", False)
    await resolve(store, asked)
    assert await run_until_asked(store, who, **options) == []
    assert outside.read_text() == "made\n"
    assert (await results_of(store))[1].failed, "the next one is in the sandbox again"
    assert outside.exists()


async def test_an_approval_for_the_session_is_for_this_command_without_the_sandbox(site: Site) -> None:
    host_name = call("Bash", command="readlink /proc/self/ns/net", dangerouslyDisableSandbox=True)
    other = call("Bash", command="readlink /proc/self/ns/pid", dangerouslyDisableSandbox=True)
    store, model = MemoryStore(), ScriptedModel(host_name, host_name, other, say("done"))
    who = agent(model, "Bash")
    [asked] = await run_until_asked(store, who, **site.options())
    await resolve(store, asked, scope="session")
    [again] = await run_until_asked(store, who, **site.options())
    assert (again.call.arguments["command"], again.grant) == (
        "readlink /proc/self/ns/pid",
        "Bash(unsandboxed:readlink /proc/self/ns/pid)",
    )
    here = str(Path("/proc/self/ns/net").readlink())
    assert [result.text.partition("\n")[0] for result in await results_of(store)] == [here, here]


@pytest.mark.parametrize(
    "options",
    [
        {"commands": Commands(sandbox="on")},
        {"commands": Commands(sandbox=select_sandbox("on"))},
        {"permissions": vaka.Permissions(deny=("Bash(unsandboxed:*)",))},
        {"permissions": vaka.Permissions(ask="deny")},
    ],
    ids=["required", "own", "rule", "no person"],
)
async def test_where_the_sandbox_is_required_no_command_leaves_it(site: Site, options: dict[str, Any]) -> None:
    given = options.get("permissions", vaka.Permissions())
    allow = () if given.ask else ("Bash", "Bash(unsandboxed:*)")
    permissions = msgspec.structs.replace(given, mode="bypassPermissions", allow=allow)
    leave = call("Bash", command="touch made", dangerouslyDisableSandbox=True)
    [result] = await run_calls(leave, **site.options(**{**options, "permissions": permissions}))
    assert (result.reason, (site.folder / "made").exists()) == ("denied", False)


class Permissive:
    """A policy of a program, which knows nothing of the sandbox."""

    def judge(self, *_: object) -> Allow:
        return Allow()

    def visible(self, *_: object) -> bool:
        return True


async def test_a_policy_that_does_not_grant_it_gives_commands_no_further_access(site: Site) -> None:
    leave = call("Bash", command="touch made", dangerouslyDisableSandbox=True)
    results = await run_calls(
        leave, site.fetch(allow_hosts=[site.host]), **site.options(permissions=vaka.Permissions(policy=Permissive()))
    )
    assert [result.failed for result in results] == [True, True]
    assert "let no command run without the sandbox; nothing was run" in results[0].text
    assert "let commands reach no further hosts; nothing was run" in results[1].text
    assert not (site.folder / "made").exists()


async def test_a_required_sandbox_also_holds_for_a_policy_that_would_let_commands_leave_it(site: Site) -> None:
    policy = vaka.Runtime(
        workspace=Workspace(cwd=str(site.folder)), permissions=vaka.Permissions(allow=("Bash(unsandboxed:*)",))
    ).env.policy
    leave = call("Bash", command="touch made", dangerouslyDisableSandbox=True)
    [result] = await run_calls(
        leave, **site.options(permissions=vaka.Permissions(policy=policy), commands=Commands(sandbox="on"))
    )
    assert "this runtime runs no command without the sandbox; nothing was run" in result.text


async def test_a_sandbox_without_a_proxy_says_that_there_is_no_network(site: Site) -> None:
    bare = Landlock(strict=False, namespaces=False)
    command = "echo Network is unreachable; false"
    with_host = call("Bash", command="true", allow_hosts=[site.host])
    rules = ("Bash", f"Bash(domain:{site.host})")
    results = await run_calls(
        call("Bash", command=command),
        with_host,
        **site.options(commands=Commands(sandbox=bare), permissions=vaka.Permissions(allow=rules)),
    )
    assert "[commands have no network in this sandbox]" in results[0].text
    assert "cannot let a command reach single hosts; nothing was run" in results[1].text


async def test_a_host_in_the_arguments_that_is_none_is_an_error_for_the_model(site: Site) -> None:
    [result] = await run_calls(site.fetch(allow_hosts=["https://a.example/"]), **site.options())
    assert (result.reason, "allow_hosts[0]" in result.text) == ("invalid_arguments", True)


async def test_an_answer_cannot_store_a_rule_for_another_host(site: Site) -> None:
    store, model = MemoryStore(), ScriptedModel(site.fetch(allow_hosts=[site.host]), say("done"))
    [asked] = await run_until_asked(store, agent(model, "Bash"), **site.options())
    with pytest.raises(InvalidInput, match="does not mean this call"):
        await resolve(store, asked, scope="session", rule="Bash(domain:example.com)")
