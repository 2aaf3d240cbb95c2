"""The installed ``vaka``: its environment, its commands and its server, each a process of its own."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.journeys.answers import PATIENCE
from tests.journeys.project import GIT_ENVIRONMENT
from tests.journeys.web import Web

ROOT = Path(__file__).parents[2]


def install() -> Path:
    """Install vaka from wheels of this checkout unless that is done; return the folder of its programs."""
    place = ROOT / ".venv" / "installed"
    done = subprocess.run(
        [ROOT / "scripts" / "installed_vaka.sh", sys.executable, place], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "bin"


class Home:
    """A person's account: a home folder, the installed ``vaka`` on the PATH, and the keys of a provider."""

    def __init__(self, folder: Path, programs: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.vaka = str(programs / "vaka")
        self.environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            **GIT_ENVIRONMENT,
            **environment,
        }

    def start(self, cwd: Path, *arguments: str, **env: str) -> subprocess.Popen[str]:
        """Start a command of vaka with pipes."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [self.vaka, *arguments],
            cwd=cwd,
            env=self.environment | env,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def run(self, cwd: Path, *arguments: str, expect: int = 0, **env: str) -> str:
        """Run a command of vaka to its end and return its stdout."""
        process = self.start(cwd, *arguments, **env)
        out, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == expect, f"{arguments} ended with {process.returncode}:\n{out}{errors}"
        assert "Traceback" not in errors, errors
        return out

    def run_failing(self, cwd: Path, *arguments: str, **env: str) -> tuple[int, str]:
        """Run a command of vaka to its end and return its exit code and stderr."""
        process = self.start(cwd, *arguments, **env)
        _, errors = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in errors, errors
        return process.returncode, errors

    def create_key(self, cwd: Path, *arguments: str) -> str:
        return self.run(cwd, "keys", "create", *arguments).strip()


class Server(Web):
    """A running ``vaka serve``. ``link`` logs a browser into the console, once."""

    def __init__(self, home: Home, cwd: Path, *arguments: str, key: str = "", port: int = 0) -> None:
        self._command = [home.vaka, "serve", "--port", str(port), *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            self._command, cwd=cwd, env=home.environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )
        self.errors = ""
        self._stdout: IO[str] = self.process.stdout  # type: ignore[assignment]  # a pipe
        self._collector = threading.Thread(target=self._collect_errors, daemon=True)
        self._collector.start()
        first = self._stdout.readline()
        found = re.search(r"http://\S+", first)
        if found is None:
            self.process.wait(PATIENCE)
            self._collector.join(PATIENCE)
            raise AssertionError(f"the server did not start: {first}{self.errors}")
        super().__init__(found[0], key)
        self.port = int(self.url.rpartition(":")[2])
        self.link = "" if "--no-ui" in arguments else self._stdout.readline().split()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
        self._stdout.close()
        assert "Traceback" not in self.errors, self.errors
        assert "never retrieved" not in self.errors, self.errors

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.process.kill()
        self._wait()

    def stop(self) -> int:
        """End the process with SIGTERM and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        code = self.process.wait(PATIENCE)
        self._collector.join(PATIENCE)
        return code

    def _collect_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.errors += line
