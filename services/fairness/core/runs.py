"""Since when tasks run: how long the longest of them has."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Runs:
    """`since`: log time of a closing -> tasks that it granted and that still hold, in order of time. `oldest_ms`: since
    when the longest task had been running after the last closing; None: none did.
    """

    since: dict[int, int] = field(default_factory=dict)
    oldest_ms: int | None = None

    def begin(self, time: int, tasks: int) -> None:
        """A closing has granted tasks."""
        self.since[time] = self.since.get(time, 0) + tasks

    def end(self, time: int) -> None:
        """A task that was granted at that time holds nothing any more."""
        left = self.since[time] - 1
        if left:
            self.since[time] = left
        else:
            del self.since[time]

    def settle(self) -> None:
        """A round is closed."""
        self.oldest_ms = next(iter(self.since), None)
