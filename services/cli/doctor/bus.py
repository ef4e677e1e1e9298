"""The bus that a cell is on: its topics, who takes part in them, and room on its disk."""

import asyncio
import os
import shutil
from pathlib import Path

from services.cli.doctor.findings import Finding, Findings, judged
from services.cli.ending import Wrong
from services.cli.show import plural

ANSWER_MS = 10_000
FREE_WARN, FREE_BAD = 2 << 30, 256 << 20
"""Bytes that should be free where the log lies: it is written to whatever happens."""
ANSWERING = ("estimator", "planner", "fairness", "altruism", "leftover")
"""Services whose instances share their work in a group of Kafka's."""
KAFKA = ("kafka://", "kafkas://")
JOURNALS = "journal-*.jsonl*"


def check_bus(bus: str) -> None:
    """Raises Wrong for what is no bus."""
    if not bus.startswith(KAFKA) and not _folder_of(bus).is_dir():
        raise Wrong(f"--bus: {bus} is neither {KAFKA[0]}HOST:PORT nor a data folder")


def _folder_of(bus: str) -> Path:
    return Path(bus.removeprefix("file:").removeprefix("//"))


def of_bus(bus: str, cell: str, partition: int) -> Findings:
    """`bus`: kafka://HOST:PORT, or a data folder. Raises Wrong for what is neither."""
    if bus.startswith(KAFKA):
        yield from asyncio.run(_of_kafka(bus, cell, partition))
        return
    check_bus(bus)
    yield from _of_folder(_folder_of(bus))


# ---------------------------------------------------------------- a folder
def _of_folder(folder: Path) -> Findings:
    bus = folder / "bus" if (folder / "bus").is_dir() else folder
    journals = list(bus.glob(JOURNALS))
    if not journals:
        yield Finding("bus", "bad", f"{folder} holds no log", "name the folder that `largesse up --data` was given")
        return
    yield Finding("bus", "ok", f"the log in {bus} has {_mib(sum(path.stat().st_size for path in journals))}")
    if not os.access(bus, os.W_OK):
        yield Finding("bus", "bad", f"{bus} may not be written by this user", "run this as the cell's user")
    usage = shutil.disk_usage(bus)
    yield _room(usage.free, f"{_mib(usage.free)} of {_mib(usage.total)} are free on the disk of {bus}")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB" if size >= 10 << 20 else f"{size / 1_024:,.0f} KiB"


def _room(free: int, text: str) -> Finding:
    return judged(
        "disk",
        -free,
        -FREE_WARN,
        -FREE_BAD,
        text,
        "make room: without it the cell takes nothing more, though it loses nothing",
    )


# ---------------------------------------------------------------- Kafka
async def _of_kafka(url: str, cell: str, partition: int) -> list[Finding]:
    from largesse.bus.kafka.checkup import checkup
    from largesse.bus.kafka.cluster import BusUrlWrong, cluster_of
    from largesse.bus.port import BusError

    try:
        cluster = cluster_of(url)
    except BusUrlWrong as error:
        raise Wrong(f"--bus: {error}") from None
    try:
        looked = await checkup(cluster, cell, partition, ANSWERING, ANSWER_MS)
    except BusError as error:
        return [Finding("bus", "bad", str(error), "are the brokers up, and is this where they listen for clients?")]
    cells = f" CELLS={partition + 1}" if partition else ""
    found = [Finding("topics", "bad", line, f"make topics KAFKA={cluster.shown}{cells}") for line in looked.wrong]
    if not looked.wrong:
        found.append(Finding("topics", "ok", f"{plural(looked.topics, 'topic')} are as Largesse needs them"))
    if looked.refused:
        return [*found, Finding("services", "unknown", looked.refused, "ask with rights to describe groups")]
    return [*found, _copies(looked.brokers), *(_instances(name, count) for name, count in looked.members.items())]


def _copies(brokers: int) -> Finding:
    if brokers >= 3:
        return Finding("bus", "ok", f"{brokers} brokers: the log is kept on three of them")
    text = f"{plural(brokers, 'broker')}: " + ("the log has no copy" if brokers == 1 else "the log has one copy")
    return Finding("bus", "warn", text, "three brokers keep a log that outlives any one of them")


def _instances(service: str, count: int) -> Finding:
    if not count:
        text = f"no instance of {service} takes part: rounds wait for it"
        return Finding("services", "bad", text, f"start it: python -m services.{service}")
    if count == 1:
        text = f"{service} has one instance, and no standby"
        return Finding("services", "warn", text, "start a second one: it answers when the first is gone")
    return Finding("services", "ok", f"{service} has {count} instances")
