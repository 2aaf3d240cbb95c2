"""``vaka serve`` as a process of its own, at a free port."""

import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

TIMEOUT = 60


class ServerProcess:
    """A running server. ``url`` is its address, ``link`` the one-time link of the console."""

    def __init__(self, folder: Path, env: Mapping[str, str], *arguments: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "vaka", "serve", "--port", str(port), *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=folder, env=dict(env), stdout=pipe, stderr=pipe, text=True)
        self.stdout: IO[str] = self.process.stdout  # type: ignore[assignment]  # a pipe
        self.stderr: IO[str] = self.process.stderr  # type: ignore[assignment]  # a pipe
        first = self.stdout.readline()
        found = re.search(r"http://\S+", first)
        if found is None:
            _, errors = self.process.communicate(timeout=TIMEOUT)
            raise AssertionError(f"the server did not start: {first}{errors}")
        self.url = found[0]
        self.port = int(self.url.rpartition(":")[2])
        self.link = "" if "--no-ui" in arguments else self.stdout.readline().split()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.process.kill()
        self._wait()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End the process with a signal; return its exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        return self._wait()

    def wait(self) -> int:
        """Wait for a process that has got a signal; return its exit code."""
        return self._wait()[0]

    def _wait(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, errors
