"""Which variables `LARGESSE_*` something reads: any service or command, whichever of them asks.

A variable with a typing error says nothing by itself: what it was to set has its default. A list of its own, since a
service knows no other service's settings, and a short command imports none; a test compares it with that of the page.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

PREFIX = "LARGESSE_"

# fmt: off
READ = frozenset({
    "ADVERTISE", "ARCHIVE", "ARCHIVE_KEY_FILE", "BRIDGES", "BUS", "BUS_CACHE_MIB", "CA_FILE", "CELL", "CELLS",
    "CELL_COPIES", "CHECKPOINTS", "CHECKPOINT_EVERY", "CHECKPOINT_RECORDS", "CONTEXT", "DEBUG", "GAP_WAIT_MS",
    "HTTP", "HTTP_HOSTS", "INPUTS_MOST", "KAFKA_CA_FILE", "KAFKA_PASSWORD_FILE", "KAFKA_USER", "KEEP_LOG",
    "LOG_FORMAT", "METRICS_HOST", "METRICS_PORT", "MQTT", "MQTT_CA_FILE", "MQTT_KEEP_ALIVE_S", "MQTT_PASSWORD_FILE",
    "NODE", "NODE_AT_END", "NODE_BEHIND_RUNS", "NODE_CGROUP", "NODE_CPU_LIMIT", "NODE_CUT_OFF_SECONDS", "NODE_DATA",
    "NODE_DEVICES", "NODE_DEVICE_HEALTH", "NODE_ENGINE", "NODE_HOST", "NODE_IMAGES_KEEP_HOURS",
    "NODE_IMAGES_KEEP_MIB", "NODE_INPUTS_MIB", "NODE_KEPT_FREE_MIB", "NODE_KEPT_HOURS", "NODE_KEPT_INODES",
    "NODE_KEPT_MIB", "NODE_KEPT_RUNS", "NODE_MEMORY_LIMIT", "NODE_MOUNTS", "NODE_NETWORKS", "NODE_OFFER",
    "NODE_OUTPUT_MIB", "NODE_PASS_ENV", "NODE_PORTS", "NODE_ROOM_INODES", "NODE_ROOM_MIB", "NODE_SECRETS",
    "NODE_SILENT_SECONDS", "NODE_TASK_PIDS", "OIDC_AUDIENCE", "OIDC_CA_FILE", "OIDC_ISSUER", "OIDC_ROLES",
    "OIDC_ROLES_CLAIM", "OIDC_USER_CLAIM", "OPEN", "PARTITION", "PEER_CA_FILE", "PEER_CERT_FILE", "PEER_KEY_FILE",
    "PEER_NAME", "ROUTED", "ROUTER_LEASE_MS", "ROUTER_MOVE_AFTER_MS", "ROUTER_MOVE_GAIN_PERMILLE",
    "ROUTER_MOVE_GAP_MS", "SEGMENT_AGE", "SHARD", "SNAPSHOT_ROUNDS", "STANDBY_WAIT_MS", "TASK_USER",
    "TLS_CERT_FILE", "TLS_KEY_FILE", "TOKEN", "TOKEN_FILE", "URL", "USER", "WAIT_MS",
})
# fmt: on
"""Without the prefix."""

ELSEWHERE = frozenset(
    {
        *("ATTEMPT", "ATTEMPT_KEY", "INPUTS", "JOB", "LIFELINE", "MASTER_ADDR", "MASTER_PORT", "PEERS", "RESULTS"),
        *("STAGE", "TASK_COUNT", "TASK_INDEX"),  # Those of tasks.
        *("COMMIT", "COMPILE", "COMPLETE", "FAILPOINT", "GRAFANA_PORT", "HTTP_PORT", "KAFKA_PORT", "PROMETHEUS_PORT"),
        *("PYTHONS", "SHARED", "UP_OPTIONS"),
    }
)
"""Variables that are no settings of a service or a command."""


def strangers(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each variable that is set and nothing reads, in order, and the one that was meant most likely, or ""."""
    said = sorted(name.removeprefix(PREFIX) for name in environment if name.startswith(PREFIX))
    for name in said:
        if name not in READ and name not in ELSEWHERE and not name.startswith("TEST_"):
            near = get_close_matches(name, READ, 1)
            yield PREFIX + name, PREFIX + near[0] if near else ""


def stranger_text(name: str, near: str) -> str:
    """What to say of one."""
    return f"{name} is set, and nothing reads it" + (f": was {near} meant?" if near else "")
