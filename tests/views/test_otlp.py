"""Traces in the JSON of OTLP."""

from tests.views.test_trace import ANSWER, BEGIN, STEP, fold, the_trace
from vaka.core.types import monitor
from vaka.core.types.message import Usage
from vaka.views.otlp import to_otlp


def test_model_spans_have_the_tokens_and_running_spans_end_with_the_last_event() -> None:
    usage = Usage(input=100, output=20, cache_read=80, cost=0.5)
    trace = the_trace(
        fold((0, BEGIN), (5, STEP), (400, ANSWER), (400, monitor.UsageRecorded(model="m", usage=usage, first_ms=120)))
    ).describe()
    (exported,) = to_otlp(trace)["resourceSpans"]
    turn, _, model = exported["scopeSpans"][0]["spans"]
    assert {each["key"]: each["value"] for each in model["attributes"]} == {
        "gen_ai.conversation.id": {"stringValue": "s"},
        "vaka.span.kind": {"stringValue": "model"},
        "gen_ai.operation.name": {"stringValue": "chat"},
        "gen_ai.request.model": {"stringValue": "m-1"},
        "gen_ai.usage.input_tokens": {"intValue": "100"},
        "gen_ai.usage.output_tokens": {"intValue": "20"},
        "gen_ai.usage.cache_read.input_tokens": {"intValue": "80"},
        "vaka.cost.usd": {"doubleValue": 0.5},
        "gen_ai.response.time_to_first_chunk": {"doubleValue": 0.12},
    }
    assert (model["kind"], model["status"]) == (3, {"code": 1})
    assert "status" not in turn
    assert "parentSpanId" not in turn
    start = int(turn["startTimeUnixNano"])
    assert (int(turn["endTimeUnixNano"]) - start, int(model["startTimeUnixNano"]) - start) == (400_000_000, 5_000_000)
    assert not [each for each in turn["attributes"] if "usage" in each["key"]]
