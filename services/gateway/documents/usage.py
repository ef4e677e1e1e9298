"""What attempts used of memory and CPU, as a job shows it."""

from schemas.quantities import quantity_texts
from services.gateway.documents import Document
from services.gateway.view.jobs import CountedRow, StageUse
from services.gateway.view.used import UNKNOWN


def counted_document(row: CountedRow | None) -> Document | None:
    """What a task counts for where it asks for more, and where that is from."""
    if row is None:
        return None
    asked, demand, runs, peak = row
    return {
        "asked": quantity_texts(asked),
        "counted": quantity_texts(demand),
        "runs": runs,
        "peak": quantity_texts(peak),
    }


PERCENTS = (50, 95, 100)


def usage_document(used: StageUse | None, places: list[str], *, each: bool) -> Document | None:
    """What tasks of a stage that succeeded have used: the largest peaks of memory and CPU, CPU time in all, with `each`
    memory and CPU time of each task, else percentiles. `places`: by index, where it ran. None where nothing is known.
    """
    if used is None or not any(used.attempts):
        return None
    done = [index for index, attempt in enumerate(used.attempts) if attempt]
    attempts = [
        {
            "index": index,
            "attempt": used.attempts[index],
            "node": places[index] if index < len(places) else "",
            "run_ms": _known(used.run_ms[index]),
            "peak_memory": memory_text(_known(used.peak_mib[index])),
            "cpu_ms": _known(used.cpu_ms[index]),
        }
        for index in done
        if each
    ]
    measured = [index for index in done if used.cpu_ms[index] != UNKNOWN]
    return {
        "peak_memory": memory_text(max((used.peak_mib[index] for index in measured), default=None)),
        "peak_cpu": None if used.cpu_peak == UNKNOWN else quantity_texts({"cpu": used.cpu_peak})["cpu"],
        "cpu_ms": sum(used.cpu_ms[index] for index in measured) if measured else None,
        "attempts": attempts if each else None,
        "percentiles": None if each else _percentiles(used, done),
    }


def _percentiles(used: StageUse, done: list[int]) -> list[Document]:
    """Of each measure by itself, as far as it is known: the value at or below which that per cent of the tasks are."""
    columns = [sorted(each for index in done if (each := column[index]) != UNKNOWN) for column in _measures(used)]
    found = []
    for percent in PERCENTS:
        run_ms, peak_mib, cpu_ms = (
            column[-(-percent * len(column) // 100) - 1] if column else None for column in columns
        )
        found.append({"percent": percent, "run_ms": run_ms, "peak_memory": memory_text(peak_mib), "cpu_ms": cpu_ms})
    return found


def _measures(used: StageUse) -> tuple[list[int], list[int], list[int]]:
    return used.run_ms, used.peak_mib, used.cpu_ms


def memory_text(mib: int | None) -> str | None:
    """An amount of memory as a quantity; None where it was not measured."""
    return None if mib is None else quantity_texts({"memory": mib})["memory"]


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number
