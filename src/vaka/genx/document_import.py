"""State documents of GenX as entries of a log."""

from collections.abc import Callable

import msgspec

from vaka.core.types.control import StateChanged
from vaka.core.types.ids import JSON, EventScope
from vaka.core.types.imported_turns import LogEntry
from vaka.genx.imported_messages import GenxTurns, ImportedChild
from vaka.genx.match.router_state import ROUTER_KEY, Intent, RouterState
from vaka.genx.prompt_layers import SUMMARY_KEY
from vaka.genx.quit_tools import FINISHED_KEY
from vaka.genx.state_document import StateDocument, merge_messages


def import_entries(document: StateDocument, new_id: Callable[[str], str]) -> list[LogEntry]:
    """Return the entries of a new log that has the conversation and the values of a document.

    Raises ``InvalidInput`` for results without a call.
    """
    failed = [result.id for result in document.tool_results if result.is_error]
    turns = GenxTurns(document.agent_def, new_id, failed=failed)
    for message in merge_messages(document.messages):
        turns.add(message)
    turns.end_turn()
    entries = [*turns.entries, *_value_entries(document, "")]
    if document.state_type == "match" and document.matches:
        entries += _router_entries(document, turns.calls, new_id)
    return entries


def _router_entries(document: StateDocument, calls: int, new_id: Callable[[str], str]) -> list[LogEntry]:
    """Return the entries of the active agent of a router, and the state of the router."""
    intents = tuple(Intent(match.rule_name, match.agent_name, match.args) for match in document.matches)
    index, calling = min(document.current_index, len(intents) - 1), document.calling_state
    entries: list[LogEntry] = []
    child = ""
    if calling is not None and calling.messages:
        runs = ImportedChild(document.agent_def, calling.agent_def, new_id, calls)
        entries = [*runs.import_messages(merge_messages(calling.messages))]
        child = runs.children[-1]
        entries += _value_entries(calling, f"$agent/{runs.children[0]}/:")
    state = RouterState(intents, index, child)
    change = StateChanged(key=ROUTER_KEY, value=msgspec.to_builtins(state))
    return [*entries, (0, EventScope(), change)]


def _value_entries(document: StateDocument, prefix: str) -> list[LogEntry]:
    values: dict[str, JSON] = dict(document.properties)
    if document.summary:
        values[SUMMARY_KEY] = document.summary
    if document.finished:
        values[FINISHED_KEY] = {"turn": "", "path": "", "tool": ""}
    return [(0, EventScope(), StateChanged(key=prefix + key, value=value)) for key, value in values.items()]
