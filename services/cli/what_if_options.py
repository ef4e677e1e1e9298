"""What may be said of a what-if, in a module of its own: whoever only reads a log need not wait for a simulator."""

from dataclasses import dataclass, field, fields
from typing import Annotated

import typer

from services.cli.arguments import knobs_named, presets_named


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


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="set a policy knob; repeatable", metavar="KEY=VALUE", autocompletion=knobs_named),
]
Texts = list[str] | None
OtherPresets = Annotated[
    str | None,
    typer.Option("--preset", help="another policy, or several to try", metavar="A,B,...", autocompletion=presets_named),
]
OtherQueues = Annotated[
    str | None, typer.Option("--queues", help="another queue tree: a cluster file, or a config", metavar="FILE")
]
AddedNodes = Annotated[
    Texts, typer.Option("--add-nodes", help="a cluster file, or like 4:cpu=8,memory=32Gi; repeatable", metavar="NODES")
]
RemovedNodes = Annotated[Texts, typer.Option("--remove-node", help="without this node; repeatable", metavar="NAME")]
WithoutJobs = Annotated[Texts, typer.Option("--without-job", help="without this job; repeatable", metavar="ID")]
WithoutUsers = Annotated[
    Texts, typer.Option("--without-user", help="without this user's jobs; repeatable", metavar="NAME")
]
Slower = Annotated[
    str | None, typer.Option("--slower", help="tasks run longer by this factor, like 1.2", metavar="FACTOR")
]
From = Annotated[
    str | None,
    typer.Option("--from", help="what was decided up to here stays  [default: the start]", metavar="SEQ|TIME"),
]
To = Annotated[str | None, typer.Option("--to", help="nothing behind this comes from outside", metavar="SEQ|TIME")]
Seeds = Annotated[
    int | None, typer.Option("--seeds", help="decide it with seeds 0 to N - 1, side by side", metavar="N")
]
