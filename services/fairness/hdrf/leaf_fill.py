"""A leaf during a progressive filling (node_fill.py)."""


class LeafFill:
    """One leaf during a filling. At a level of `ONE` its usage is `speed` and its dominant share is `rise`."""

    __slots__ = (
        "each", "held", "level_max", "level_min", "mask", "name", "rise", "satisfied", "share_max", "speed", "started",
    )  # fmt: skip

    def __init__(self, name: str, mask: int, share_max: int) -> None:
        self.name = name
        self.mask = mask  # Kinds it asks for, a bit each. 0: it asks for nothing, or no more than it holds.
        self.share_max = share_max  # Its share when it has all it asks for.
        self.level_max: int | None = None  # And its level. None: it never has.
        self.satisfied = not mask
        self.started = False  # The water level has reached it.
        self.held: list[int] = []  # Its usage at first, and its level then.
        self.level_min = self.each = self.rise = 0  # `each`: what a task adds to its level.
        self.speed: list[int] = []
