"""The router's log as a source: `kafka[s]://HOST:PORT/.router`. It has no rounds: `services.router.checking` decides it
again.
"""

from largesse.bus.kafka.cluster import is_cluster
from schemas.topics import ROUTER_LOG
from services.replay.kafka_source import ROUTER, CellTopics, follow_log, log_messages
from services.replay.source import Source, Step, records_of


def is_router(log: str) -> bool:
    """Whether an address names a router's log."""
    return is_cluster(log) and log.rstrip("/").endswith(f"/{ROUTER}")


def open_router(log: str) -> Source:
    """Read as far as it goes, as other logs are."""
    place = CellTopics(log.rstrip("/").removesuffix(f"/{ROUTER}"), ROUTER, 0, ROUTER_LOG)
    return Source(
        log,
        lambda _: (Step(accepted) for accepted in records_of(log_messages(place), 0, ROUTER_LOG)),
        lambda: 1,
        follow=lambda at_end: records_of(follow_log(place, at_end), 0, ROUTER_LOG),
    )
