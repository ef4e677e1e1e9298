"""Where an agent learns from what its node has to do: from the log itself, or from who reads the log for it."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from largesse.lifecycle.handed import Handed
from largesse.lifecycle.node_work import Action, NodeWork, Start
from schemas import NodeReported


class Feed(Protocol):
    """Reads for one agent; whatever brings it that fails for a while is waited for."""

    @property
    def work(self) -> NodeWork:
        """What the log has said so far of this node."""

    @property
    def node_lease_ms(self) -> int:
        """How long the cell believes a silent node."""

    @property
    def time(self) -> int:
        """Log time of the last record, in ms."""

    @property
    def in_round(self) -> bool:
        """Whether a round is open, which nothing that is said now becomes a part of."""

    def take(self, *, may_start: bool = True) -> list[Action]:
        """What is to be done that was not yet. Starts are kept for a later call where nothing may start yet."""

    def handed_to(self, start: Start) -> list[Handed]:
        """What earlier stages have left for an attempt."""

    def address_of(self, node: str) -> str | None:
        """Where the agent of another node can be asked; "" where it does not say, None where the cell does not know."""

    def live_runs(self) -> Iterable[tuple[str, int]]:
        """Jobs that have not ended, with the seq of their admission: all that may have left something here."""

    def has(self, said: NodeReported) -> bool:
        """Whether the log has just this of the node, so that a sign of life says as much."""

    def renew(self, epoch: str) -> None:
        """The agent is about to register its node under another epoch."""

    async def catch_up(self) -> None:
        """Learns what there is to know by now, without acting on it: most of it is over. Raises PositionGap,
        Undecodable.
        """

    async def read(self) -> None:
        """Learns what comes next, and waits for it for a while. Raises as `catch_up`."""

    def fell_behind(self) -> bool:
        """Whether this agent was paused, or cut off, for so long that its node may be lost, and what it has read to
        start may run elsewhere.
        """

    async def kept_up(self) -> None:
        """Returns once it has not fallen behind."""

    async def read_on(self, act: Callable[[list[Action]], Awaitable[None]]) -> None:
        """Learns what there is to know by now. What is over ends meanwhile, by `act`, and nothing starts. Raises as
        `catch_up`.
        """

    async def knows_of_the_loss(self) -> bool:
        """Whether all is known that the log held once this node was found lost: an agent that was paused for long
        would else take its node back from the one that has registered it since.
        """

    def forget_loss(self) -> None:
        """The node is about to be registered again: a later loss is another one."""

    async def save(self) -> None:
        """Keeps what was learnt for the next agent, when enough has come since the last time."""
