"""The events of an agent in the Agent Client Protocol (ACP), version 1, and what its clients send.

::

    encoder = AcpEncoder()
    async for event in session.stream(read_prompt(params["prompt"])):
        for update in encoder.encode(event):
            notify("session/update", update)
        if request := request_of(event):
            answers.append(read_answer(event, await ask(request.method, request.params)))
    respond({"id": id, **encoder.outcome})
"""

from vaka.views.acp.content import content_block_of, read_prompt
from vaka.views.acp.encode import AcpEncoder
from vaka.views.acp.requests import AcpRequest, read_answer, request_of
from vaka.views.acp.tool_calls import ToolKind, describe_call

__all__ = [
    "AcpEncoder",
    "AcpRequest",
    "ToolKind",
    "content_block_of",
    "describe_call",
    "read_answer",
    "read_prompt",
    "request_of",
]
