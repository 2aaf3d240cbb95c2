"""Tool calls that come in fragments, put together whichever way a vendor cuts them. Pure.

OpenAI gives every fragment the index of its call, and the first of them the id and the name. Others leave out the
index, give several calls one index, write a call in one piece, with arguments that are an object, without an id, or
with the name on every piece.
"""

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, TextChunk
from vaka.core.types.errors import StreamCut


class Fragment(msgspec.Struct, gc=False):
    """A piece of a call as it stands in a delta."""

    index: int | None = None
    id: str | None = None
    function: dict[str, msgspec.Raw] | None = None


class _Call:
    """A call that is still growing."""

    def __init__(self, number: int, given: str) -> None:
        self.number, self.given = number, given  # given: the vendor's own id
        self.name = ""
        self.pieces: list[str] = []
        self.shown = 0  # pieces that were handed on
        self.begun = False

    def finished(self) -> bool:
        """Whether the arguments are a whole object, so that more of them would be another call's."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self.pieces))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True


class Calls:
    """The calls of one answer. The arguments of the tool ``answer`` are words, not a call."""

    def __init__(self, answer: str = "") -> None:
        self.made = 0
        """Calls that were begun, the answer not among them."""
        self.answered = False
        self._answer = answer
        self._all: list[_Call] = []
        self._open: dict[int, _Call] = {}  # the last call at each index
        self._ids: set[str] = set()

    def take(self, fragment: Fragment, position: int, chunks: list[Chunk]) -> None:
        """Take a fragment that stood at ``position`` of its delta. Raises ``StreamCut`` for what says nothing."""
        name, arguments = _read(fragment.function)
        call = self._call(fragment, position, name, arguments)
        call.name = call.name or name
        if arguments:
            call.pieces.append(arguments)
        if call.name:  # until then nobody could tell whose arguments they are
            self._show(call, chunks)

    def end(self, reason: str) -> None:
        """Say that the answer is whole. Raises ``StreamCut`` when it speaks of a call that did not come."""
        if any(not call.name for call in self._all):
            raise StreamCut("the answer is garbled: a tool call has no name")
        if reason == "calls" and not self._all:
            raise StreamCut("the answer is garbled: it ends in tool calls, and there are none")

    def _call(self, fragment: Fragment, position: int, name: str, arguments: str) -> _Call:
        place, given = fragment.index, fragment.id or ""
        call = self._open.get(position if place is None else place)
        if place is None and given:
            call = next((known for known in self._all if known.given == given), call)
        if call is None or _another(call, given, name, arguments):
            call = _Call(len(self._all), given)
            self._open[position if place is None else place] = call
            self._all.append(call)
        return call

    def _show(self, call: _Call, chunks: list[Chunk]) -> None:
        text = "".join(call.pieces[call.shown :])
        call.shown = len(call.pieces)
        begun, call.begun = call.begun, True
        if call.name == self._answer:
            self._say(call, text, chunks)
        elif not begun:
            self.made += 1
            chunks.append(CallChunk(call.number, call.name, text, self._id(call)))
        elif text:
            chunks.append(CallChunk(call.number, "", text))

    def _say(self, call: _Call, text: str, chunks: list[Chunk]) -> None:
        first = next(known for known in self._all if known.name == self._answer)
        self.answered = True
        if text and call is first:  # an answer given twice is given once
            chunks.append(TextChunk(text))

    def _id(self, call: _Call) -> str:
        """Return the vendor's id, or one made here where there is none or it has one already."""
        id = call.given
        number = call.number
        while not id or id in self._ids:
            id, number = f"call_{number}", number + 1
        self._ids.add(id)
        return id


def _another(call: _Call, given: str, name: str, arguments: str) -> bool:
    """Whether a fragment begins a call of its own, though it stands where ``call`` stood."""
    if given and call.given:
        return given != call.given
    if not name or not call.name:
        return False
    return name != call.name or (bool(arguments) and call.finished())


def _read(function: dict[str, msgspec.Raw] | None) -> tuple[str, str]:
    """Return the name and the arguments of a fragment, as they were written."""
    if function is None or not ("arguments" in function or function.keys() == {"name"}):
        raise StreamCut("the answer is garbled: a piece of a tool call has neither a name nor arguments")
    try:
        name = msgspec.json.decode(function["name"], type=str | None) if "name" in function else None
        written = bytes(function["arguments"]) if "arguments" in function else b"null"
        if written.startswith(b'"'):
            return name or "", msgspec.json.decode(written, type=str)
        return name or "", "" if written == b"null" else written.decode()  # an object, where a text should be
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StreamCut(f"the answer is garbled: a piece of a tool call cannot be read: {error}") from error
