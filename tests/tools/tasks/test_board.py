"""The board: edges on both sides, no circles, and what is blocked follows from what is open."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vaka.core.types.errors import InvalidInput, NotFound
from vaka.tools.tasks.board import Board, Task, TaskChange, TaskStatus, parse_status


def make_board(*ids: str) -> Board:
    made = Board()
    for id in ids:
        made = made.create(Task(id=id, subject=id.upper()))
    return made


def update_task(made: Board, id: str, **change: Any) -> Board:
    return made.update(id, TaskChange(**change)).board


def statuses_of(made: Board) -> dict[str, TaskStatus]:
    return {id: task.status for id, task in made.tasks.items()}


def test_an_edge_is_known_on_both_sides_and_blocks() -> None:
    changed = make_board("a", "b", "c").update("b", TaskChange(blocked_by=("a",), blocks=("c",)))
    made = changed.board
    assert (made.tasks["a"].blocks, made.tasks["c"].blocked_by) == (("b",), ("b",))
    assert statuses_of(made) == {"a": "pending", "b": "blocked", "c": "blocked"}
    assert (changed.unblocked, changed.affected) == ((), ("a", "c"))


def test_completing_the_last_blocker_frees_what_waits() -> None:
    made = update_task(make_board("a", "b", "c"), "c", blocked_by=("a", "b"))
    made = update_task(made, "a", status="completed")
    assert made.tasks["c"].status == "blocked"
    changed = made.update("b", TaskChange(status="completed"))
    assert statuses_of(changed.board) == {"a": "completed", "b": "completed", "c": "pending"}
    assert (changed.unblocked, changed.affected) == (("c",), ("c",))


def test_reopening_a_blocker_blocks_again_but_never_what_is_completed() -> None:
    made = update_task(make_board("a", "b", "c"), "a", blocks=("b", "c"))
    made = update_task(update_task(made, "a", status="completed"), "b", status="in_progress")
    made = update_task(made, "c", status="completed")
    again = made.update("a", TaskChange(status="pending"))
    assert statuses_of(again.board) == {"a": "pending", "b": "blocked", "c": "completed"}
    assert again.affected == ("b",)


@pytest.mark.parametrize("status", ["in_progress", "completed"])
def test_what_is_blocked_cannot_be_begun_or_completed(status: TaskStatus) -> None:
    made = update_task(make_board("a", "b"), "b", blocked_by=("a",))
    with pytest.raises(InvalidInput, match=f"task 'b' cannot be {status}: it waits for a"):
        made.update("b", TaskChange(status=status))
    assert update_task(made, "b", status="pending").tasks["b"].status == "blocked"
    assert update_task(made, "b", status=status, blocked_by=()).tasks["b"].status == status
    with pytest.raises(InvalidInput, match="a task is blocked by the tasks it waits for"):
        made.update("a", TaskChange(status="blocked"))


def test_removing_an_edge_or_a_task_frees_what_waits() -> None:
    made = update_task(make_board("a", "b", "c"), "a", blocks=("b", "c"))
    freed = made.update("a", TaskChange(blocks=("c",)))
    assert (freed.unblocked, freed.board.tasks["b"].blocked_by) == (("b",), ())
    assert made.update("b", TaskChange(blocked_by=())).unblocked == ("b",)
    gone = made.delete("a")
    assert (statuses_of(gone.board), gone.unblocked, gone.task.id) == (
        {"b": "pending", "c": "pending"},
        ("b", "c"),
        "a",
    )


def test_circles_and_strangers_are_refused_and_nothing_is_changed() -> None:
    made = update_task(update_task(make_board("a", "b", "c"), "a", blocks=("b",)), "b", blocks=("c",))
    before = dict(made.tasks)
    for change, said in (
        (TaskChange(blocks=("a",)), "in a circle: c -> a -> b -> c"),
        (TaskChange(blocks=("c",)), "cannot wait for itself"),
        (TaskChange(status="pending", owner="me", add_blocks=("a",)), "in a circle"),
    ):
        with pytest.raises(InvalidInput, match=said):
            made.update("c", change)
    with pytest.raises(NotFound, match="there is no task 'x'"):
        made.update("c", TaskChange(owner="me", blocked_by=("a", "x")))
    with pytest.raises(NotFound):
        made.update("nobody", TaskChange())
    assert made.tasks == before


def test_lists_replace_and_additions_add() -> None:
    made = update_task(make_board("a", "b", "c", "d"), "d", blocked_by=("a", "b"))
    assert update_task(made, "d", add_blocked_by=("c", "a")).tasks["d"].blocked_by == ("a", "b", "c")
    replaced = update_task(made, "d", blocked_by=("c",))
    assert (replaced.tasks["d"].blocked_by, replaced.tasks["a"].blocks) == (("c",), ())


def test_the_list_is_in_the_order_of_work() -> None:
    made = make_board("z", "a", "b", "c", "d")
    made = update_task(
        update_task(update_task(made, "d", blocks=("a",)), "a", blocks=("b",)), "c", status="in_progress", owner="zoe"
    )
    made = update_task(made, "z", status="completed")
    assert [(row.task.id, row.depth) for row in made.ordered_rows()] == [
        ("c", 0),
        ("d", 0),
        ("a", 1),
        ("b", 2),
        ("z", 0),
    ]
    assert list(made.tasks) == ["z", "a", "b", "c", "d"]


def test_words_for_a_status() -> None:
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
def test_whatever_is_done_the_rules_hold(changes: list[tuple[str, TaskChange | None]]) -> None:
    made = make_board(*IDS)
    for id, change in changes:
        before = dict(made.tasks)
        try:
            made = (made.delete(id) if change is None else made.update(id, change)).board
        except (InvalidInput, NotFound):
            assert made.tasks == before
        for task in made.tasks.values():
            assert all(task.id in made.tasks[other].blocked_by for other in task.blocks)
            assert all(task.id in made.tasks[other].blocks for other in task.blocked_by)
            waits = any(made.tasks[other].status != "completed" for other in task.blocked_by)
            assert task.status == "completed" or (task.status == "blocked") == waits
        rows = [row.task.id for row in made.ordered_rows()]
        assert sorted(rows) == sorted(made.tasks)
        assert all(rows.index(other) < rows.index(id) for id in rows for other in made.tasks[id].blocked_by)
