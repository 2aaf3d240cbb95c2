"""The Python side of what scripts can call: one file for each table of ``ctx``."""

from vaka.luau.host.agents import agent_functions
from vaka.luau.host.generate import generate_functions
from vaka.luau.host.http import http_functions
from vaka.luau.host.invoke import invoke_functions
from vaka.luau.host.log import log_functions
from vaka.luau.host.notes import note_functions
from vaka.luau.host.parts import Parts
from vaka.luau.host.talk import talk_functions
from vaka.luau.host.time import time_functions
from vaka.luau.script import Functions


def ctx_functions(parts: Parts) -> Functions:
    """Return what ``ctx`` needs of its host; what ``parts`` lacks raises an error in the script that says so."""
    return {
        **http_functions(parts),
        **generate_functions(parts),
        **invoke_functions(parts),
        **agent_functions(parts),
        **note_functions(parts),
        **log_functions(parts),
        **talk_functions(parts),
        **time_functions(parts),
    }
