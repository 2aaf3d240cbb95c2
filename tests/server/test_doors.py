"""Features that are off: their modules are not imported."""

import subprocess
import sys

from tests.unmeasured import without_coverage

PROGRAM = """
import sys
from vaka.server.doors import doors_of
list(doors_of(()))
modules = {f"vaka.server.{name}" for name in ("agui", "aisdk", "chat_turns", "a2a", "mcp")} | {"mcp"}
modules |= {"vaka.server.openai_chat", "vaka.server.responses", "vaka.server.anthropic", "vaka.server.conversations"}
print(*sorted(modules & sys.modules.keys()))
list(doors_of(("agui",)))
print(*sorted(modules & sys.modules.keys()))
"""


def test_the_modules_of_a_feature_are_imported_when_it_is_on() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=without_coverage())
    assert done.stdout.splitlines() == ["", "vaka.server.agui vaka.server.chat_turns"]
