"""What tests of the local model share."""

import os
from typing import Any

from vaka.core.ports.model import Prompt
from vaka.core.types.content import Text
from vaka.core.types.message import UserMessage
from vaka.models.llama.order import Settings
from vaka.models.local import Local

OWN = Settings(context=512, max_tokens=64)
"""Not those of other tests, so that the process is this file's alone."""


def ask(text: str = "Say hello.", **options: Any) -> Prompt:
    return Prompt(messages=(UserMessage(content=(Text(text=text),)),), options=options)


def pid(local: Local) -> int:
    """Return the id of the process that a model has."""
    opened = local._open
    assert opened is not None
    assert opened.process.pid is not None
    return opened.process.pid


def gone(pid: int) -> bool:
    """Whether there is no such process, not even a dead one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
