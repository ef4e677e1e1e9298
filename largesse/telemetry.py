"""What a service says of itself: structured lines on stderr, counters for Prometheus. Nothing here decides anything.

One canonical line a round, with everything about it, instead of many small ones.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import InfoMetricFamily
from prometheus_client.registry import Collector
from structlog.typing import EventDict, Processor

from largesse.release import VERSION, are_cores_compiled, commit

SECONDS = (
    *(0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Buckets of durations: a quiet cell decides a round in tenths of a millisecond, a busy one in seconds."""

FOLDED = Counter("largesse_records_folded", "Log records folded", ["service"])
VOID = Gauge("largesse_log_void", "Log messages that did not count, as of the last record", ["service"])
VOID_DECISIONS = Counter(
    "largesse_decisions_void", "Messages of decision topics that are no answer of any round", ["topic"]
)
SEQ = Gauge("largesse_log_seq", "Seq of the last record folded", ["service"])
CAUGHT_UP = Gauge("largesse_caught_up", "1 once what the log had at the start has been folded, else 0", ["service"])
ANSWERED = Counter("largesse_rounds_answered", "Rounds that this instance answered", ["service"])
DECIDE_SECONDS = Histogram("largesse_decide_seconds", "Time to decide one round", ["service"], buckets=SECONDS)
SNAPSHOTS = Counter("largesse_snapshots", "Snapshots by what became of them", ["service", "outcome"])
INPUTS = Counter("largesse_inputs", "Input messages by topic and what became of them", ["topic", "outcome"])
CLAIMS = Counter("largesse_sequencer_claims", "Claims of the log by this instance")
STANDBYS = Counter("largesse_sequencer_standbys", "Times this instance gave the log up")
ROUND_SECONDS = Histogram(
    "largesse_round_seconds", "Time from a round's opening to its closing in the log", buckets=SECONDS
)
ABANDONED = Counter("largesse_rounds_abandoned", "Rounds that were given up")
GRANTS = Counter("largesse_granted_tasks", "Tasks granted in closings")
DEAD_LETTERS = Counter("largesse_dead_letters", "Refused inputs that were written to deadletter", ["topic"])
BRIDGE_REPORTS = Counter("largesse_bridge_reports", "Reports of nodes over MQTT that the bus has")
BRIDGE_REFUSED = Counter("largesse_bridge_refused", "Messages of nodes over MQTT that were refused", ["reason"])
BRIDGE_TOLD = Counter("largesse_bridge_told", "Times that nodes were told over MQTT what they have to do")
BRIDGE_ANSWERS = Histogram(
    "largesse_bridge_answer_seconds",
    "From the arrival of a report to its answer",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
BRIDGE_CONNECTED = Gauge("largesse_bridge_connected", "Whether this bridge has a session with the MQTT broker")
BRIDGE_ASKED = Counter(
    "largesse_bridge_asked", "Questions for what tasks printed or left, by what came of them", ["outcome"]
)
BRIDGE_FETCHED = Counter(
    "largesse_bridge_fetched", "Questions of nodes for results that were handed on, by what came of them", ["outcome"]
)
BRIDGE_NODES = Gauge("largesse_bridge_nodes", "Registered nodes that this bridge serves")
BRIDGE_SHUT_OUT = Gauge("largesse_bridge_shut_out_nodes", "Nodes that this bridge does not listen to, as they flood it")
BRIDGE_SESSIONS = Counter("largesse_bridge_sessions", "Sessions of this bridge with the MQTT broker")
HTTP_REFUSED = Counter("largesse_http_refused", "Requests to the gateway that were not let in", ["reason"])
PORT_REFUSED = Counter(
    "largesse_port_refused", "Connections and requests to a port of metrics and output that were not let in", ["reason"]
)
CERTIFICATE_EXPIRES = Gauge(
    "largesse_certificate_expires_seconds", "When a certificate in use expires, in Unix time", ["file"]
)
CELLS_RUN = Gauge("largesse_cells_run", "Cells that this instance runs")
CELLS_FAILED = Counter("largesse_cells_failed", "Times that an error ended a cell here", ["cell"])
ROUTES = Gauge("largesse_router_jobs", "Jobs that named no cell and are not over, by where they are", ["state"])
ROUTED = Counter("largesse_router_sent_jobs", "Jobs that were sent to a cell by this instance", ["cell", "why"])
ROUTER_SEQ = Gauge("largesse_router_log_seq", "Seq of the last record of the router's log that this gateway has read")
MOVES = Counter("largesse_router_moves", "Jobs that were to move, by what became of it", ["outcome"])
ARCHIVE_SEQ = Gauge("largesse_archive_seq", "Seq of the last record that the archive has")
ARCHIVE_BEHIND = Gauge("largesse_archive_behind_records", "Records that were read and are not in the archive yet")
ARCHIVE_FAILURES = Counter("largesse_archive_failures", "What an archiver tried in vain", ["step"])
CHECKPOINT_TIME = Gauge(
    "largesse_checkpoint_time_seconds", "Log time of the newest checkpoint that the log has noted, in Unix time"
)
CHECKPOINT_BEHIND = Gauge("largesse_checkpoint_behind_records", "Records of the log behind the newest checkpoint")
TRIMMED_SEQ = Gauge("largesse_trimmed_seq", "Seq of the checkpoint behind which this archiver had the log trimmed")
STRUCK = Counter("largesse_struck_tasks", "Granted tasks that newer facts overtook")


class _Build(Collector):
    """Which build runs: largesse_build_info."""

    def collect(self) -> Iterator[InfoMetricFamily]:
        said = {"version": VERSION, "commit": commit(), "compiled": "yes" if are_cores_compiled() else "no"}
        yield InfoMetricFamily("largesse_build", "Release, commit, and whether the cores are compiled", said)


REGISTRY.register(_Build())


def configure(log_format: str = "console", *, level: str = "info") -> None:
    """Lines to stderr, `console` for people or `json` for machines. `level`: the least that is said."""
    console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    # JSON escapes what controls a terminal by itself.
    last: list[Processor] = [structlog.processors.JSONRenderer()] if log_format == "json" else [_visible, console]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _visible(_logger: object, _method: str, said: EventDict) -> EventDict:
    """Texts of others are shown as text: they neither begin a line nor control a terminal. Tracebacks keep lines."""
    for name, value in said.items():
        text = (
            value if isinstance(value, str) else "" if value is None or isinstance(value, int | float) else str(value)
        )
        kept = "\n\t" if name in ("exception", "stack") else ""
        if not text.isprintable():
            shown = (c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)
            said[name] = "".join(shown)
    return said


def logger(**bound: Any) -> Any:
    """A logger whose lines all carry `bound`."""
    return structlog.get_logger(**bound)


def behind() -> list[str]:
    """The services of this process that have not yet folded what the log had when they began."""
    samples = (sample for metric in CAUGHT_UP.collect() for sample in metric.samples)
    return sorted(sample.labels["service"] for sample in samples if not sample.value)


def exposition() -> tuple[str, bytes]:
    """All counters as Prometheus reads them: the content type, and the text."""
    return CONTENT_TYPE_LATEST, generate_latest()


def stopwatch() -> Callable[[], float]:
    """Starts now; each call tells the seconds since. For figures only."""
    begun = time.perf_counter()
    return lambda: time.perf_counter() - begun
