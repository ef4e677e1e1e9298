"""What a service started by `python -m` says of itself: `--help`, and a refusal of every argument that it has not got.

Services are set up by the environment alone, so an argument on the command line is a mistake, and is reported before
anything is opened or created.
"""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from largesse.settings import PREFIX, Settings

WIDTH = 100
HELP = ("-h", "--help")

DESCRIPTIONS = {
    "bus": "kafka://HOST:PORT[,HOST:PORT], kafkas:// over TLS, file:DIRECTORY or memory:",
    "kafka_user": "as whom this process comes to Kafka (kafkas://); without it as nobody",
    "kafka_password_file": "file with that user's password, read again for each connection",
    "kafka_ca_file": "file with the certificates that are trusted in place of the system's (kafkas://)",
    "cell": "name of the cell",
    "partition": "partition of this cell in every topic",
    "cells": "all: the cells that `largesse cell list` shows, so far as they are dealt to this instance; an agent or a"
    " bridge finds the partition of its own there",
    "cell_copies": "with `LARGESSE_CELLS=all`, how many instances of a service run each cell: beyond one, standbys",
    "shard": "altruism shard that this instance serves; without it, the bus assigns shards",
    "snapshot_rounds": "least number of rounds between two snapshots",
    "checkpoints": "how many past states are kept at most, so that any moment can be shown soon; 0: none",
    "inputs_most": "most messages that are taken from an input topic at a time",
    "gap_wait_ms": "how long to wait for a decision that a closed round names before it counts as missing",
    "wait_ms": "longest wait before looking for new records",
    "standby_wait_ms": "how long a standby waits for the active instance's answer before it gives its own",
    "metrics_host": "address on which /livez, /readyz and /metrics are served",
    "metrics_port": "port for them; 0: not served",
    "http_hosts": "further host names that HTTP requests may use, separated by commas",
    "peer_cert_file": "file with this process's certificate among services and agents: metrics_port then serves HTTPS",
    "peer_key_file": "file with the key of that certificate",
    "peer_ca_file": "file with the authorities of the others' certificates; nobody without one is answered or believed",
    "peer_name": "for which name the others' certificates have to be, in place of the host's at which they are asked",
    "log_format": "console or json",
    "archive": "store of the cell's archive and checkpoints, from which services go on where the log was trimmed",
    "bus_cache_mib": "of a bus in a folder, how much of what was written last, for a minute at most, stays in memory",
}
"""What each setting is, in a line. `Settings` says more."""

_ONLY_OF = {"shard": ("altruism",), "inputs_most": ("admission",), "checkpoints": ("gateway",)}
_NOT_OF = {
    "cell": ("gateway",),
    "cell_copies": ("gateway", "agent", "bridge"),
    "snapshot_rounds": ("agent",),
    "gap_wait_ms": ("admission", "gateway", "agent", "bridge"),
    "wait_ms": ("agent", "bridge"),
    "standby_wait_ms": ("admission", "gateway", "agent", "bridge"),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """A service. `variables`: those that only it reads, by name without `LARGESSE_`: default and what it is. `filters`:
    words after which it answers one question on stdin instead, and what that is.
    """

    name: str
    about: str
    variables: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """For people."""
        command = f"python -m services.{self.name}"
        lines = [f"usage: {command} [--help]"]
        lines += [f"       {command} {word} < problem.json" for word in self.filters]
        lines += ["", *textwrap.wrap(self.about, WIDTH), ""]
        if self.filters:
            lines += [*_listed(list(self.filters.items())), ""]
        return "\n".join([*lines, "Settings, from the environment:", *_listed(self._rows())]) + "\n"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [(name, default, description) for name, (default, description) in self.variables.items()]
        for knob in fields(Settings):
            if self.name in _ONLY_OF.get(knob.name, (self.name,)) and self.name not in _NOT_OF.get(knob.name, ()):
                default = "" if knob.default is None else str(knob.default)
                rows.append((knob.name.upper(), default, DESCRIPTIONS[knob.name]))
        return [(PREFIX + name, description + _default(default)) for name, default, description in rows]


def answered(usage: Usage, arguments: Sequence[str]) -> int | None:
    """Exit code where the arguments are a question or a slip, which is then printed; None: there are none.

    After the word of a filter `--help` is about that filter; the word alone is for the caller.
    """
    word, *rest = arguments or [""]
    asked = usage.filters.get(word)
    if not arguments or (asked is not None and not rest):
        return None
    command = f"python -m services.{usage.name}"
    text = usage.text()
    if asked is not None:
        command, word = f"{command} {word}", rest[0]
        text = f"usage: {command} [--help] < problem.json\n\n" + "\n".join(textwrap.wrap(asked, WIDTH)) + "\n"
    if word in HELP:
        sys.stdout.write(text)
        return 0
    sys.stderr.write(f"{command}: unknown argument {word!r}\n\n{text}")
    return 2


def _default(value: str) -> str:
    """Stays in one piece: no line ends at a no-break space."""
    return f"  [default: {value}]".replace(" ", "\xa0").replace("\xa0", " ", 1) if value else ""


def _listed(rows: Sequence[tuple[str, str]]) -> list[str]:
    gap = max(len(name) for name, _ in rows) + 2
    lines = []
    for name, description in rows:
        wrapped = textwrap.wrap(description, WIDTH - gap - 2, break_on_hyphens=False)
        first, *more = (line.replace("\xa0", " ").rstrip() for line in wrapped)
        lines += [f"  {name:{gap}}{first}", *(" " * (gap + 2) + line.lstrip() for line in more)]
    return lines
