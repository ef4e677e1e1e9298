"""The levels in force, as they were published."""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

_WHOLE: dict[str, int] = {}
"""Of a unit that is not divided by sets of kinds: shared, and never changed."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class UnitLevel:
    """The level of one unit (a queue with a level of its own), in billionths of the cell."""

    target: int
    due: int | None = None  # What it is due, where it cannot place all of that.
    lent: int = 0  # How much of its level or due it has only because others cannot place it.
    kinds: dict[str, int] = field(default_factory=dict)  # By set of kinds, where a leaf asks for several.

    def __init__(self, target: int, due: int | None = None, lent: int = 0, kinds: dict[str, int] = _WHOLE) -> None:
        self.target = target
        self.due = due
        self.lent = lent
        self.kinds = kinds


@dataclass(slots=True)
class UnitLevels:
    """The levels of all units that have one; `others`: those of which more is to be said than the target."""

    units: dict[str, UnitLevel] = field(default_factory=dict)
    others: dict[str, bool] = field(default_factory=dict)

    def put(self, unit: str, level: UnitLevel) -> None:
        """A level is in force from now on."""
        self.units[unit] = level
        if level.due is not None or level.lent or level.kinds:
            self.others[unit] = True
        else:
            self.others.pop(unit, None)

    def drop(self, unit: str) -> None:
        """A unit has no level any more."""
        self.units.pop(unit, None)
        self.others.pop(unit, None)

    def entitled(self, unit: str) -> int:
        """What a unit is due, whether or not it can place that; 0 where it has no level."""
        level = self.units.get(unit)
        if level is None:
            return 0
        return level.target if level.due is None else max(level.target, level.due)

    def dues(self) -> dict[str, int]:
        """What those units are due that cannot place all of it."""
        return {unit: due for unit in self.others if (due := self.units[unit].due) is not None}
