"""Settings, prompts and process checks for tests of the local model."""

import os
from typing import Any

from vaka.core.ports.model import Prompt
from vaka.core.types.message import Text, UserMessage
from vaka.models.local import LocalSettings
from vaka.models.local.model import LocalModel

OWN_SETTINGS = LocalSettings(context=512, max_tokens=64)
"""Not those of other tests, so that the process is this file's alone."""


def prompt_of(text: str = "Say hello.", **options: Any) -> Prompt:
    return Prompt(messages=(UserMessage(content=(Text(text=text),)),), options=options)


def pid_of(local: LocalModel) -> int:
    """Return the id of the process that a model has."""
    opened = local._connection
    assert opened is not None
    assert opened.process.pid is not None
    return opened.process.pid


def has_exited(pid: int) -> bool:
    """Whether there is no such process, not even a dead one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
