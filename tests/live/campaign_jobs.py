"""Jobs for kill campaigns: every attempt of a command leaves proof that it began, once, and how it ended.

The proof of an attempt is a file of its own, made with O_EXCL (the shell's noclobber): a second start of the same
attempt meets it, leaves a file `*.twice` and does no work.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from largesse.bodies import read_yaml
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "examples" / "jobs").glob("*.yaml"))
EXAMPLES_THAT_FAIL = ("fails",)

MARK = """
mine="$PROOF/$LARGESSE_JOB~$LARGESSE_STAGE~$LARGESSE_TASK_INDEX~$LARGESSE_ATTEMPT"
set -C
echo "began $$" 2> /dev/null > "$mine" || { echo "$$" >> "$mine.twice"; exit 97; }
set +C
"$@"
code=$?
echo "ended $code" >> "$mine"
exit $code
"""


@dataclass(frozen=True, slots=True)
class Job:
    """What is submitted, and how it has to end. A job to be cancelled has a task that would go on for ever."""

    spec: dict[str, Any]
    outcome: str

    @property
    def name(self) -> str:
        """Its id in the cell."""
        name: str = self.spec["job"]
        return name


@dataclass(frozen=True, slots=True)
class Proof:
    """What an attempt left behind: `ended` is the command's exit code, None where it was ended from outside."""

    job: str
    stage: str
    index: int
    attempt: int
    ended: int | None


def read_proofs(folder: Path) -> tuple[list[Proof], list[str]]:
    """All proofs, and the names of the attempts that were started twice."""
    proofs, twice = [], []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".twice":
            twice.append(path.stem)
            continue
        job, stage, index, attempt = path.name.split("~")
        _, _, code = path.read_text().partition("ended ")
        proofs.append(Proof(job, stage, int(index), int(attempt), int(code) if code else None))
    return proofs, twice


def marked(stage: dict[str, Any], proof: Path, **env: str) -> dict[str, Any]:
    """The stage with a command that leaves proof of its attempts in the folder `proof`."""
    command = ["sh", "-c", MARK, "sh", *stage["command"]]
    return {**stage, "command": command, "env": {**stage.get("env", {}), **env, "PROOF": str(proof)}}


def example_jobs(folder: Path) -> list[Job]:
    """The examples of the project, with their shared files below `folder`."""
    jobs = []
    for path in EXAMPLES:
        document: dict[str, Any] = read_yaml(path.read_bytes())
        stages = []
        for stage in document["stages"]:
            moved = {name: str(folder / Path(value).name) for name, value in stage.get("env", {}).items()}
            stages.append(marked(stage, folder / "proof", **moved) if "command" in stage else stage)
        outcome = "failed" if document["job"] in EXAMPLES_THAT_FAIL else "succeeded"
        jobs.append(Job({**document, "stages": stages}, outcome))
    return jobs


def drawn_jobs(folder: Path, dice: random.Random, count: int) -> list[Job]:
    """`count` jobs of all kinds, at least one of each where there is room for it."""
    kinds = [*KINDS] + [dice.choice([*KINDS]) for _ in range(max(0, count - len(KINDS)))]
    dice.shuffle(kinds)
    return [_job(f"{at:02}-{kind}", kind, folder, dice) for at, kind in enumerate(kinds[:count])]


def _job(name: str, kind: str, folder: Path, dice: random.Random) -> Job:
    stages, outcome = KINDS[kind](dice, str(folder / f"{name}."))
    demand = {"memory": "32Mi"}
    stages = [{**stage, "demand": {**demand, "cpu": f"{dice.choice((100, 250, 400))}m"}} for stage in stages]
    stages = [marked(stage, folder / "proof") if "command" in stage else stage for stage in stages]
    queue = {"queue": dice.choice(("a", "b"))} if dice.random() < 0.7 else {}
    return Job({"job": name, "priority": dice.randrange(3), **queue, "stages": stages}, outcome)


