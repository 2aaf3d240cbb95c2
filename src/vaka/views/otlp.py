"""Traces in the JSON of the OpenTelemetry protocol (OTLP), with the attributes of its conventions for generative AI.

Token usage is on the spans of model calls alone, and ``gen_ai.conversation.id`` on every span, so that readers that sum
either see each number once.
"""

import hashlib
from typing import Any

from vaka.views.trace import SpanDocument, TraceDocument, start_of

_OPERATIONS = {"turn": "invoke_agent", "subagent": "invoke_agent", "model": "chat", "tool": "execute_tool"}
_CLIENT, _INTERNAL = 3, 1
_OK, _ERROR = 1, 2


def to_otlp(trace: TraceDocument) -> dict[str, Any]:
    """Return a trace as an export request; spans that still run end with the last event that was read."""
    spans = [_span(trace, span) for span in trace.spans]
    resource = {"attributes": [_attribute("service.name", "vaka")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "vaka"}, "spans": spans}]}]}


def _span(trace: TraceDocument, span: SpanDocument) -> dict[str, Any]:
    began, end_ms = start_of(trace), trace.duration_ms if span.end_ms is None else span.end_ms
    operation = _OPERATIONS.get(span.kind)
    described: dict[str, Any] = {
        "traceId": _digest(f"{trace.session}/{trace.id}", 32),
        "spanId": _span_id(trace, span.id),
        "name": f"{operation} {span.name}" if operation else f"{span.kind} {span.name}",
        "kind": _CLIENT if span.kind == "model" else _INTERNAL,
        "startTimeUnixNano": str((began + span.start_ms) * 1_000_000),
        "endTimeUnixNano": str((began + end_ms) * 1_000_000),
        "attributes": [_attribute(name, value) for name, value in _attributes_of(trace, span).items()],
    }
    if span.parent:
        described["parentSpanId"] = _span_id(trace, span.parent)
    if span.error:
        described["status"] = {"code": _ERROR, "message": span.error.message}
    elif span.status == "ok":
        described["status"] = {"code": _OK}
    return described


def _attributes_of(trace: TraceDocument, span: SpanDocument) -> dict[str, str | int | float]:
    attributes: dict[str, str | int | float] = {"gen_ai.conversation.id": trace.session, "vaka.span.kind": span.kind}
    if operation := _OPERATIONS.get(span.kind):
        attributes["gen_ai.operation.name"] = operation
    match span.kind:
        case "turn" | "subagent":
            attributes["gen_ai.agent.name"] = span.name
        case "tool":
            attributes |= {"gen_ai.tool.name": span.name, "gen_ai.tool.call.id": span.id}
        case "model":
            attributes["gen_ai.request.model"] = span.name
        case _:
            pass
    if span.tokens:
        attributes |= {"gen_ai.usage.input_tokens": span.tokens.input, "gen_ai.usage.output_tokens": span.tokens.output}
        attributes["gen_ai.usage.cache_read.input_tokens"] = span.tokens.cached
    if span.cost:
        attributes["vaka.cost.usd"] = span.cost
    if span.ttft_ms:
        attributes["gen_ai.response.time_to_first_chunk"] = span.ttft_ms / 1000
    if span.error:
        attributes["error.type"] = span.error.code
    return attributes


def _attribute(name: str, value: str | float) -> dict[str, Any]:
    if isinstance(value, str):
        return {"key": name, "value": {"stringValue": value}}
    if isinstance(value, int):
        return {"key": name, "value": {"intValue": str(value)}}
    return {"key": name, "value": {"doubleValue": value}}


def _span_id(trace: TraceDocument, span: str) -> str:
    return _digest(f"{trace.session}/{trace.id}/{span}", 16)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
