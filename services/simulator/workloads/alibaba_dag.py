"""Alibaba's batch jobs of 2018: graphs of stages with CPU, memory and mean durations.

A stage is named by kind and id, as in the trace (`J5`). Every task lasts its stage's mean. Memory comes in hundredths
of a machine; `machine_memory_mib` says what a machine has, 100 GiB unless told otherwise: a hundredth is then 1 GiB.
"""

from collections.abc import Iterator
from fractions import Fraction

from schemas.edge.base import TASKS_MAX
from schemas.quantities import quantity_texts
from services.simulator.workloads.draws import stretched_ms
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.source import Leave, Line, Option, Row, json_rows, milliseconds, require, unheard, up

OPTIONS = (
    Option("compress", Fraction, Fraction(1), "divides the time since the first job: a heavier load"),
    Option("tasks_max", int, 0, "leaves out jobs with more tasks; 0: none. One job of the random set has 175,991"),
    Option("machine_memory_mib", int, 102_400, "memory of a whole machine, MiB; its CPU is 96 cores"),
    Option(
        "stragglers_permille", int, 0, "spreads durations by exp(this/1000 x z), z normal; 0: a stage's tasks are alike"
    ),
    Option("seed", int, 0, "of the stragglers"),
)


def convert(
    path: str,
    *,
    compress: Fraction = Fraction(1),
    tasks_max: int = 0,
    machine_memory_mib: int = 102_400,
    stragglers_permille: int = 0,
    seed: int = 0,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the file's order. Raises ValueError for a wrong option and Damaged for a damaged line."""
    require("compress", compress > 0, "above 0", compress)
    require("tasks_max", tasks_max >= 0, "at least 0", tasks_max)
    require("machine_memory_mib", machine_memory_mib >= 1, "at least 1", machine_memory_mib)
    require("stragglers_permille", 0 <= stragglers_permille <= 1_000, "from 0 to 1000", stragglers_permille)

    def lines() -> Iterator[Line]:
        first_s = None
        for row in json_rows(path):
            submit_s = row.whole("submit_s")
            # Before any job is left out, so that leaving out moves no other.
            first_s = submit_s if first_s is None else first_s
            if submit_s < first_s:
                raise Damaged(row.where, "submit_s", f"has to be at least the first job's {first_s}, is {submit_s}")
            job, stages = row.text("job"), row.rows("stages")
            if tasks_max and sum(stage.whole("n", 1, TASKS_MAX) for stage in stages) > tasks_max:
                leave(f"more than {tasks_max:,} tasks (--tasks-max)")
                continue
            names = _names(stages)
            yield {
                "job": job,
                "submit_ms": int((submit_s - first_s) * 1000 / compress),
                "stages": [
                    _stage(job, stage, names, machine_memory_mib, stragglers_permille, seed) for stage in stages
                ],
            }

    return lines()


def _names(stages: list[Row]) -> dict[int, str]:
    names: dict[int, str] = {}
    for stage in stages:
        number = stage.whole("id")
        if number in names:
            raise Damaged(stage.where, "id", f"{number} is the id of another stage already")
        names[number] = f"{stage.text('kind')}{number}"
    return names


def _stage(job: str, stage: Row, names: dict[int, str], machine_mib: int, permille: int, seed: int) -> Line:
    parents = stage.wholes("parents")
    if missing := [parent for parent in parents if parent not in names]:
        raise Damaged(stage.where, "parents", f"there is no stage {missing[0]}")
    name = names[stage.whole("id")]
    duration_ms = milliseconds(stage.number("mean_s"))
    line: Line = {
        "stage": name,
        "after": [names[parent] for parent in parents],
        "demand": quantity_texts(
            {"cpu": up(stage.number("cpu") * 1000), "memory": up(stage.number("mem") * machine_mib / 100)}
        ),
    }
    if permille:
        line["durations_ms"] = stretched_ms(
            duration_ms, stage.whole("n", 1, TASKS_MAX), permille, seed, f"{job}|{name}"
        )
    else:
        line |= {"tasks": stage.whole("n", 1, TASKS_MAX), "duration_ms": duration_ms}
    return line
