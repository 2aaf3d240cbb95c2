"""Callbacks of a runtime's options that watch its turns: token usage, and approvals that a program decides."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import VakaError
from vaka.core.types.event import Event
from vaka.core.types.monitor import UsageRecorded
from vaka.runtime.options import Options, PermissionRequest, PermissionRequestHandler, TokenStats

if TYPE_CHECKING:
    from vaka.runtime.drivers import SessionDrivers


class TurnObservers(NamedTuple):
    """The callbacks, each ``None`` when the options have none."""

    on_tokens: Callable[[TokenStats], None] | None = None
    on_permission_request: PermissionRequestHandler | None = None
    approver: str = "host"

    @classmethod
    def of(cls, options: Options) -> Self:
        """Return the callbacks of a runtime's options."""
        return cls(options.token_callback, options.permission_request_handler, options.approval_approver)

    @property
    def active(self) -> bool:
        """Whether any callback is set."""
        return self.on_tokens is not None or self.on_permission_request is not None

    def observe(self, drivers: "SessionDrivers", events: Sequence[Event]) -> None:
        """Call the callbacks for events that the log has just stored."""
        for event in events:
            body = event.data
            if isinstance(body, UsageRecorded) and self.on_tokens is not None:
                stats = TokenStats(
                    session_id=event.session, turn_id=event.turn, agent=body.agent, model=body.model,
                    usage=body.usage, timestamp=event.ts,
                )  # fmt: skip
                # Not called here: an error of the callback must not reach the write that stored the event.
                asyncio.get_running_loop().call_soon(self.on_tokens, stats)
            elif isinstance(body, ApprovalRequested) and self.on_permission_request is not None:
                drivers.spawn(self._decide(drivers, event, body, self.on_permission_request))

    async def _decide(
        self, drivers: "SessionDrivers", event: Event, request: ApprovalRequested, handler: PermissionRequestHandler
    ) -> None:
        asked = PermissionRequest(
            tool_name=request.call.name, tool_params=request.call.arguments, session_id=event.session,
            rule=request.rule, reason=request.reason, approval=request.approval,
        )  # fmt: skip
        answer: object = (await asyncio.gather(handler(asked), return_exceptions=True))[0]
        if answer == "ask":
            return
        with suppress(VakaError):  # it was decided or has expired in the meantime; the log has that decision
            if answer == "allow":
                await drivers.decide(request.approval, "approve", by=self.approver)
            else:  # with a message, so that the model reads it and the turn goes on
                fault = "" if answer == "deny" else f": its handler gave {answer!r}, expected allow, deny or ask"
                message = f"denied by {self.approver}{fault}"
                await drivers.decide(request.approval, "reject", by=self.approver, message=message)
