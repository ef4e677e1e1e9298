"""The settings that each topic of a Kafka cluster must have, and what is wrong with those it has."""

from dataclasses import dataclass

from schemas.policy import SHARDS_MAX
from schemas.topics import BY_NAME, CELLS, ROUTER_JOBS, ROUTER_LOG, SHARDED, SNAPSHOTS, Topic
from schemas.wording import plural

MESSAGE_BYTES_MIN = 1_048_576
"""What a topic must accept in one message: RECORD_BYTES_MAX, its header and a batch around it."""

INPUT_DAYS = 14

INPUT_DAYS_MIN = 7

LETTER_DAYS = 90

BEAT_MS = 10 * 60 * 1_000
"""How long a sign of life is kept: longer than any pause after which its reader would go on where it stopped."""

BEAT_SEGMENT_BYTES = 1 << 20
"""Only segments that are not written any more are deleted."""

SNAPSHOT_SEGMENT_BYTES = 64 << 20

REPLICAS = 3

FLUSH = "flush.messages"

FLUSHED = ("input", "log", "decision")
"""Kinds of topics that have to be on disk together: a closing names decisions, and a record its input."""

MEMBERSHIP = Topic("shards", "aside", (), (), ("fairness", "altruism", "leftover", "estimator", "planner"))
"""Nothing is ever written here: its partitions stand for shards, and who is assigned one serves that shard."""

DEALT = ("admission", *MEMBERSHIP.readers)
"""Services whose instances are dealt cells."""

CELL_LIST = Topic(CELLS, "log", (), ("operators",), (*DEALT, "gateway", "agent", "bridge", "router", "operators"))
"""Which cells there are (largesse/known_cells.py): kept for ever, as the log is."""

ONE_FOR_ALL = (CELL_LIST.name, ROUTER_JOBS, ROUTER_LOG)
"""Topics of a deployment, not of its cells: in one partition."""

TOPICS = {**BY_NAME, MEMBERSHIP.name: MEMBERSHIP, CELL_LIST.name: CELL_LIST}

_DAY_MS = 24 * 60 * 60 * 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as the cluster has it. `own`: the settings that were made on the topic itself."""

    partitions: int
    replicas: int
    settings: dict[str, str]
    own: dict[str, str]


def partitions_of(name: str, cells: int) -> int:
    """How many partitions a topic has for a number of cells."""
    if name == MEMBERSHIP.name:
        return SHARDS_MAX
    if name in ONE_FOR_ALL:
        return 1
    return cells * SHARDS_MAX if name in SHARDED else cells


def settings_of(topic: Topic, replicas: int, *, flush: bool = False) -> dict[str, str]:
    """What a new topic is made with. `flush`: one copy is to outlast a power cut."""
    settings = {
        "cleanup.policy": topic.cleanup,
        # A sender's clock, if it is wrong, would age what it sent.
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MESSAGE_BYTES_MIN),
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": "2" if replicas >= REPLICAS else "1",
        "retention.bytes": "-1",
    }
    if flush and replicas == 1 and topic.kind in FLUSHED:
        settings[FLUSH] = "1"
    if topic.name == SNAPSHOTS:
        # The segment that is written is never compacted: a small one, so that old snapshots go.
        settings["segment.bytes"] = str(SNAPSHOT_SEGMENT_BYTES)
    if topic.kind == "beat":
        return settings | {
            "retention.ms": str(BEAT_MS),
            "segment.ms": str(BEAT_MS),
            "segment.bytes": str(BEAT_SEGMENT_BYTES),
        }
    days = {"input": INPUT_DAYS, "aside": LETTER_DAYS}.get(topic.kind)
    settings["retention.ms"] = "-1" if days is None else str(days * _DAY_MS)
    return settings


def faults(name: str, topic: Topic | None, found: Found | None, partition: int) -> list[str]:
    """What is wrong with a topic for who wants to use this partition. `topic`: None for one that is not ours."""
    if found is None:
        return [f"topic {name} is missing"]
    wrong = []
    if partition >= found.partitions:
        wrong.append(f"topic {name} has {plural(found.partitions, 'partition')}, number {partition} is not among them")
    if topic is not None:
        wrong += [
            f"topic {name} has {key}={found.settings.get(key)}, {need}" for key, need in settings_lacking(topic, found)
        ]
    return wrong


def settings_lacking(topic: Topic, found: Found) -> list[tuple[str, str]]:
    """Settings that have to be another, and how."""

    def number(key: str) -> int:
        return int(found.settings.get(key, "0"))

    lacking = []
    for key, right in (("cleanup.policy", topic.cleanup), ("message.timestamp.type", "LogAppendTime")):
        if found.settings.get(key) != right:
            lacking.append((key, f"needs {right}"))
    if number("max.message.bytes") < MESSAGE_BYTES_MIN:
        lacking.append(("max.message.bytes", f"needs at least {MESSAGE_BYTES_MIN}"))
    if topic.kind in ("log", "decision"):
        lacking += [
            (key, f"needs {right}")
            for key, right in (
                ("retention.ms", "-1"),
                ("retention.bytes", "-1"),
                ("unclean.leader.election.enable", "false"),
            )
            if found.settings.get(key) != right
        ]
        if found.replicas >= REPLICAS and number("min.insync.replicas") < 2:
            lacking.append(("min.insync.replicas", "needs at least 2"))
    if topic.kind == "input":
        if 0 <= number("retention.ms") < INPUT_DAYS_MIN * _DAY_MS:
            lacking.append(("retention.ms", f"needs at least {INPUT_DAYS_MIN * _DAY_MS}"))
        if number("retention.bytes") >= 0:
            lacking.append(("retention.bytes", "needs -1"))
    return lacking


def is_volatile(topic: Topic | None, found: Found | None) -> bool:
    """Whether a power cut of its only broker may lose acknowledged messages of a topic."""
    if topic is None or found is None or topic.kind not in FLUSHED:
        return False
    return found.replicas == 1 and found.settings.get(FLUSH) != "1"


def command(bootstrap: str, name: str, partition: int, found: Found | None) -> str:
    """What to run to mend a topic for who wants to use this partition."""
    if name not in TOPICS:
        return f"kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {name} --partitions {partition + 1}"
    cell = partition // SHARDS_MAX if name in SHARDED else partition
    cells = f" --cells {cell + 1}" if cell and name != MEMBERSHIP.name else ""
    grow = " --grow" if found is not None and partition >= found.partitions else ""
    return f"python -m largesse.bus.kafka.topics_admin --bootstrap {bootstrap}{cells}{grow}"
