"""What may be said of a what-if, in a module of its own: whoever only reads a log need not wait for a simulator."""

from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Said:
    """What the command line says, as it was written."""

    preset: str | None = None
    settings: list[str] = field(default_factory=list)
    queues: str | None = None
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    without_jobs: list[str] = field(default_factory=list)
    without_users: list[str] = field(default_factory=list)
    slower: str | None = None
    since: str | None = None
    until: str | None = None
    seeds: int | None = None
    log_out: str | None = None

    def first(self) -> str | None:
        """The first option that was given, by its name."""
        for each in fields(self):
            if getattr(self, each.name):
                return _NAMES.get(each.name, f"--{each.name}")
        return None


_NAMES = {
    "settings": "--set",
    "added": "--add-nodes",
    "removed": "--remove-node",
    "without_jobs": "--without-job",
    "without_users": "--without-user",
    "since": "--from",
    "until": "--to",
    "log_out": "--log",
}
