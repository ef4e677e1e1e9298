"""Jobs whose attempts tell when they write, so that two attempts of one task at work at once are found.

Every attempt appends a line with its number and the seconds since boot (which no clock change moves) every twentieth of
a second to a file that all attempts of its task share. Some write through a child in a session of its own, which
outlives the shim that is killed.
"""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.live.campaign_jobs import Job, marked

WRITES = """
writes() {
  left=$1
  while [ "$left" != 0 ]; do
    left=$((left - 1))
    read -r up _ < /proc/uptime
    echo "$LARGESSE_ATTEMPT $up $$" >> "$WRITES/$LARGESSE_JOB~$LARGESSE_STAGE~$LARGESSE_TASK_INDEX"
    sleep 0.05
  done
}
"""
PLAIN = f'{WRITES} writes "$1"'
DETACHED = f"""
setsid sh -c '{WRITES.replace("'", "")} writes "$1"' sh "$1" &
wait "$!"
"""
LEFT_BYTES = 300_000
LEAVES = f"""
head -c {LEFT_BYTES} /dev/zero > "$LARGESSE_RESULTS/left"
echo "$LARGESSE_TASK_INDEX" > "$LARGESSE_RESULTS/index"
"""
CHECKS = f"""
for i in 0 1; do
  here="$LARGESSE_INPUTS/make/$i"
  [ "$(cat "$here/index")" = "$i" ] && [ "$(wc -c < "$here/left")" = {LEFT_BYTES} ] || exit 1
done
"""
ENDLESS = -1
SLACK_S = 0.1
"""A line may be this much younger than the moment at which its attempt was ended: the clock counts hundredths."""


def writing_jobs(folder: Path, dice: random.Random, count: int) -> list[Job]:
    """So many jobs, plain and detached in turn; every sixth goes on until it is cancelled."""
    writes = folder / "writes"
    writes.mkdir(exist_ok=True)
    return [_job(f"writes-{at}", at, writes, folder / "proof", dice) for at in range(count)]


def handing_job(folder: Path, name: str, makes_on: str, uses_on: str) -> Job:
    """A stage whose results the next one needs on another node, both named by their label `node`; attempts of both
    tell when they write."""
    writes = folder / "writes"
    writes.mkdir(exist_ok=True)
    made = []
    for stage, does, node in (("make", LEAVES, makes_on), ("use", CHECKS, uses_on)):
        command = ["sh", "-c", f"{does}\n{PLAIN}", "sh", "10"]
        about = {"stage": stage, "tasks": 2, "demand": {"cpu": "100m", "memory": "16Mi"}, "labels": {"node": node}}
        made.append(marked({**about, "command": command}, folder / "proof", WRITES=str(writes)))
    made[1] |= {"after": ["make"], "inputs": ["make"]}
    return Job({"job": name, "stages": made}, "succeeded")


def _job(name: str, at: int, writes: Path, proof: Path, dice: random.Random) -> Job:
    endless = at % 6 == 5
    lines = ENDLESS if endless else dice.randrange(4, 60)
    command = ["sh", "-c", DETACHED if at % 2 else PLAIN, "sh", str(lines)]
    stage = {"stage": "w", "tasks": dice.randrange(1, 4), "demand": {"cpu": "250m", "memory": "32Mi"}}
    made = marked({**stage, "command": command}, proof, WRITES=str(writes))
    return Job({"job": name, "stages": [made]}, "cancelled" if endless else "succeeded")


def overlaps(
    writes: Path,
    allowed: Iterable[tuple[float, float]] = (),
    lost: Mapping[tuple[str, int], float] = MappingProxyType({}),
) -> list[str]:
    """Tasks of which an attempt wrote after a later one had begun to, but for the spans (in seconds since boot) in
    which that is allowed, and for attempts that were `lost` with their node (by file name and number) up to the moment
    at which that node came back: an agent that lives on hears of the loss after the cell has acted on it.
    """
    spans = list(allowed)
    wrong = []
    for path in sorted(writes.iterdir()):
        first: dict[int, float] = {}
        late: dict[int, float] = {}
        for line in path.read_text().splitlines():
            attempt, at = int(line.split()[0]), float(line.split()[1])
            first.setdefault(attempt, at)
            later = [number for number, begun in first.items() if number > attempt and begun + SLACK_S < at]
            is_allowed = any(begin <= at <= end for begin, end in spans) or at <= lost.get((path.name, attempt), -1)
            if later and not is_allowed:
                late[attempt] = at
        wrong += [f"{path.name}: attempt {number} wrote at {at} s beside a later one" for number, at in late.items()]
    return wrong


def writers(folder: Path) -> list[Any]:
    """Lines that were written, of every task; for figures."""
    return [line for path in sorted((folder / "writes").iterdir()) for line in path.read_text().splitlines()]
