"""Which units are below their levels, and what they are taken to be able to place (placeable.py)."""

from dataclasses import dataclass, field

from schemas import Vector


@dataclass(slots=True)
class Short:
    """A unit below its level by a task or more: what leftover served it by after the last closing, and whether at one
    since it fell short a worse claim than that had been served."""

    claim: int
    passed: bool = False


@dataclass(slots=True)
class Cap:
    """What a unit is taken to be able to place, in base units by kind. `less`: it held less after the last closing."""

    amounts: Vector
    less: bool = False


@dataclass(slots=True)
class Caps:
    """Of units (queues with a level of their own): `short`, those below their level; `by_unit`, those whose levels
    follow what they can place. `touched`: queues whose sum or level has changed since the last closing.
    """

    short: dict[str, Short] = field(default_factory=dict)
    by_unit: dict[str, Cap] = field(default_factory=dict)
    touched: dict[str, bool] = field(default_factory=dict)

    def forget(self) -> None:
        """Another tree is in force: which units can place what they are due has to be observed again."""
        self.short, self.by_unit, self.touched = {}, {}, {}

    def touch(self, queue: str) -> None:
        """The sum or the level of a queue has changed."""
        self.touched[queue] = True

    def take_touched(self) -> dict[str, bool]:
        """The queues for which that is so since the last call."""
        touched, self.touched = self.touched, {}
        return touched

    def set_short(self, unit: str, claim: int) -> None:
        """A unit is below its level, and is served by this."""
        short = self.short.get(unit)
        if short is None:
            self.short[unit] = Short(claim)
        else:
            short.claim = claim

    def lift(self, units: list[str]) -> None:
        """Units are no longer taken to be able to place less than they are due."""
        for unit in units:
            del self.by_unit[unit]
