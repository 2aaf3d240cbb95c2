"""The feature ``project``: the content of ``.claude`` folders."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vaka.feature import Feature

if TYPE_CHECKING:
    import click


def load_commands() -> "Sequence[click.Command]":
    from vaka.project.cli import commands, hooks, skills

    return [skills, commands, hooks]


FEATURE = Feature(
    name="project",
    commands={
        "skills": "List the skills of the project, of your home folder and of plugins.",
        "commands": "List the slash commands of the same places.",
        "hooks": "List the hooks of the settings, or run the hooks of an event.",
    },
    load_commands=load_commands,
)
