"""`make bench`: every benchmark, one after the other. `--quick` takes the small sizes, `--preset` is for `scheduling`.

Ratios are between things measured in the same run; times are CPU seconds of the process. Nothing is asserted.
"""

import importlib
import os
import platform

from services.fairness.core import state as fairness_state

BENCHMARKS = (
    "scheduling",
    "variety",
    "loads",
    "gathering",
    "preemption",
    "file_bus",
    "starts",
    "fairness",
    "fairness_rounds",
    "hdrf_paper",
    "dress",
    "answers",
    "watchers",
    "past",
    "kafka_bus",
    "live_kafka",
    "edge_nodes",
)
ON_KAFKA = ("kafka_bus", "live_kafka", "edge_nodes")


def main() -> None:
    """Runs those that can run here and says why another cannot."""
    cores = "as they stand (`make compile` compiles them)" if fairness_state.__file__.endswith(".py") else "compiled"
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors; the cores of the services: {cores}")
    for name in BENCHMARKS:
        print(f"\n== {name}", flush=True)
        if name in ON_KAFKA and not os.environ.get("LARGESSE_TEST_KAFKA"):
            print("left out: LARGESSE_TEST_KAFKA names no broker")
            continue
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
