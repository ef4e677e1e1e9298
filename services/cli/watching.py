"""`largesse watch`: one job as it goes, drawn again on a terminal, and as plain lines anywhere else."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from services.cli.client import Gateway
from services.cli.ending import Broken, out, shown
from services.cli.local_folders import folders_here
from services.cli.patience import followed
from services.cli.show import (
    Draw,
    described,
    in_zone,
    listed,
    moment,
    on_terminal,
    plain,
    plural,
    rounded,
    span,
)

BAR_COLUMNS = 12
PLACES_SHOWN = USAGE_SHOWN = 20
ENDED_WELL = "succeeded"
_NUMBER = re.compile(r"(?<![\w/.-])[0-9][0-9.,:]*")
"""Not in a name, such as node-1 or map/0."""

Document = dict[str, Any]


def watch(gateway: Gateway, job: str, *, quiet: bool = False) -> Document:
    """Follows a job to its end and returns its last document. `quiet`: shows nothing. Raises Refused, Broken.

    A cell that is started again meanwhile is waited for.
    """
    seen = followed(gateway, job)
    if quiet:
        return _last(seen, job)
    if on_terminal():
        return _last(_drawn(seen), job)
    return _last(_printed(seen), job)


def _last(seen: Iterator[Document], job: str) -> Document:
    last: Document | None = None
    for document in seen:
        last = document
    if last is None:
        raise Broken(f"the gateway did not report on job {job}")
    return last


def _drawn(seen: Iterator[Document]) -> Iterator[Document]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="visible") as live:
        for document in seen:
            live.update(Text.from_ansi(shown(_head(document) + "\n" + stages_text(document))), refresh=True)
            yield document


def _head(document: Document) -> str:
    """What stands above the stages: the reason of a job that waits is among them, if one of them has it."""
    ended = f" after {span(document['ended_ms'] - document['submitted_ms'])}" if document["ended_ms"] else ""
    below = [text["text"] for text in _said(document)]
    why = in_zone(document["detail"] or ("" if document["why"] in below else document["why"]) or "")
    return plain(f"{document['job']}: {document['state']}{ended}" + (f" ({why})" if why else ""))


def stages_text(document: Document, draw: Draw = listed) -> str:
    """Stages of a job, each with its bar."""
    rows = []
    for stage in document["stages"]:
        tasks = stage["tasks"]
        running = str(tasks["running"] + tasks["starting"] or "")
        if copies := stage.get("copies"):
            running = f"{running or 0} + {copies:,} {'copy' if copies == 1 else 'copies'}"
        if ending := stage.get("ending"):
            running = f"{running or 0} + {ending:,} ending"
        texts = [reason["text"] for reason in stage["why"]]
        if revocable := stage.get("revocable"):
            texts.append(f"{plural(revocable['tasks'], 'task')} {revocable['text']}")
        why = "; ".join(in_zone(text) for text in texts) or _left_text(stage)
        rows.append((stage["stage"], task_bar(tasks), f"{tasks['succeeded']}/{tasks['total']}", running, why))
    last = "why it waits" if document["ended_ms"] is None else "what is left"
    return draw(("stage", "progress", "done", "running", last), rows, kinds="kkrrl")


def _left_text(stage: Document) -> str:
    """What became of tasks that have not succeeded; an older gateway does not tell."""
    if stage["tasks"].get("skipped"):
        return "skipped: a stage before it failed"
    failed = stage["tasks"].get("failed", 0)
    killed, never = stage.get("killed", 0), stage.get("never_started", 0)
    texts = [f"{plural(failed, 'task')} failed"] if failed else []
    if killed:
        texts.append(f"{plural(killed, 'task')} ended with the job")
    if never:
        texts.append(f"{plural(never, 'task')} never started" if never < stage["tasks"]["total"] else "never started")
    return "; ".join(texts)


def task_bar(tasks: dict[str, int]) -> str:
    """Done, at work, to come."""
    done = BAR_COLUMNS * tasks["succeeded"] // tasks["total"]
    started = tasks["succeeded"] + tasks["running"] + tasks["starting"]
    begun = -(-BAR_COLUMNS * started // tasks["total"])
    return "#" * done + "-" * (begun - done) + "." * (BAR_COLUMNS - begun)


def _printed(seen: Iterator[Document]) -> Iterator[Document]:
    before: list[str] = []
    for document in seen:
        lines = list(_lines(document))
        for news, line in lines:
            if news not in before:
                out(f"{_clock()} {line}")
        before = [news for news, _ in lines]
        yield document


def _lines(document: Document) -> Iterator[tuple[str, str]]:
    """What there is to say of a job now, line by line: what makes a line news, unless it was so before, and the line.

    Numbers of a reason (what a queue holds, when room is complete) change with every task that ends, and are no news.
    """
    job, state = plain(document["job"]), document["state"]
    if document["ended_ms"] is None:
        for stage in document["stages"]:
            tasks = stage["tasks"]
            done, running = tasks["succeeded"], tasks["running"]
            if tasks.get("skipped"):
                line = f"{job}/{stage['stage']}: skipped"
                yield line, line
            elif done or running or tasks.get("failed"):
                failed = f", {plural(tasks['failed_attempts'], 'attempt')} failed" if tasks["failed_attempts"] else ""
                if for_good := tasks.get("failed"):
                    failed += f", {plural(for_good, 'task')} for good"
                line = f"{job}/{stage['stage']}: {done} of {tasks['total']} done, {running} running{failed}"
                yield line, line
            if revocable := stage.get("revocable"):  # News when the lease is another, not when tasks end.
                text = in_zone(revocable["text"])
                yield f"{job}/{stage['stage']}: {text}", f"{job}/{stage['stage']}: {text}"
    why = in_zone(document["detail"] or document["why"] or "")
    if why or state != "running" or document["ended_ms"] is not None:
        took = f" after {span(document['ended_ms'] - document['submitted_ms'])}" if document["ended_ms"] else ""
        line, why = f"{job}: {state}{took}", plain(why)
        at_max = any(text["reason"] == "queue_max" for text in _said(document))
        news = "queue_max" if at_max else _NUMBER.sub("#", why) if document["ended_ms"] is None else why
        yield f"{line}: {news}", line + (f": {why}" if why else "")


def _said(document: Document) -> list[Document]:
    """The reason that a job gives as its own, if it waits for more than its own stages."""
    reasons = (each for stage in document["stages"] for each in stage["why"] if each["text"] == document["why"])
    return list(islice(reasons, 1))


def _clock() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")


def job_text(document: Document, draw: Draw = listed) -> str:
    """One job: what it is, its stages, where it runs, the attempts that failed. `draw`: for whom, as `drawing` says."""
    rows = [(name, document[name]) for name in ("job", "state", "queue", "class", "priority")]
    rows += [("run", document["run"])] if document.get("run", 1) > 1 else []
    rows += [("held", _held(document)), ("reservation", _reservation(document))]
    rows += [(name, document[name]) for name in ("user", "author")]
    rows += [(name, _moment(document[f"{name}_ms"])) for name in ("submitted", "started", "ended")]
    rows += [("detail", document["detail"])]
    said = [row for row in rows if row[1] not in ("", None)]
    text = described(said) if draw is listed else draw(("", ""), said)
    text += "\n" + stages_text(document, draw)
    places = [(stage["stage"], *place) for stage in document["stages"] for place in _places(stage)]
    if places:
        shown = PLACES_SHOWN if draw is listed else len(places)
        left = len(places) - shown
        more = f"and on {plural(left, 'more node')}\n" if left > 0 else ""
        text += "\n" + draw(("stage", "on node", "running", "tasks"), places[:shown], kinds="kkrl") + more
    return (
        text
        + _counted_text(document, draw)
        + _usage_text(document, draw)
        + _failures_text(document, draw)
        + _failed_tasks_text(document)
        + _results_text(document, draw)
    )


def _held(document: Document) -> str:
    """Who holds a job, and since when; an older gateway does not tell."""
    held = document.get("held")
    return f"by {held['by']} since {_moment(held['since_ms'])}" if held else ""


def _reservation(document: Document) -> str:
    """Which a job names, and which part of it; an older gateway does not tell."""
    name, part = document.get("reservation") or "", document.get("reservation_atom") or ""
    return f"{name}, part {part}" if part else name


def _counted_text(document: Document, draw: Draw) -> str:
    """What tasks ask for, and what they count for by earlier runs; an older gateway does not tell."""
    rows = [
        (stage["stage"], resource, asked, counted["counted"][resource], _from_runs(counted, resource))
        for stage in document["stages"]
        if (counted := stage.get("counted"))
        for resource, asked in counted["asked"].items()
    ]
    heads = ("stage", "resource", "asks for", "counts for", "by")
    return "\n" + draw(heads, rows, kinds="kkrrl") if rows else ""


def _from_runs(counted: Document, resource: str) -> str:
    return f"{plural(counted['runs'], 'run')}, peak {counted['peak'][resource]}"


def _usage_text(document: Document, draw: Draw) -> str:
    """What tasks that succeeded used: of each where that is known, else of the stage."""
    rows, peaks = [], []
    for stage in document["stages"]:
        usage = stage.get("usage")
        if usage is None:
            continue
        if usage.get("peak_cpu") is not None:  # An older gateway does not tell.
            peaks.append((stage["stage"], usage["peak_cpu"]))
        if usage["attempts"] is None:
            rows += _percentile_rows(stage["stage"], usage)
            continue
        rows += [
            (f"{stage['stage']}/{each['index']}", each["attempt"], each["node"], *_measures(each))
            for each in usage["attempts"]
        ]
    if not rows:
        return ""
    shown = USAGE_SHOWN if draw is listed else len(rows)
    left = len(rows) - shown
    more = f"and {plural(left, 'more task')}: see --json\n" if left > 0 else ""
    heads = ("finished task", "attempt", "node", "ran", "memory", "CPU time")
    text = "\n" + draw(heads, rows[:shown], kinds="krkrrr") + more
    return text + "\n" + draw(("stage", "peak of CPU"), peaks, kinds="kr") if peaks else text


PERCENT_NAMES = {50: "median", 100: "most"}


def _percentile_rows(stage: str, usage: Document) -> list[tuple[str, str, str, str, str, str]]:
    """Of a stage of many tasks; an older gateway tells the most memory and all CPU time alone."""
    found = usage.get("percentiles")
    if found is None:
        return [(stage, "", "", *_measured(None, usage["peak_memory"], usage["cpu_ms"]))]
    return [
        (f"{stage}, {PERCENT_NAMES.get(each['percent'], str(each['percent']) + ' %')}", "", "", *_measures(each))
        for each in found
    ]


def _measures(attempt: Document) -> tuple[str, str, str]:
    """Of an attempt; an older gateway does not tell them."""
    return _measured(*(attempt.get(name) for name in ("run_ms", "peak_memory", "cpu_ms")))


def _measured(run_ms: int | None, memory: str | None, cpu_ms: int | None) -> tuple[str, str, str]:
    """How long it ran, its peak of memory, and its CPU time; empty where that was not measured."""
    ran, cpu = ("" if ms is None else span(ms) for ms in (run_ms, cpu_ms))
    return ran, "" if memory is None else rounded(memory), cpu


def _failures_text(document: Document, draw: Draw) -> str:
    """Attempts that failed: on a terminal those alike in one row, for programs a row each."""
    if draw is listed:
        return _alike_failures_text(document["failures"]) + _left_out(document)
    rows = [
        (
            f"{each['stage']}/{each['index']}",
            *(each[name] for name in ("attempt", "node", "reason")),
            *_measures(each)[1:],
            each["detail"],
        )
        for each in document["failures"]
    ]
    if not rows:
        return ""
    heads = ("failed task", "attempt", "node", "reason", "memory", "CPU time", "detail")
    return "\n" + draw(heads, rows, kinds="krkkrrl") + _left_out(document)


def _left_out(document: Document) -> str:
    """Says where a gateway tells of the last failed attempts alone: of all it keeps the number."""
    shown = len(document["failures"])
    failed = document["tasks"]["failed_attempts"] if shown else 0
    return f"These are the last {shown} of {failed:,} failed attempts.\n" if shown < failed else ""


def _failed_tasks_text(document: Document) -> str:
    """Which tasks failed for good, where not all of their attempts are shown; an older gateway does not tell."""
    if not _left_out(document):
        return ""
    return "".join(
        [
            f"Failed for good: {stage['stage']}/{','.join(map(_span_text, stage['failed_tasks']))}\n"
            for stage in document["stages"]
            if stage.get("failed_tasks")
        ]
    )


def _span_text(span: list[int]) -> str:
    first, last = span
    return str(first) if first == last else f"{first}-{last}"


def _alike_failures_text(failures: list[Document]) -> str:
    """A row for the failed attempts of a stage that have one reason and one detail."""
    groups: dict[tuple[str, str, str], list[Document]] = {}
    for each in failures:
        groups.setdefault((each["stage"], each["reason"], each["detail"]), []).append(each)
    rows = []
    for (stage, reason, detail), found in groups.items():
        tasks = ranges_text(sorted({each["index"] for each in found}))
        attempts = ranges_text(sorted({each["attempt"] for each in found}))
        nodes = list(dict.fromkeys(each["node"] for each in found))
        on = nodes[0] if len(nodes) == 1 else plural(len(nodes), "node")
        rows.append((f"{stage}/{tasks}", attempts, f"{len(found):,}", on, reason, detail))
    if not rows:
        return ""
    return "\n" + listed(("failed tasks", "attempts", "failures", "node", "reason", "detail"), rows, kinds="llrkkl")


def _results_text(document: Document, draw: Draw) -> str:
    """Where results lie that were written into the folders in which tasks started, and until when."""
    live = "not before the job ends" if draw is listed else ""
    rows = [
        (each["node"], live if each["until_ms"] is None else moment(each["until_ms"]), folder)
        for each in document.get("results", [])
        for folder in folders_here(each["folder"])
    ]
    if not rows:
        return ""
    text = "\n" + draw(("node", "results until", "in"), rows, kinds="kkk")
    if draw is listed and document["ended_ms"] is not None:
        text += "Sooner if newer results need the room.\n"
    return text


def _places(stage: Document) -> Iterator[tuple[str, int, str]]:
    """Where tasks of a stage run: node, how many, and which where that is known."""
    for node, tasks in stage["nodes"].items():
        indexes = stage["indexes"]
        yield node, tasks, "" if indexes is None else ranges_text(indexes.get(node, []))


def _moment(moment_ms: int | None) -> str:
    return "" if moment_ms is None else moment(moment_ms)


def ranges_text(indexes: list[int]) -> str:
    """Rising numbers, those in a row as a range: `0-3, 7`."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][-1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(map(_span_text, runs))
