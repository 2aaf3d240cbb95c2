"""The board: edges on both sides, no cycles, and the status ``blocked`` derived from open tasks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vaka.core.types.errors import InvalidInput, NotFound
from vaka.tools.builtin.task_board import Board, Task, TaskChange, TaskStatus, parse_status


def make_board(*ids: str) -> Board:
    board = Board()
    for id in ids:
        board = board.create(Task(id=id, subject=id.upper()))
    return board


def update_task(board: Board, id: str, **change: Any) -> Board:
    return board.update(id, TaskChange(**change)).board


def statuses_of(board: Board) -> dict[str, TaskStatus]:
    return {id: task.status for id, task in board.tasks.items()}


def test_an_edge_appears_on_both_sides_and_blocks() -> None:
    changed = make_board("a", "b", "c").update("b", TaskChange(blocked_by=("a",), blocks=("c",)))
    board = changed.board
    assert (board.tasks["a"].blocks, board.tasks["c"].blocked_by) == (("b",), ("b",))
    assert statuses_of(board) == {"a": "pending", "b": "blocked", "c": "blocked"}
    assert (changed.unblocked, changed.affected) == ((), ("a", "c"))


def test_completing_the_last_blocker_unblocks_waiting_tasks() -> None:
    board = update_task(make_board("a", "b", "c"), "c", blocked_by=("a", "b"))
    board = update_task(board, "a", status="completed")
    assert board.tasks["c"].status == "blocked"
    changed = board.update("b", TaskChange(status="completed"))
    assert statuses_of(changed.board) == {"a": "completed", "b": "completed", "c": "pending"}
    assert (changed.unblocked, changed.affected) == (("c",), ("c",))


def test_reopening_a_blocker_blocks_open_tasks_but_not_completed_ones() -> None:
    board = update_task(make_board("a", "b", "c"), "a", blocks=("b", "c"))
    board = update_task(update_task(board, "a", status="completed"), "b", status="in_progress")
    board = update_task(board, "c", status="completed")
    again = board.update("a", TaskChange(status="pending"))
    assert statuses_of(again.board) == {"a": "pending", "b": "blocked", "c": "completed"}
    assert again.affected == ("b",)


@pytest.mark.parametrize("status", ["in_progress", "completed"])
def test_a_blocked_task_cannot_be_begun_or_completed(status: TaskStatus) -> None:
    board = update_task(make_board("a", "b"), "b", blocked_by=("a",))
    with pytest.raises(InvalidInput, match=f"task 'b' cannot be {status}: it waits for a"):
        board.update("b", TaskChange(status=status))
    assert update_task(board, "b", status="pending").tasks["b"].status == "blocked"
    assert update_task(board, "b", status=status, blocked_by=()).tasks["b"].status == status
    with pytest.raises(InvalidInput, match="a task is blocked by the tasks it waits for"):
        board.update("a", TaskChange(status="blocked"))


def test_removing_an_edge_or_a_task_unblocks_waiting_tasks() -> None:
    board = update_task(make_board("a", "b", "c"), "a", blocks=("b", "c"))
    freed = board.update("a", TaskChange(blocks=("c",)))
    assert (freed.unblocked, freed.board.tasks["b"].blocked_by) == (("b",), ())
    assert board.update("b", TaskChange(blocked_by=())).unblocked == ("b",)
    deleted = board.delete("a")
    assert (statuses_of(deleted.board), deleted.unblocked, deleted.task.id) == (
        {"b": "pending", "c": "pending"},
        ("b", "c"),
        "a",
    )


def test_cycles_and_unknown_tasks_are_errors_that_change_nothing() -> None:
    board = update_task(update_task(make_board("a", "b", "c"), "a", blocks=("b",)), "b", blocks=("c",))
    before = dict(board.tasks)
    for change, message in (
        (TaskChange(blocks=("a",)), "in a circle: c -> a -> b -> c"),
        (TaskChange(blocks=("c",)), "cannot wait for itself"),
        (TaskChange(status="pending", owner="me", add_blocks=("a",)), "in a circle"),
    ):
        with pytest.raises(InvalidInput, match=message):
            board.update("c", change)
    with pytest.raises(NotFound, match="there is no task 'x'"):
        board.update("c", TaskChange(owner="me", blocked_by=("a", "x")))
    with pytest.raises(NotFound):
        board.update("unknown", TaskChange())
    assert board.tasks == before


def test_edge_lists_replace_and_additions_add() -> None:
    board = update_task(make_board("a", "b", "c", "d"), "d", blocked_by=("a", "b"))
    assert update_task(board, "d", add_blocked_by=("c", "a")).tasks["d"].blocked_by == ("a", "b", "c")
    replaced = update_task(board, "d", blocked_by=("c",))
    assert (replaced.tasks["d"].blocked_by, replaced.tasks["a"].blocks) == (("c",), ())


def test_the_task_list_is_in_the_order_of_work() -> None:
    board = make_board("z", "a", "b", "c", "d")
    board = update_task(
        update_task(update_task(board, "d", blocks=("a",)), "a", blocks=("b",)), "c", status="in_progress", owner="zoe"
    )
    board = update_task(board, "z", status="completed")
    assert [(task.id, depth) for task, depth in board.ordered_rows()] == [
        ("c", 0),
        ("d", 0),
        ("a", 1),
        ("b", 2),
        ("z", 0),
    ]
    assert list(board.tasks) == ["z", "a", "b", "c", "d"]


def test_a_status_may_be_written_in_several_ways() -> None:
    words = {"done": "completed", "Complete": "completed", "in-progress": "in_progress", " IN PROGRESS ": "in_progress"}
    assert {word: parse_status(word) for word in words} == words
    with pytest.raises(InvalidInput, match="status 'paused' must be one of pending, in_progress"):
        parse_status("paused")


IDS = ("a", "b", "c", "d", "e")
CHANGES = st.tuples(
    st.sampled_from(IDS),
    st.one_of(
        st.none(),
        st.builds(
            TaskChange,
            status=st.sampled_from((None, "pending", "in_progress", "completed")),
            blocks=st.none() | st.lists(st.sampled_from(IDS), max_size=3, unique=True).map(tuple),
            blocked_by=st.none() | st.lists(st.sampled_from(IDS), max_size=3, unique=True).map(tuple),
            add_blocks=st.lists(st.sampled_from(IDS), max_size=2).map(tuple),
            add_blocked_by=st.lists(st.sampled_from(IDS), max_size=2).map(tuple),
        ),
    ),
)


@given(st.lists(CHANGES, max_size=25))
@settings(max_examples=150, deadline=None)
def test_the_invariants_hold_after_any_sequence_of_changes(changes: list[tuple[str, TaskChange | None]]) -> None:
    board = make_board(*IDS)
    for id, change in changes:
        before = dict(board.tasks)
        try:
            board = (board.delete(id) if change is None else board.update(id, change)).board
        except (InvalidInput, NotFound):
            assert board.tasks == before
        for task in board.tasks.values():
            assert all(task.id in board.tasks[other].blocked_by for other in task.blocks)
            assert all(task.id in board.tasks[other].blocks for other in task.blocked_by)
            waits = any(board.tasks[other].status != "completed" for other in task.blocked_by)
            assert task.status == "completed" or (task.status == "blocked") == waits
        rows = [task.id for task, _ in board.ordered_rows()]
        assert sorted(rows) == sorted(board.tasks)
        assert all(rows.index(other) < rows.index(id) for id in rows for other in board.tasks[id].blocked_by)
