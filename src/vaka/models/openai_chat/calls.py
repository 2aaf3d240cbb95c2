"""Assemble tool calls from the fragments of a Chat Completions stream. Pure."""

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, TextChunk
from vaka.core.types.errors import StreamCut


class CallFragment(msgspec.Struct, gc=False):
    """A piece of a call as it stands in a delta."""

    index: int | None = None
    id: str | None = None
    function: dict[str, msgspec.Raw] | None = None


class _PartialCall:
    """A call that is still growing."""

    def __init__(self, number: int, provider_id: str) -> None:
        self.number, self.provider_id = number, provider_id  # given: the vendor's own id
        self.name = ""
        self.pieces: list[str] = []
        self.emitted_pieces = 0  # pieces that were handed on
        self.is_announced = False

    def is_complete(self) -> bool:
        """Whether the arguments are a whole object, so that more of them would be another call's."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self.pieces))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True


class CallAssembler:
    """The calls of one answer. The arguments of the tool ``answer`` are words, not a call."""

    def __init__(self, answer: str = "") -> None:
        self.call_count = 0
        """Calls that were begun, the answer not among them."""
        self.has_answer = False
        self._answer_tool = answer
        self._calls: list[_PartialCall] = []
        self._latest_by_index: dict[int, _PartialCall] = {}  # the last call at each index
        self._used_ids: set[str] = set()

    def add(self, fragment: CallFragment, position: int, chunks: list[Chunk]) -> None:
        """Take a fragment that stood at ``position`` of its delta. Raises ``StreamCut`` for what says nothing."""
        name, arguments = _read_fragment(fragment.function)
        call = self._find_or_start(fragment, position, name, arguments)
        call.name = call.name or name
        if arguments:
            call.pieces.append(arguments)
        if call.name:  # until then nobody could tell whose arguments they are
            self._emit(call, chunks)

    def check_complete(self, reason: str) -> None:
        """Say that the answer is whole. Raises ``StreamCut`` when it speaks of a call that did not come."""
        if any(not call.name for call in self._calls):
            raise StreamCut("the answer is garbled: a tool call has no name")
        if reason == "calls" and not self._calls:
            raise StreamCut("the answer is garbled: it ends in tool calls, and there are none")

    def _find_or_start(self, fragment: CallFragment, position: int, name: str, arguments: str) -> _PartialCall:
        place, given = fragment.index, fragment.id or ""
        call = self._latest_by_index.get(position if place is None else place)
        if place is None and given:
            call = next((known for known in self._calls if known.provider_id == given), call)
        if call is None or _starts_new_call(call, given, name, arguments):
            call = _PartialCall(len(self._calls), given)
            self._latest_by_index[position if place is None else place] = call
            self._calls.append(call)
        return call

    def _emit(self, call: _PartialCall, chunks: list[Chunk]) -> None:
        text = "".join(call.pieces[call.emitted_pieces :])
        call.emitted_pieces = len(call.pieces)
        begun, call.is_announced = call.is_announced, True
        if call.name == self._answer_tool:
            self._emit_answer(call, text, chunks)
        elif not begun:
            self.call_count += 1
            chunks.append(CallChunk(call.number, call.name, text, self._unique_id(call)))
        elif text:
            chunks.append(CallChunk(call.number, "", text))

    def _emit_answer(self, call: _PartialCall, text: str, chunks: list[Chunk]) -> None:
        first = next(known for known in self._calls if known.name == self._answer_tool)
        self.has_answer = True
        if text and call is first:  # an answer given twice is given once
            chunks.append(TextChunk(text))

    def _unique_id(self, call: _PartialCall) -> str:
        """Return the vendor's id, or one made here where there is none or it has one already."""
        id = call.provider_id
        number = call.number
        while not id or id in self._used_ids:
            id, number = f"call_{number}", number + 1
        self._used_ids.add(id)
        return id


def _starts_new_call(call: _PartialCall, provider_id: str, name: str, arguments: str) -> bool:
    """Whether a fragment begins a call of its own, though it stands where ``call`` stood."""
    if provider_id and call.provider_id:
        return provider_id != call.provider_id
    if not name or not call.name:
        return False
    return name != call.name or (bool(arguments) and call.is_complete())


def _read_fragment(function: dict[str, msgspec.Raw] | None) -> tuple[str, str]:
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
