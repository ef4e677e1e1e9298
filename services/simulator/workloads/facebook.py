"""Facebook's Hadoop jobs of 2009 and 2010 (SWIM), raw (arrivals and bytes) or converted to map and reduce tasks.

Raw rows become tasks by the traces' documented rule, in whole numbers; durations to the nearest millisecond. Durations
and demands are the rule's, not Facebook's. A job is `map`, then `reduce` after it where it shuffles.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from schemas.edge.base import TASKS_MAX
from schemas.quantities import MIB, Vector, quantity_texts
from services.simulator.workloads.draws import EXACT, share_of_key, stretched_ms
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.source import (
    Leave,
    Line,
    Option,
    Row,
    milliseconds,
    require,
    table_rows,
    unheard,
    up,
)

DEMANDS = ("fb-v1", "one-core")

OPTIONS = (
    Option("split", int, 0, "MiB of input a map reads; 0: 256 for a file named FB-2010, else 128 (raw only)"),
    Option("divide", int, 1, "divides every byte count before the conversion: a smaller cluster (raw only)"),
    Option("from_hour", int, 0, "leaves out jobs before this hour; it becomes time 0"),
    Option("to_hour", int, 0, "leaves out jobs from this hour on; 0: none"),
    Option("demands", str, "fb-v1", "fb-v1: cpu and memory by the traces' rule; one-core: one core a task", DEMANDS),
    Option(
        "stragglers_permille", int, 0, "spreads durations by exp(this/1000 x z), z normal; 300 is the traces' advice"
    ),
    Option("seed", int, 0, "of the stragglers"),
)

RAW = (
    "job_id",
    "submit_time_seconds",
    "inter_job_submit_gap_seconds",
    "map_input_bytes",
    "shuffle_bytes",
    "reduce_output_bytes",
)
CONVERTED = ("job_id", "submit_s", "n_maps", "map_s", "n_reduces", "reduce_s")

REDUCES_MAX = 999
_GIB = 1024 * MIB
_DRAWS = 1 << 64
_HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class Phase:
    """The maps or the reduces of a job: how many, and the exact seconds that each lasts."""

    tasks: int
    seconds: Fraction


def convert(
    path: str,
    *,
    split: int = 0,
    divide: int = 1,
    from_hour: int = 0,
    to_hour: int = 0,
    demands: str = "fb-v1",
    stragglers_permille: int = 0,
    seed: int = 0,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines of a trace file, in its order. Raises ValueError for a wrong option, Damaged for a damaged row."""
    require("split", split >= 0, "at least 0 MiB", split)
    require("divide", divide >= 1, "at least 1", divide)
    require("from_hour", from_hour >= 0, "at least 0", from_hour)
    require("to_hour", to_hour == 0 or to_hour > from_hour, "0 or after from_hour", to_hour)
    require("demands", demands in DEMANDS, f"one of {', '.join(DEMANDS)}", demands)
    require("stragglers_permille", 0 <= stragglers_permille <= 1_000, "from 0 to 1000", stragglers_permille)
    split_bytes = MIB * (split or (256 if "FB-2010" in Path(path).name else 128))

    def lines() -> Iterator[Line]:
        for row in table_rows(path, "\t", RAW, CONVERTED):
            converted = "n_maps" in row
            require("split", not (converted and split), "left out: the file is converted already", split)
            require("divide", divide == 1 or not converted, "left out: the file is converted already", divide)
            submit_s = row.whole("submit_s" if converted else "submit_time_seconds") - from_hour * _HOUR_S
            if submit_s < 0 or (to_hour and submit_s >= (to_hour - from_hour) * _HOUR_S):
                leave("outside the hours asked for (--from-hour, --to-hour)")
                continue
            maps, reduces = phases_of_converted(row) if converted else phases_of(row, split_bytes, divide)
            if max(maps.tasks, reduces.tasks) > TASKS_MAX:
                raise Damaged(row.where, "", f"makes a stage of more than {TASKS_MAX} tasks: raise split or divide")
            job = row.text("job_id")
            stages = [_stage(job, "map", maps, [], demands, stragglers_permille, seed)]
            if reduces.tasks:
                stages.append(_stage(job, "reduce", reduces, ["map"], demands, stragglers_permille, seed))
            yield {"job": job, "submit_ms": submit_s * 1000, "stages": stages}

    return lines()


def phases_of(row: Row, split_bytes: int, divide: int) -> tuple[Phase, Phase]:
    """Maps and reduces of a raw row, by the traces' rule. All durations are exact."""
    given = row.whole("map_input_bytes") // divide
    shuffle = row.whole("shuffle_bytes") // divide
    output = row.whole("reduce_output_bytes") // divide
    map_out = shuffle or output
    maps = max(1, -(-given // split_bytes), -(-map_out // _GIB))
    map_s = 3 + Fraction(given, maps * 8_000_000) + Fraction(map_out, maps * 20_000_000)
    if not shuffle:
        return Phase(maps, map_s), Phase(0, Fraction(0))
    reduces = min(REDUCES_MAX, max(1, -(-shuffle // (256 * MIB)), -(-output // _GIB)))
    reduce_s = 3 + Fraction(shuffle, reduces * 10_000_000) + Fraction(output, reduces * 20_000_000)
    return Phase(maps, map_s), Phase(reduces, reduce_s)


def phases_of_converted(row: Row) -> tuple[Phase, Phase]:
    """Maps and reduces of a converted row, as it says."""
    return Phase(row.whole("n_maps", 1), row.number("map_s")), Phase(row.whole("n_reduces"), row.number("reduce_s"))


def demand_of(job: str, phase: str) -> Vector:
    """The rule fb-v1: 1 to 3 cores and 1 to 8.5 GiB, by job and phase, in H-DRF's ranges."""
    cpu, memory = (share_of_key(f"fb-v1|{job}|{phase}|{kind}") for kind in ("cpu", "mem"))
    cores = 1 if 100 * cpu < 80 * _DRAWS else 2 if 100 * cpu < 95 * _DRAWS else 3
    return {"cpu": 1000 * cores, "memory": 512 * (2 + bisect_right(_memory_steps(), memory))}


@lru_cache(maxsize=1)
def _memory_steps() -> list[int]:
    """From which u x 2^64 on the rule's floor(2 x 9^u) is 3, 4 .. 17; it is 2 below."""
    nine = EXACT.ln(Decimal(9))
    shares = [EXACT.divide(EXACT.ln(EXACT.divide(Decimal(k), Decimal(2))), nine) for k in range(3, 18)]
    return [up(Fraction(share) * _DRAWS) for share in shares]


def _stage(job: str, name: str, phase: Phase, after: list[str], demands: str, permille: int, seed: int) -> Line:
    duration_ms = milliseconds(phase.seconds)
    stage: Line = {
        "stage": name,
        "after": after,
        "demand": quantity_texts(demand_of(job, name) if demands == "fb-v1" else {"cpu": 1000}),
    }
    if permille:
        stage["durations_ms"] = stretched_ms(duration_ms, phase.tasks, permille, seed, f"{job}|{name}")
    else:
        stage |= {"tasks": phase.tasks, "duration_ms": duration_ms}
    return stage
