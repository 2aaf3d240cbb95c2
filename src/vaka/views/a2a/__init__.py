"""The events of an agent in the Agent2Agent protocol (A2A) 1.0, and what its clients send.

A session is a context, and a turn is a task. ::

    encoder = A2aEncoder()
    async for event in session.stream(read_message(params["message"]).content):
        for response in encoder.encode(event):
            send({"jsonrpc": "2.0", "id": id, "result": response})
"""

from vaka.views.a2a.card import agent_card
from vaka.views.a2a.content import A2aInput, parts_of, read_message
from vaka.views.a2a.encode import A2aEncoder, task_of
from vaka.views.a2a.replies import read_reply

__all__ = ["A2aEncoder", "A2aInput", "agent_card", "parts_of", "read_message", "read_reply", "task_of"]
