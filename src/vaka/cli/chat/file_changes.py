"""The changes of a session to files, and the files that a rewind has restored, as lines for the terminal."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vaka.cli.kit.render import as_printable
from vaka.cli.strings import translate
from vaka.core.types.ids import CallId
from vaka.core.types.message import Text, ToolCall, ToolResult
from vaka.runtime.file_rewind import FileRewind, FileVersions
from vaka.text.decoding import decode_text
from vaka.tools.builtin.files.edit import make_diff

_MAX_NAMES = 20
_MAX_DIFF_BYTES = 1_000_000


class ShownChange(NamedTuple):
    """The change of a file in the form in which the terminal shows a call of a tool."""

    call: ToolCall
    result: ToolResult


def show_change(versions: FileVersions) -> ShownChange:
    """Return the change of one file: its diff, or the sizes of a file that is not text."""
    if versions.before is None:
        title = translate("new file")
    elif versions.now is None:
        title = translate("deleted file")
    else:
        title = translate("changed file")
    path = as_printable(versions.path, lines=False)
    if versions.new_mode == "executable":
        path += f" ({translate('can be run now')})"
    elif versions.new_mode == "plain":
        path += f" ({translate('cannot be run any more')})"
    call = ToolCall(id=CallId("change"), name=title, arguments={"path": path})
    if versions.before is not None and versions.before == versions.now:
        return ShownChange(call, ToolResult(call=call.id))
    old, new = (_text_of(data) for data in (versions.before, versions.now))
    if old is None or new is None:
        sizes = [len(data) for data in (versions.before, versions.now) if data is not None]
        text = translate("not a text that is shown: {sizes} bytes", sizes=" → ".join(map(str, sizes)))
        return ShownChange(call, ToolResult(call=call.id, content=(Text(text=text),)))
    value = {"diff": make_diff(old, new)}
    text = translate("an empty file") if not old and not new else ""
    return ShownChange(call, ToolResult(call=call.id, content=(Text(text=text),), value=value))


def describe_changes(effect: FileRewind) -> Iterator[str]:
    """Yield lines about the changes of a session that no diff shows."""
    yield from _name_files(translate("changed too, the earlier content is not known:"), effect.lost, effect.unnamed)
    yield from _name_files(translate("changed while a command ran in the background:"), effect.unclear)
    yield from _count_commands(effect)


def describe_rewind(effect: FileRewind, force_command: str) -> Iterator[str]:
    """Yield lines about the files that a rewind has restored, and those that it has not.

    ``force_command``: what a person types to restore files of which the cause of the change is not clear.
    """
    yield from _name_files(translate("restored:"), effect.restored)
    yield from _name_files(translate("removed:"), effect.removed)
    if not (effect.restored or effect.removed):
        yield translate("no file was restored")
    lost = translate(
        "not restored (ignored by git, too large, unreadable, an empty folder, a repository, or its index):"
    )
    yield from _name_files(lost, effect.lost, effect.unnamed)
    unclear = translate("not restored, they changed while a command ran in the background:")
    yield from _name_files(unclear, effect.unclear)
    if effect.unclear:
        yield translate("{command} restores these too", command=force_command)
    yield from _count_commands(effect)


def _count_commands(effect: FileRewind) -> Iterator[str]:
    if effect.commands:
        if effect.commands == 1:
            yield translate("1 command is not recorded; what it changed stays")
        else:
            yield translate("{count} commands are not recorded; what they changed stays", count=effect.commands)
        yield from (f"  {as_printable(reason, lines=False)}" for reason in effect.reasons)
    if effect.ran:
        yield translate("commands ran: what they changed outside of the working folders is not known")


def _name_files(title: str, paths: Iterable[str], more: int = 0) -> Iterator[str]:
    names = [as_printable(path, lines=False) for path in paths]
    more += max(len(names) - _MAX_NAMES, 0)
    if names:
        rest = translate(" and {count} more", count=more) if more else ""
        yield f"{title} {', '.join(names[:_MAX_NAMES])}{rest}"


def _text_of(data: bytes | None) -> str | None:
    if data is None:
        return ""
    decoded = decode_text(data) if len(data) <= _MAX_DIFF_BYTES else None
    return decoded.text if decoded is not None else None
