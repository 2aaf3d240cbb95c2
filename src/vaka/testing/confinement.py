"""The contract suite of sandboxes that enforce restrictions: each test tries to break out.

The tests attack only their own files, or open files without writing them, so a sandbox that fails does no harm.
"""
# ruff: noqa: S101, ASYNC220, ASYNC240  # a contract suite is made of asserts; commands are observed through files

import contextlib
import os
import shlex
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from vaka.core.ports.sandbox import Process, Sandbox
from vaka.core.types.errors import SandboxError
from vaka.testing.protected_links import ProtectedLinksContract
from vaka.testing.sandboxes import PYTHON, CompletedCommand, run_to_end, shell_command, wait_for_file


class ConfinementContract(ProtectedLinksContract):
    """The contract of a sandbox that enforces ``write``, ``read`` and ``network``."""

    hides_processes = True
    """Whether other processes are invisible."""
    hides_names = True
    """Whether the names in a masked folder are invisible."""

    def test_enforces_names_the_restrictions(self, sandbox: Sandbox) -> None:
        assert {"write", "read", "network", "memory", "syscalls"} <= sandbox.enforces
        assert sandbox.enforces <= {"write", "read", "network", "processes", "memory", "syscalls"}

    # ---------------------------------------------------------------------------------------------------------- write

    @pytest.mark.parametrize(
        "attack",
        [
            "echo x > {0}/file",
            "echo x >> {0}/file",
            "echo x > {0}/new",
            "mkdir {0}/folder",
            "rm {0}/file",
            "mv {0}/file .",
            "mv {0}/file {0}/other",
            "truncate -s 0 {0}/file",
            "ln -s x {0}/link",
            "rmdir {0}/empty",
            "mkfifo {0}/fifo",
            "ln -s {0} way && echo x > way/file",
            "echo x > ../outside/file",
            "cd / && echo x > .{0}/file",
            "echo x > /proc/self/root{0}/file",
            "echo x > /proc/self/cwd/../outside/file",
            "ln {0}/file hard && echo x > hard",
            "cp /bin/true {0}/file",
            "exec 7<{0} && echo x > /proc/self/fd/7/new",
        ],
    )
    async def test_a_command_cannot_write_outside_the_workspace(
        self, sandbox: Sandbox, workspace: Path, attack: str
    ) -> None:
        outside = _make_outside_folder(workspace)
        ended = await self.run(sandbox, attack.format(outside), workspace)
        assert sorted(path.name for path in outside.iterdir()) == ["empty", "file"]
        assert ((outside / "file").read_text(), ended.code != 0) == ("as it was", True)

    async def test_system_files_are_read_only(self, sandbox: Sandbox, workspace: Path) -> None:
        """Programs, settings and the kernel's files cannot be opened for writing."""
        look = (
            "import os, sys\nfor top in ('/etc', '/usr/bin', '/usr/lib/python3', '/proc/sys', '/sys', '/var/lib'):\n"
            " for folder, _, names in os.walk(top):\n  for name in names:\n   path = os.path.join(folder, name)\n"
            "   try:\n    if not os.path.islink(path) and os.path.isfile(path):\n"
            "     os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)); print(path)\n   except OSError: pass\n"
            "for path in [f'/proc/{name}' for name in os.listdir('/proc') if not name.isdigit()]:\n"
            " try:\n  if os.path.isfile(path): os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)); print(path)\n"
            " except OSError: pass\nprint('looked')"
        )
        ended = await self.run(sandbox, f"exec {PYTHON} -c {shlex.quote(look)}", workspace)
        assert ended == CompletedCommand(0, "looked\n", "")

    async def test_a_command_has_its_own_temporary_folder(self, sandbox: Sandbox, workspace: Path) -> None:
        ended = await self.run(sandbox, 'f=$(mktemp) && echo kept > "$f" && cat "$f" && echo "$f"', workspace)
        text, name = ended.stdout.split()
        assert (ended.code, text, Path(name).exists()) == (0, "kept", False)

    async def test_the_workspace_is_writable(self, sandbox: Sandbox, workspace: Path) -> None:
        """Files, folders, links, modes and names; new files belong to the owner of the workspace."""
        script = (
            "mkdir -p a/b && echo x > a/b/c && ln a/b/c d && ln -s d e && mv a/b f && chmod 750 f && rm e && cat f/c"
        )
        assert await self.run(sandbox, script, workspace) == CompletedCommand(0, "x\n", "")
        assert sorted(path.name for path in workspace.iterdir()) == ["a", "d", "f"]
        owner = workspace.stat()
        made = (workspace / "f").stat()
        assert ((made.st_uid, made.st_gid), made.st_mode & 0o777) == ((owner.st_uid, owner.st_gid), 0o750)

    async def test_a_writable_folder_cannot_be_swapped_for_a_link(self, sandbox: Sandbox, workspace: Path) -> None:
        """Links in ``writable`` are refused."""
        outside = _make_outside_folder(workspace)
        (workspace / "sub").symlink_to(outside)
        with pytest.raises(SandboxError, match="link"):
            await sandbox.start(shell_command("echo x > new", workspace, writable=(str(workspace / "sub"),)))
        for path in ("/", "relative"):
            with pytest.raises(SandboxError):
                await sandbox.start(shell_command("true", workspace, writable=(path,)))

    async def test_swapping_a_folder_for_a_link_during_start_leaks_nothing(
        self, sandbox: Sandbox, workspace: Path
    ) -> None:
        """A process swaps folder and link in a loop; the command never writes outside."""
        outside = _make_outside_folder(workspace)
        (workspace / "one").mkdir()
        (workspace / "two").symlink_to(outside)
        swap = "import os\nwhile True: os.rename('one', 'was'); os.rename('two', 'one'); os.rename('was', 'two')"
        swapping = subprocess.Popen([PYTHON, "-c", swap], cwd=workspace, stderr=subprocess.DEVNULL)
        try:
            for _ in range(15):
                with contextlib.suppress(SandboxError):
                    command = shell_command("echo x > new", workspace, writable=(str(workspace / "one"),))
                    script = f"echo x > {workspace}/one/new"
                    await run_to_end(await sandbox.start(msgspec.structs.replace(command, argv=("bash", "-c", script))))
        finally:
            swapping.kill()
            swapping.wait()
        assert sorted(path.name for path in outside.iterdir()) == ["empty", "file"]

    # ------------------------------------------------------------------------------------------------------ protected

    @pytest.mark.parametrize(
        "attack",
        [
            "echo x > settings.json",
            "rm settings.json",
            "mv settings.json other",
            "ln -sf x settings.json",
            "truncate -s 0 settings.json",
            "echo x > .git/hooks/pre-commit",
            "echo x > .git/hooks/new",
            "rm -rf .git/hooks",
            "mv .git/hooks .git/was",
            "mv .git was; mkdir -p .git/hooks; echo x > .git/hooks/new",
            "rm -rf .git; mkdir -p .git/hooks; echo x > .git/hooks/new",
            "ln .git/hooks/pre-commit h && echo x > h",
            "mkdir missing",
            "mkdir -p missing/inner; echo x > missing/inner/file",
            "echo x > missing.json",
            "ln -s /dev/null missing.json",
            "ln -s . missing",
            "echo x > deep/er/file",
            "mv deep was",
            "rmdir deep; ln -s .git deep",
            "mkdir m; mv m missing",
            "touch t; mv -f t missing.json",
            "chmod 777 settings.json && echo x > settings.json",
            "cp /bin/true .git/hooks/pre-commit",
        ],
    )
    async def test_protected_paths_cannot_be_changed(self, sandbox: Sandbox, workspace: Path, attack: str) -> None:
        """What appears at a missing one is removed."""
        self.skip_without_inside_protection()
        (workspace / ".git/hooks").mkdir(parents=True)
        (workspace / ".git/hooks/pre-commit").write_text("as it was")
        (workspace / ".git/index").write_text("free")
        (workspace / "settings.json").write_text("as it was")
        (workspace / "deep").mkdir()
        names = ("settings.json", ".git/hooks", "missing/inner/file", "missing.json", "deep/er/file", "folder")
        protected = tuple(f"{workspace}/{name}" for name in names)
        await self.run(sandbox, attack, workspace, protected=protected)
        assert (workspace / "settings.json").read_text() == "as it was"
        assert [path.name for path in (workspace / ".git/hooks").iterdir()] == ["pre-commit"]
        assert (workspace / ".git/hooks/pre-commit").read_text() == "as it was"
        assert [name for name in names[2:] if os.path.lexists(workspace / name)] == []

    async def test_paths_beside_protected_ones_are_writable(self, sandbox: Sandbox, workspace: Path) -> None:
        self.skip_without_inside_protection()
        (workspace / ".git/hooks").mkdir(parents=True)
        (workspace / ".git/config").write_text("settings")
        protected = (f"{workspace}/.git/hooks", f"{workspace}/.git/config", f"{workspace}/vaka.toml")
        script = "cat .git/config && echo x > .git/index && mkdir .git/objects && echo y > free && rm -r .git/objects"
        ended = await self.run(sandbox, script, workspace, protected=protected)
        assert ended == CompletedCommand(0, "settings", "")
        assert sorted(path.name for path in workspace.iterdir()) == [".git", "free"]

    @pytest.mark.parametrize("cwd", ["sub", "sub/.git", "sub/.git/hooks", "sub/deep"])
    async def test_the_working_folder_does_not_bypass_protection(
        self, sandbox: Sandbox, workspace: Path, cwd: str
    ) -> None:
        """Neither by its own path, by ``..``, nor through ``/proc/PID/cwd``."""
        self.skip_without_inside_protection()
        (workspace / "sub/.git/hooks").mkdir(parents=True)
        (workspace / "sub/deep").mkdir()
        script = (
            "free=$PWD; for at in . .. ../.. $free; do echo x > $at/new; echo x > $at/hooks/new; "
            "echo x > $at/.git/hooks/new; done; for at in /proc/[0-9]*/cwd; do (cd $at && pwd && echo x > new; "
            f"echo x > hooks/new; echo x > .git/hooks/new; echo x > {workspace}/sub/.git/hooks/new); done; echo tried"
        )
        command = shell_command(f"{script} 2>&1", workspace, protected=(f"{workspace}/sub/.git/hooks",))
        ended = await run_to_end(await sandbox.start(msgspec.structs.replace(command, cwd=f"{workspace}/{cwd}")))
        assert (ended.stdout.endswith("tried\n"), list((workspace / "sub/.git/hooks").iterdir())) == (True, [])

    async def test_two_commands_can_protect_the_same_missing_path(self, sandbox: Sandbox, workspace: Path) -> None:
        """The first command to end does not remove the protection of the other."""
        protected = (f"{workspace}/missing.json",)
        script = "touch up; until [ -e go ]; do sleep 0.01; done; echo x > missing.json"
        first = await sandbox.start(shell_command(script, workspace, protected=protected))
        await wait_for_file(workspace / "up")
        await self.run(sandbox, "true", workspace, protected=protected)
        (workspace / "go").touch()
        await run_to_end(first)
        assert sorted(path.name for path in workspace.iterdir()) == ["go", "up"]

    async def test_several_commands_can_protect_the_same_missing_paths_at_once(
        self, sandbox: Sandbox, workspace: Path
    ) -> None:
        """The end of one of them does not end the protection for the others."""
        protected = (f"{workspace}/missing.json", f"{workspace}/missing/inner", f"{workspace}/.file")
        script = (
            "touch up{0}; until [ -e go{0} ]; do sleep 0.01; done; echo x > missing.json; echo x > .file; mkdir m; "
        )
        script += "mv m missing; mkdir -p missing/inner; rm -rf m missing up{0} go{0}"
        running: list[Process] = []
        for number in range(3):
            running.append(await sandbox.start(shell_command(script.format(number), workspace, protected=protected)))
            await wait_for_file(workspace / f"up{number}")
        for number, process in enumerate(running):
            (workspace / f"go{number}").touch()
            await run_to_end(process)
        assert sorted(path.name for path in workspace.iterdir()) == []

    async def test_no_missing_name_is_visible_while_a_command_runs(self, sandbox: Sandbox, workspace: Path) -> None:
        """Neither to the command nor to other programs."""
        self.skip_without_inside_protection()
        (workspace / ".git/hooks").mkdir(parents=True)
        (workspace / ".git/config").write_text("settings")
        names = (".git/config", ".git/hooks", ".git/commondir", ".vscode", "vaka.toml", "one/two", "commondir")
        command = shell_command(
            "find . | sort; touch up; until [ -e go ]; do sleep 0.01; done",
            workspace,
            protected=tuple(f"{workspace}/{name}" for name in names),
        )
        process = await sandbox.start(command)
        await wait_for_file(workspace / "up")
        visible = sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*"))
        (workspace / "go").touch()
        ended = await run_to_end(process)
        assert visible == [".git", ".git/config", ".git/hooks", "up"]
        assert ended == CompletedCommand(0, ".\n./.git\n./.git/config\n./.git/hooks\n", "")

    @pytest.mark.parametrize(
        "script",
        [
            "git stash -u && git stash pop --index",
            "git clean -fdxn",
            "git checkout -q -b side; git checkout -q main",
            "touch junk; git clean -fdxq -e draft",
            "git stash -uq; git clean -fdxq; git stash pop",
            "git status -s",
            "git worktree add -q -b b t; cd t; touch x; git add x; git commit -qm x; cd ..; git worktree remove t",
            "git commit -qm two plan && git reset -q --soft HEAD~1",
        ],
    )
    async def test_git_works_in_a_repository_with_uncommitted_work(
        self, sandbox: Sandbox, workspace: Path, script: str
    ) -> None:
        self.skip_without_inside_protection()
        _make_repository_with_work(workspace)
        names = (
            ".git/config",
            ".git/hooks",
            ".git/commondir",
            ".git/info/attributes",
            ".claude",
            ".vscode",
            ".envrc",
            ".gitmodules",
            ".github/workflows",
            "vaka.toml",
            "commondir",
        )
        protected = tuple(f"{workspace}/{name}" for name in names)
        ended = await self.run(sandbox, f"set -e; {script}", workspace, protected=protected)
        assert (ended.code, ended.stderr) == (0, "")
        assert sorted(path.name for path in workspace.iterdir()) == [".git", "code", "draft", "plan"]
        assert [(workspace / name).read_text() for name in ("code", "draft", "plan")] == ["2\n"] * 3

    async def test_what_appears_at_a_missing_path_is_kept_and_reported(self, sandbox: Sandbox, workspace: Path) -> None:
        """By ``Process.removed``, with its path and where its content is now."""
        protected = tuple(f"{workspace}/{name}" for name in (".vscode", ".github/workflows", "vaka.toml", ".envrc"))
        script = (
            "mkdir t .github; echo text > t/tasks.json; mv t .vscode; ln -s /etc .github/workflows; touch .github/free"
            "; mkdir other; chmod 0 other; mv other vaka.toml"
        )
        process = await sandbox.start(shell_command(script, workspace, protected=protected))
        await run_to_end(process)
        removed = {path.path: Path(path.kept) for path in process.removed}
        assert sorted(removed) == [f"{workspace}/{name}" for name in (".github/workflows", ".vscode", "vaka.toml")]
        assert (removed[f"{workspace}/.vscode"] / "tasks.json").read_text() == "text\n"
        assert removed[f"{workspace}/.github/workflows"].is_symlink()
        assert sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*")) == [".github", ".github/free"]
        assert not any(path.is_relative_to(workspace) for path in removed.values())

    @pytest.mark.parametrize("end", ["stop", "kill"])
    async def test_what_a_killed_command_has_created_is_removed(
        self, sandbox: Sandbox, workspace: Path, end: str
    ) -> None:
        script = "mkdir .vscode; touch up; exec sleep 600" if end == "stop" else "mkdir .vscode; kill -KILL $$"
        process = await sandbox.start(shell_command(script, workspace, protected=(f"{workspace}/.vscode",)))
        if end == "stop":
            await wait_for_file(workspace / "up")
        else:
            await process.wait()
        await process.stop(0)
        assert not (workspace / ".vscode").exists()
        assert [path.path for path in process.removed] == [f"{workspace}/.vscode"]

    async def test_what_its_owner_announces_stays(self, sandbox: Sandbox, workspace: Path) -> None:
        """An announced path belongs to a file that the caller creates while the command runs."""
        protected = (f"{workspace}/.vscode", f"{workspace}/vaka.toml")
        script = "touch up; until [ -e go ]; do sleep 0.01; done; echo x > vaka.toml"
        process = await sandbox.start(shell_command(script, workspace, protected=protected))
        await wait_for_file(workspace / "up")
        process.announce(f"{workspace}/.vscode/settings.json")
        (workspace / ".vscode").mkdir()
        (workspace / ".vscode/settings.json").write_text("mine")
        (workspace / "go").touch()
        await run_to_end(process)
        assert (workspace / ".vscode/settings.json").read_text() == "mine"
        assert [path.path for path in process.removed] == [f"{workspace}/vaka.toml"]

    async def test_consecutive_commands_can_protect_the_same_missing_paths(
        self, sandbox: Sandbox, workspace: Path
    ) -> None:
        self.skip_without_inside_protection()
        names = (".git/config", ".git/hooks", ".file", "settings.json", "one/two/three")
        command = shell_command("echo on", workspace, protected=tuple(f"{workspace}/{name}" for name in names))
        ended: list[Process] = []
        for _ in range(12):
            process = await sandbox.start(command)
            assert [data async for _, data in process.output()] == [b"on\n"]
            assert await process.wait() == 0
            ended.append(process)
        for process in ended:
            await process.stop()
        assert sorted(path.name for path in workspace.iterdir()) == []

    # ----------------------------------------------------------------------------------------------------------- read

    async def test_a_masked_folder_has_only_the_workspace_in_it(self, sandbox: Sandbox, workspace: Path) -> None:
        """What another user creates there while the command runs cannot be read either."""
        masked, own = workspace.parent, workspace.name
        (masked / "before").mkdir()
        (masked / "before/key").write_text("canary")
        wait = "touch up; until [ -e go ]; do sleep 0.01; done"
        look = f"cat ../*/key {masked}/*/key /proc/self/cwd/../*/key; ls {masked}; cat ../later/key; echo x > ../mine"
        process = await sandbox.start(shell_command(f"{wait}; {look}", workspace, masked=(str(masked),)))
        await wait_for_file(workspace / "up")
        (masked / "later").mkdir()
        (masked / "later/key").write_text("canary")
        (workspace / "go").touch()
        ended = await run_to_end(process)
        assert "canary" not in ended.stdout
        if self.hides_names:
            assert ended.stdout.split() in ([own], [])
        assert sorted(path.name for path in masked.iterdir()) == sorted(("before", "later", own))

    async def test_a_folder_that_the_command_needs_cannot_be_masked(self, sandbox: Sandbox, workspace: Path) -> None:
        for path in (str(workspace), "/"):
            with pytest.raises(SandboxError, match="cannot be masked"):
                await sandbox.start(shell_command("true", workspace, masked=(path,)))

    async def test_hidden_paths_cannot_be_read(self, sandbox: Sandbox, workspace: Path) -> None:
        outside = _make_outside_folder(workspace)
        (outside / "empty/key").write_text("canary")
        hidden = (str(outside / "file"), str(outside / "empty"))
        script = f"cat {outside}/file; cat {outside}/empty/key; cat {outside}/empty/*; grep -r . {outside}"
        ended = await self.run(sandbox, script, workspace, hidden=hidden)
        assert ("canary" in ended.stdout, "as it was" in ended.stdout) == (False, False)

    @pytest.mark.parametrize(
        "attack",
        [
            "cat .env",
            "cp .env copy; cat copy",
            "mv .env moved; cat moved",
            "ln .env hard; cat hard",
            "cat sub/.env",
            "ln -s .env soft; cat soft",
            "mv sub away; cat away/.env",
            "cat /proc/self/cwd/.env",
            "tar c . | grep -a canary",
            "cat keys/one",
            "mv keys away; cat away/one",
            "cp -r keys copy; cat copy/one",
        ],
    )
    async def test_hidden_paths_in_the_workspace_cannot_be_read(
        self, sandbox: Sandbox, workspace: Path, attack: str
    ) -> None:
        self.skip_without_inside_protection()
        for name in (".env", "sub/.env", "keys/one"):
            (workspace / name).parent.mkdir(exist_ok=True)
            (workspace / name).write_text("canary")
        hidden = tuple(f"{workspace}/{name}" for name in (".env", "sub/.env", "keys"))
        ended = await self.run(sandbox, attack, workspace, hidden=hidden)
        assert "canary" not in ended.stdout + ended.stderr

    @pytest.mark.parametrize("attack", ["mv sub away", "mv sub/er away", "mv sub/keys away", "cp -rl sub away"])
    async def test_hidden_paths_cannot_be_moved_for_the_next_command(
        self, sandbox: Sandbox, workspace: Path, attack: str
    ) -> None:
        self.skip_without_inside_protection()
        for name in ("sub/er/.env", "sub/keys/one"):
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text("canary")
        hidden = tuple(f"{workspace}/{name}" for name in ("sub/er/.env", "sub/keys"))
        await self.run(sandbox, attack, workspace, hidden=hidden)
        ended = await self.run(
            sandbox, "grep -ra canary .; echo x > sub/er/new && rm sub/er/new", workspace, hidden=hidden
        )
        assert "canary" not in ended.stdout
        assert ended.code == 0

    async def test_the_workspace_cannot_be_hidden(self, sandbox: Sandbox, workspace: Path) -> None:
        with pytest.raises(SandboxError, match="hidden"):
            await sandbox.start(shell_command("true", workspace, hidden=(str(workspace.parent),)))

    async def test_other_processes_cannot_be_inspected(self, sandbox: Sandbox, workspace: Path) -> None:
        """Their environment, memory, descriptors and folders."""
        other = subprocess.Popen(["/bin/sleep", "600"], env={"PATH": os.environ["PATH"], "KEPT": "canary-of-another"})
        try:
            script = (
                f"cat /proc/*/environ | tr '\\0' '\\n'; ls /proc/{other.pid}/fd /proc/{os.getpid()}/fd;"
                f"head -c 1 /proc/{os.getpid()}/mem; cat /proc/{os.getpid()}/environ; ls /proc/{os.getpid()}/root/;"
                f"cat /proc/{os.getpid()}/maps"
            )
            ended = await self.run(sandbox, script, workspace)
        finally:
            other.kill()
            other.wait()
        assert "canary-of-another" not in ended.stdout
        assert "r-xp" not in ended.stdout  # a line of a process's map
        if self.hides_processes:
            seen = await self.run(sandbox, "ls -d /proc/[0-9]* | wc -l", workspace)
            assert int(seen.stdout) < 10

    async def test_other_processes_cannot_be_signalled(self, sandbox: Sandbox, workspace: Path) -> None:
        other = subprocess.Popen(["/bin/sleep", "600"])
        try:
            # Signal 0 has no effect; it only checks whether a signal would be delivered.
            ended = await self.run(sandbox, f"kill -0 {other.pid} || kill -0 {os.getpid()}", workspace)
        finally:
            other.kill()
            other.wait()
        assert ended.code != 0

    # -------------------------------------------------------------------------------------------------------- network

    async def test_the_network_is_unreachable(self, sandbox: Sandbox, workspace: Path) -> None:
        """TCP, UDP and abstract sockets of this machine, and name servers."""
        with contextlib.ExitStack() as stack:
            tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            udp.bind(("127.0.0.1", 0))
            abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
            abstract.bind(f"\0vaka-test-{os.getpid()}")
            abstract.listen()
            ports = tcp.getsockname()[1], udp.getsockname()[1]
            attack = (
                "import socket, sys\ndef attempt(work):\n try:\n  work(); print('REACHED', work.__name__)\n"
                " except OSError: pass\n"
                f"def tcp(): socket.create_connection(('127.0.0.1', {ports[0]}), 5)\n"
                "def udp():\n s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                f" s.sendto(b'x', ('127.0.0.1', {ports[1]})); s.settimeout(0.2); s.recv(1)\n"
                f"def abstract(): s = socket.socket(socket.AF_UNIX); s.connect('\\0vaka-test-{os.getpid()}')\n"
                "def name(): socket.getaddrinfo('example.org', 80)\n"
                "def vsock(): socket.socket(40, socket.SOCK_STREAM)\n"
                "def packet(): socket.socket(17, socket.SOCK_RAW)\n"
                "def raw(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\n"
                "for work in (tcp, udp, abstract, name, vsock, packet, raw): attempt(work)\nprint('tried')"
            )
            ended = await self.run(sandbox, f"exec {PYTHON} -c {shlex.quote(attack)}", workspace)
            assert ended == CompletedCommand(0, "tried\n", "")
            for server in (tcp, abstract):
                server.setblocking(False)
                with pytest.raises(BlockingIOError):
                    server.accept()
            udp.setblocking(False)
            with pytest.raises(BlockingIOError):
                udp.recv(1)

    async def test_unix_sockets_of_other_programs_are_unreachable(self, sandbox: Sandbox, workspace: Path) -> None:
        """Also those in the workspace itself."""
        for folder in (workspace.parent, workspace):
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(folder / "door"))
                server.listen()
                attack = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(folder / 'door')!r})"
                ended = await self.run(sandbox, f"{PYTHON} -c {shlex.quote(attack)}", workspace)
                server.setblocking(False)
                assert ended.code != 0
                with pytest.raises(BlockingIOError):
                    server.accept()

    async def test_the_network_is_reachable_when_allowed(self, sandbox: Sandbox, workspace: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            script = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo reached"
            assert (await self.run(sandbox, script, workspace, network=True)).stdout == "reached\n"

    # ------------------------------------------------------------------------------------------------------- privilege

    @pytest.mark.parametrize(
        "attack",
        [
            "unshare --user true",
            "unshare --user --map-root-user true",
            "unshare --mount true",
            "unshare --net true",
            "mount -t tmpfs none .",
            "mount --bind / .",
            "chroot . /bin/true",
            "nsenter --target 1 --all true",
            "mknod device c 1 1",
            "su -c true daemon < /dev/null",
            "dmesg",
            "chown 12345 owned",
        ],
    )
    async def test_a_command_gains_no_privilege(self, sandbox: Sandbox, workspace: Path, attack: str) -> None:
        """Neither by namespaces and mounts nor by setuid programs."""
        (workspace / "owned").touch()
        assert (await self.run(sandbox, f"{attack} 2>&1", workspace)).code != 0

    async def test_a_command_has_no_capabilities(self, sandbox: Sandbox, workspace: Path) -> None:
        ended = await self.run(sandbox, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status", workspace)
        found = dict(line.split(":\t") for line in ended.stdout.splitlines())
        assert {key: int(found[key], 16) for key in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {
            "CapPrm": 0,
            "CapEff": 0,
            "CapInh": 0,
            "CapAmb": 0,
        }
        assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")


def _make_repository_with_work(workspace: Path) -> None:
    """Create a repository with a commit, a staged, a changed and a new file."""
    script = (
        "git init -q -b main . && git config user.name kim && git config user.email kim@example.org"
        " && echo 1 > plan && echo 1 > code && git add . && git commit -qm one"
        " && echo 2 > plan && git add plan && echo 2 > code && echo 2 > draft"
    )
    subprocess.run(["/bin/bash", "-c", script], cwd=workspace, check=True, capture_output=True)


def _make_outside_folder(workspace: Path) -> Path:
    outside = workspace.parent / "outside"
    (outside / "empty").mkdir(parents=True)
    (outside / "file").write_text("as it was")
    return outside
