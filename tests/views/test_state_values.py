"""Which session values a client of AG-UI and of the AI SDK sees."""

import pytest

import vaka
from vaka.agents.coding_prompt import ENVIRONMENT_KEY
from vaka.core.ports.tool import CHANGED_FILE_KEY, shell_folder_key
from vaka.core.types.control import StateChanged
from vaka.core.types.hidden_messages import HIDDEN_KEY
from vaka.core.types.ids import SessionId, TurnId
from vaka.project.command_text import ALLOWED_KEY
from vaka.project.hook_sources import ACTIVE_KEY
from vaka.project.project_tools import GIVEN_KEY
from vaka.tools import dmail
from vaka.tools.builtin.shell import background
from vaka.tools.builtin.task_tools import STATE_KEY as TODOS_KEY
from vaka.views.agui import AguiEncoder
from vaka.views.aisdk import UiStreamEncoder
from vaka.views.state_values import is_application_value

OWN_KEYS = [
    "$router",
    ALLOWED_KEY,
    ENVIRONMENT_KEY,
    CHANGED_FILE_KEY,
    "files.seen.1f",
    ACTIVE_KEY,
    dmail.STATE_KEY,
    GIVEN_KEY,
    f"{GIVEN_KEY}/child",
    shell_folder_key(()),
    shell_folder_key(("child",)),
    background.STATE_KEY,
    HIDDEN_KEY,
]


def changed(key: str, value: str) -> vaka.Event:
    return vaka.Event(data=StateChanged(key=key, value=value), session=SessionId("s"), ts="", turn=TurnId("t"))


@pytest.mark.parametrize("key", OWN_KEYS)
def test_values_that_vaka_keeps_for_itself_are_not_state_of_the_application(key: str) -> None:
    assert not is_application_value(key)
    event = changed(key, "/srv/secret")
    assert "secret" not in str(AguiEncoder().encode(event)) + str(UiStreamEncoder().encode(event))


@pytest.mark.parametrize("key", [TODOS_KEY, "cart", "environment_name", "shell", "files"])
def test_values_of_tools_are_state_of_the_application(key: str) -> None:
    assert is_application_value(key)
    event = changed(key, "apples")
    assert "apples" in str(AguiEncoder().encode(event))
    assert "apples" in str(UiStreamEncoder().encode(event))
