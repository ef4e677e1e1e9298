"""When tasks stop waiting for the nodes that they prefer."""


class Delays:
    """By job, when the first of its tasks that wait for nodes they prefer may go anywhere (`over_ms`, to be read)."""

    def __init__(self) -> None:
        self.over_ms: dict[str, int | None] = {}  # None: no delay ends by itself.

    def end_at(self, name: str, at_ms: int | None) -> None:
        """From this time on tasks of a job wait no longer, and the core says again what the job waits for; None: no
        delay ends by itself.
        """
        self.over_ms[name] = at_ms

    def take_ended(self, now_ms: int) -> list[str]:
        """The jobs of which a delay is over by now. They are forgotten."""
        names = [name for name, at_ms in self.over_ms.items() if at_ms is not None and at_ms <= now_ms]
        for name in names:
            del self.over_ms[name]
        return names

    def forget(self, name: str) -> None:
        """No task of a job waits for preferred nodes any more."""
        self.over_ms.pop(name, None)
