"""The stages that take no part in placement until there is room for them that is not promised to a reservation."""


class BarredStages:
    """By job, its barred stages."""

    def __init__(self) -> None:
        self._of_job: dict[str, dict[str, bool]] = {}

    def bar(self, name: str, stages: dict[str, bool]) -> bool:
        """Bars these stages of a job, and no others of it, from now on. Whether that is a change."""
        if stages == self._of_job.get(name, {}):
            return False
        self._of_job[name] = stages
        if not stages:
            del self._of_job[name]
        return True

    def stages(self, name: str) -> dict[str, bool] | None:
        """The barred stages of a job; None: it has none. To be read only."""
        return self._of_job.get(name) if self._of_job else None

    def jobs(self) -> list[str]:
        """The jobs with barred stages."""
        return list(self._of_job)

    def forget(self, name: str) -> None:
        """A job is over."""
        self._of_job.pop(name, None)
