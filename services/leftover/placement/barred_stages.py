"""The stages that take no part in placement until there is room for them that is not promised to a reservation."""


class BarredStages:
    """By job, its barred stages (`by_job`, to be read)."""

    def __init__(self) -> None:
        self.by_job: dict[str, dict[str, bool]] = {}

    def bar(self, name: str, stages: dict[str, bool]) -> bool:
        """Bars these stages of a job, and no others of it, from now on. Whether that is a change."""
        if stages == self.by_job.get(name, {}):
            return False
        self.by_job[name] = stages
        if not stages:
            del self.by_job[name]
        return True

    def stages(self, name: str) -> dict[str, bool] | None:
        """The barred stages of a job; None: it has none. To be read only."""
        return self.by_job.get(name) if self.by_job else None

    def forget(self, name: str) -> None:
        """A job is over."""
        self.by_job.pop(name, None)
