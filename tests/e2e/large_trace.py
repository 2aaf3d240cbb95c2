"""A trace as the API returns it, as large as wanted."""

from typing import Any


def make_trace(spans: int) -> dict[str, Any]:
    """Return a trace with many steps, each with a model call and tools, one of which fails."""
    rows: list[dict[str, Any]] = []

    def add(parent: str, kind: str, name: str, start: float, end: float, **more: Any) -> str:
        id = f"s{len(rows)}"
        rows.append(
            {
                "id": id,
                "parent": parent,
                "kind": kind,
                "name": name,
                "path": [],
                "start_ms": start,
                "end_ms": end,
                "status": "ok",
                "cursor": f"1.{len(rows) + 1}",
                "end_cursor": f"1.{len(rows) + 2}",
                "detail": {},
                **more,
            }
        )
        return id

    turn, at = add("", "turn", "guide", 0, spans * 10), 0
    while len(rows) < spans:
        step = add(turn, "step", f"step {at}", at * 40, at * 40 + 40)
        add(step, "model", "scripted", at * 40, at * 40 + 20)
        add(step, "tool", f"tool {at % 9}", at * 40 + 20, at * 40 + 30)
        failed = {"status": "error", "error": {"code": "error", "message": "lost"}} if at == 2000 else {}
        add(step, "tool", "weather", at * 40 + 30, at * 40 + 40, **failed)
        at += 1
    tokens = {"input": 1, "output": 1, "cached": 0, "reasoning": 0, "total": 2}
    return {
        "id": "trn",
        "session": "big",
        "agent": "guide",
        "status": "error",
        "started": "2026-11-16T18:00:00.000Z",
        "duration_ms": spans * 10,
        "tokens": tokens,
        "cost": 0.1,
        "ttft_ms": 300,
        "spans": rows,
    }
