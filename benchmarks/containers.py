"""How many short containers a second an agent's executor runs, beside what `docker run` does on the same engine.

    python -m benchmarks.containers [--containers 100] [--at-once 8] [--rounds 4]

Both take turns, so that what else the machine does falls on both alike. Ours claims each attempt, keeps its output, and
writes its result durably; `docker run --rm` does none of that. Needs an engine with the image; pulls nothing.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

from largesse.lifecycle.node_work import HeldAttempt, Start
from schemas import Container, Stage
from services.agent.attempts import Attempts
from services.agent.container_settings import ContainerSettings
from services.agent.engine import AUTO
from services.agent.local import Local, mono_ms
from services.agent.settings import NodeSettings

IMAGE = "debian:bookworm-slim"
PAUSE_S = 0.005


def ours(table: Attempts, count: int, at_once: int, run: int) -> float:
    """Seconds for so many containers, so many of them at a time."""
    stage = Stage("s", count, {"cpu": 100, "memory": 64}, command=["true"], container=Container(IMAGE, network="none"))
    todo = [Start(f"j/s/{i}/1", HeldAttempt("j", "s", i, 1, run, "e.1"), stage) for i in range(count)]
    begun_s, ended = time.monotonic(), list[Local]()
    for start in todo[:at_once]:
        _begin(table, start)
    waiting = iter(todo[at_once:])
    while len(ended) < count:
        # One that has begun and ended meanwhile is named for both.
        changed = {local.key: local for local in table.hear() + table.look_where_due(mono_ms())}
        for local in changed.values():
            if local.phase == "ended":
                assert local.result is not None and local.result.reason is None, local.result
                ended.append(local)
                table.forget(local.key)
                if (after := next(waiting, None)) is not None:
                    _begin(table, after)
        if not changed:
            time.sleep(PAUSE_S)
    assert len({local.key for local in ended}) == count, "one has ended twice"
    return time.monotonic() - begun_s


def _begin(table: Attempts, start: Start) -> None:
    table.launched(table.launch(table.prepare([start])))


def theirs(count: int, at_once: int) -> float:
    """The same by `docker run`."""
    begun_s = time.monotonic()
    line = f"seq {count} | xargs -P {at_once} -I {{}} docker run --rm --init --network none --memory 64m {IMAGE} true"
    subprocess.run(["sh", "-c", line], check=True)
    return time.monotonic() - begun_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("containers", 100), ("at-once", 8), ("rounds", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="largesse-bench-") as folder:
        data = Path(folder, "data")
        data.mkdir()
        containers = ContainerSettings(AUTO)
        table = Attempts(NodeSettings("n", data, cgroup="off", cpu_limit="none", containers=containers))
        table.open_events()
        table.scan()
        try:
            for number in range(asked.rounds):
                mine_s = ours(table, asked.containers, asked.at_once, 5 + number)
                docker_s = theirs(asked.containers, asked.at_once)
                rows.append({"ours_s": round(mine_s, 2), "docker_run_s": round(docker_s, 2)})
                print(json.dumps(rows[-1]), flush=True)
        finally:
            table.close()
    mine_s, docker_s = (sum(row[name] for row in rows) for name in ("ours_s", "docker_run_s"))
    count = asked.containers * asked.rounds
    said = {"containers": count, "ours_per_s": round(count / mine_s, 2), "docker_per_s": round(count / docker_s, 2)}
    print(json.dumps({**said, "ratio": round(docker_s / mine_s, 2)}))


if __name__ == "__main__":
    main()
