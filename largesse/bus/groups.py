"""Who takes part in a group of a bus: the instances of a service, and which shards are dealt to each."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Member:
    """An instance. `name`: by which the bus knows it; `host`: from where it takes part; `shards`: that are its own."""

    name: str
    host: str
    shards: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """`is_settled`: all has been dealt out; otherwise members have come or gone just now."""

    members: tuple[Member, ...] = ()
    is_settled: bool = True


@runtime_checkable
class ToldGroups(Protocol):
    """A bus that says who takes part in its groups."""

    async def told(self, groups: Iterable[str]) -> dict[str, Group]:
        """Each of these groups; one that nobody takes part in is empty. Raises BusError."""