def shell(text: str) -> dict[str, Any]:
    """A stage's command: one of the shell."""
    return {"command": ["sh", "-ec", text]}


# ---------------------------------------------------------------- kinds
def _nap(dice: random.Random) -> dict[str, Any]:
    return shell(f"sleep 0.{dice.randrange(1, 6)}")


def _plain(dice: random.Random, _: str) -> tuple[list[dict[str, Any]], str]:
    return [{"stage": "run", "tasks": dice.randrange(1, 5), **_nap(dice)}], "succeeded"


def _many(dice: random.Random, _: str) -> tuple[list[dict[str, Any]], str]:
    return [{"stage": "run", "tasks": 12, **shell("true")}], "succeeded"


def _graph(dice: random.Random, base: str) -> tuple[list[dict[str, Any]], str]:
    """Whoever comes after others finds what they wrote, of all of them."""
    width = dice.randrange(2, 5)
    write = shell(f"sleep 0.{dice.randrange(1, 4)}; echo > {base}left-$LARGESSE_TASK_INDEX")
    other = shell(f"echo > {base}right")
    join = shell(f"test $(ls {base}left-* | wc -l) = {width}; test -e {base}right; echo > {base}joined")
    stages = [
        {"stage": "left", "tasks": width, **write},
        {"stage": "right", "tasks": 1, **other},
        {"stage": "join", "tasks": 1, "after": ["left", "right"], **join},
        {"stage": "last", "tasks": 2, "after": ["join"], **shell(f"test -e {base}joined")},
    ]
    return stages, "succeeded"


def _gang(dice: random.Random, _: str) -> tuple[list[dict[str, Any]], str]:
    return [{"stage": "run", "tasks": 3, "gang": True, **_nap(dice)}], "succeeded"


def _second(dice: random.Random, base: str) -> tuple[list[dict[str, Any]], str]:
    """Fails once, whichever attempt comes first."""
    once = shell(f"if mkdir {base}$LARGESSE_TASK_INDEX; then exit 3; fi")
    return [{"stage": "run", "tasks": 2, "retries": 1, **once}], "succeeded"


def _broken_gang(dice: random.Random, _: str) -> tuple[list[dict[str, Any]], str]:
    fails = shell('test "$LARGESSE_TASK_INDEX" != 1; sleep 600')
    stages = [{"stage": "run", "tasks": 2, "gang": True, **fails}, {"stage": "never", "tasks": 1, "after": ["run"]}]
    return [stages[0], {**stages[1], **shell("true")}], "failed"


def _fails(dice: random.Random, _: str) -> tuple[list[dict[str, Any]], str]:
    return [{"stage": "run", "tasks": 2, "retries": 1, **shell("exit 3")}], "failed"


def _late(dice: random.Random, _: str) -> tuple[list[dict[str, Any]], str]:
    return [{"stage": "run", "tasks": 1, "timeout_ms": 300, "command": ["sleep", "600"]}], "failed"


def _endless(dice: random.Random, _: str) -> tuple[list[dict[str, Any]], str]:
    return [{"stage": "run", "tasks": 2, "command": ["sleep", "600"]}], "cancelled"


def _timed(dice: random.Random, _: str) -> tuple[list[dict[str, Any]], str]:
    first = {"stage": "run", "durations_ms": [dice.randrange(50, 1_500) for _ in range(4)]}
    return [first, {"stage": "then", "tasks": 2, "duration_ms": 100, "after": ["run"]}], "succeeded"


KINDS: dict[str, Callable[[random.Random, str], tuple[list[dict[str, Any]], str]]] = {
    "plain": _plain,
    "graph": _graph,
    "gang": _gang,
    "second": _second,
    "fails": _fails,
    "endless": _endless,
    "timed": _timed,
    "many": _many,
    "late": _late,
    "broken-gang": _broken_gang,
}
