"""Plumbing knobs from the environment, each `LARGESSE_<NAME>`: addresses, waits, batch sizes.

None of them can change an answer: what can is a config record (house rule 1).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from largesse.bus import open as buses
from largesse.bus.kafka.cluster import Access, AccessWrong
from largesse.bus.port import Bus
from largesse.hosts import HOSTS_VARIABLE, Hosts, HostsWrong, hosts_of

PREFIX = "LARGESSE_"
ALL_CELLS = "all"


class SettingWrong(ValueError):
    """A variable of the environment that cannot be used: names it, and says what would be right."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one process is wired.

    `bus`: `kafka[s]://HOST:PORT`, `file:DIRECTORY` or `memory:` (bus/open.py). `kafka_user`, `kafka_password_file`,
    `kafka_ca_file`: as whom this process comes to Kafka, and whom it trusts (bus/kafka/cluster.py). `partition`: where
    the cell's log lies in every topic. `cells`: `all`: those that the bus lists (known_cells.py), so far as it deals
    them to this instance; what serves one cell finds its partition there. Empty: the one cell that `cell` and
    `partition` say. `cell_copies`: how many instances of a service run each cell. `shard`: which altruism shard this
    instance serves; without it, what the bus assigns to it. A snapshot is taken at the first closing after
    `snapshot_rounds` rounds, of a large state later (log/snapshots.py). `checkpoints`: how many past states the gateway
    keeps at most, so that it can show any moment soon (0: none). `inputs_most`: messages taken from one input topic
    before what they came to is appended. `gap_wait_ms`: how long a decision that a closing names may stay away before
    it counts as lost. `wait_ms`: the longest a service sleeps without looking up. `standby_wait_ms`: so long after its
    own decision a standby still waits for the active instance's answer; then it gives its own. `metrics_host`,
    `metrics_port`: where health and counters are served (port 0: nowhere). `http_hosts`: names by which this process is
    asked over HTTP beside those that are always its own (hosts.py), commas between. `peer_cert_file`, `peer_key_file`:
    the certificate of this process among services and agents (tls.py); `peer_ca_file`: the authorities whose
    certificates the others have to show; `peer_name`: for which name, whatever the address. `log_format`: `console` or
    `json`. `archive`: the store with the cell's checkpoints (archive/store.py), for a log whose beginning was trimmed.
    `bus_cache_mib`: MiB of what was written to a directory's bus last that stay in memory.
    """

    bus: str = "file:largesse-data"
    kafka_user: str = ""
    kafka_password_file: str = ""
    kafka_ca_file: str = ""
    cell: str = "default"
    partition: int = 0
    cells: str = ""
    cell_copies: int = 2
    shard: int | None = None
    snapshot_rounds: int = 1_000
    checkpoints: int = 1_024
    inputs_most: int = 256
    gap_wait_ms: int = 5_000
    wait_ms: int = 1_000
    standby_wait_ms: int = 250
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    http_hosts: str = ""
    peer_cert_file: str = ""
    peer_key_file: str = ""
    peer_ca_file: str = ""
    peer_name: str = ""
    log_format: str = "console"
    archive: str = ""
    bus_cache_mib: int = 8

    @property
    def is_alone(self) -> bool:
        """Whether the bus admits one process only, so that no other process can be writing the log."""
        return self.bus.startswith(("file:", "memory:"))


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment, by default this process's. Raises SettingWrong."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for knob in fields(Settings):
        name = PREFIX + knob.name.upper()
        text = environment.get(name)
        if text is None:
            continue
        whole = knob.type is not str
        if whole and not text.isdecimal():
            raise SettingWrong(f"{name}={text}: has to be a whole number")
        values[knob.name] = int(text) if whole else text
    return Settings(**values)


def check_cells(settings: Settings) -> None:
    """For a service as a process of its own. Raises SettingWrong where it cannot serve such cells."""
    if settings.cells not in ("", ALL_CELLS):
        raise SettingWrong(f"{PREFIX}CELLS={settings.cells}: has to be {ALL_CELLS}, or nothing")
    if settings.cells and settings.is_alone:
        raise SettingWrong(f"{PREFIX}CELLS={settings.cells}: {settings.bus} has one cell; several need kafka://")
    if not settings.cell_copies:
        raise SettingWrong(f"{PREFIX}CELL_COPIES=0: has to be at least 1")


def served_hosts(settings: Settings, bound: str, *more: str) -> Hosts:
    """The names that a server of this process at `bound` answers to, with `more` of them. Raises SettingWrong."""
    try:
        return hosts_of(bound, settings.http_hosts, more)
    except HostsWrong as error:
        raise SettingWrong(f"{HOSTS_VARIABLE}={settings.http_hosts}: {error}") from None


def open_bus(settings: Settings) -> Bus:
    """The bus that `settings.bus` names. Raises SettingWrong, and what opening that bus raises."""
    access = Access(settings.kafka_user, settings.kafka_password_file, settings.kafka_ca_file)
    try:
        return buses.open_bus(settings.bus, cache_bytes=settings.bus_cache_mib << 20, access=access)
    except AccessWrong as error:
        raise SettingWrong(str(error)) from error
    except buses.BusUrlWrong as error:
        raise SettingWrong(f"{PREFIX}BUS={settings.bus}: {error}") from error
