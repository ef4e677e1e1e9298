"""`largesse get jobs`: live jobs, and apart from them those that have ended; once, or again and again."""

from collections.abc import Callable, Iterator
from time import sleep, time
from typing import TYPE_CHECKING

from services.cli.client import Gateway
from services.cli.ending import Unanswered, out, shown
from services.cli.patience import Patience
from services.cli.show import Draw, in_zone, listed, on_terminal, remarked, span, tabbed, width

if TYPE_CHECKING:
    from services.cli.watching import Document

USER_COLUMNS = 80
"""A terminal with fewer does not show whose jobs they are."""
LOOK_S = 2.0
"""Between two looks."""

HEADS = ("job", "state", "queue", "user", "age", "done", "why")


ENDED_SHOWN = 20
"""Ended jobs that a terminal shows where no option chooses jobs: the latest."""


def jobs_text(
    found: "list[Document]", draw: Draw = listed, ended_most: int | None = None, *, now_ms: float | None = None
) -> str:
    """Jobs as tables; on a narrow terminal without their users. For programs all are in one. `ended_most`: the most
    ended jobs that are shown; how many more there are is said. `now_ms`: when they were so; None: now.
    """
    now_ms = time() * 1_000 if now_ms is None else now_ms
    if draw is not listed:
        return draw(HEADS, [_row(job, now_ms) for job in found])
    if not found:
        return "no jobs"
    live = [job for job in found if job["ended_ms"] is None]
    ended = [job for job in found if job["ended_ms"] is not None]
    texts = [_listed(HEADS, [_row(job, now_ms) for job in live], "kkllrrl")] if live else []
    if ended:
        heads = ("ended job", "state", "queue", "user", "ago", "took", "done", "why")
        texts.append(_listed(heads, [_ended_row(job, now_ms) for job in ended[:ended_most]], "kkllrrrl"))
        if ended_most is not None and len(ended) > ended_most:
            texts.append(
                f"and {len(ended) - ended_most:,} more that have ended: --state, --since or --limit shows them\n"
            )
    return "\n".join(texts)


def _listed(heads: tuple[str, ...], rows: list[tuple[object, ...]], kinds: str) -> str:
    if width() >= USER_COLUMNS:
        return remarked(heads, rows, kinds=kinds)
    return remarked(heads[:3] + heads[4:], [row[:3] + row[4:] for row in rows], kinds=kinds[:3] + kinds[4:])


def _row(job: "Document", now_ms: float) -> tuple[object, ...]:
    return (*_about(job), _ago(job["submitted_ms"], now_ms), _done(job), _why(job))


def _ended_row(job: "Document", now_ms: float) -> tuple[object, ...]:
    took = span(job["ended_ms"] - job["submitted_ms"])
    return (*_about(job), _ago(job["ended_ms"], now_ms), took, _done(job), _why(job))


def _about(job: "Document") -> tuple[object, ...]:
    return job["job"], job["state"], job["queue"], job["user"] or job["author"]


def _ago(moment_ms: int, now_ms: float) -> str:
    return span(max(0, now_ms - moment_ms))


def _done(job: "Document") -> str:
    return f"{job['tasks']['succeeded']}/{job['tasks']['total']}"


def _why(job: "Document") -> str:
    return in_zone(job["why"] or job["detail"])


def watch_jobs(look: "Callable[[], list[Document]]", ended_most: int | None = None) -> None:
    """Shows jobs until Ctrl-C: drawn again on a terminal; anywhere else a row for each job that has changed."""
    if on_terminal():
        _drawn(_looks(look), ended_most)
        return
    out(tabbed(HEADS, []))
    before: dict[str, tuple[object, ...]] = {}
    for found in _looks(look):
        now = {job["job"]: (*_about(job), _done(job), _why(job)) for job in found}
        news = [job for job in found if before.get(job["job"]) != now[job["job"]]]
        out("".join(tabbed(("",), [_row(job, time() * 1_000)]) for job in news))
        before = now


def _looks(look: "Callable[[], list[Document]]") -> "Iterator[list[Document]]":
    patience = Patience()
    while True:
        try:
            found = look()
        except Unanswered as why:
            patience.wait(why)
            continue
        patience.answered()
        yield found
        sleep(LOOK_S)


def _drawn(looks: "Iterator[list[Document]]", ended_most: int | None) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="ellipsis") as live:
        for found in looks:
            live.update(Text.from_ansi(shown(jobs_text(found, ended_most=ended_most))), refresh=True)


def listing(gateway: Gateway, wanted: dict[str, object]) -> "list[Document]":
    """The jobs that a gateway lists."""
    found: list[Document] = gateway.get("/v1/jobs", "jobs", **wanted)["jobs"]
    return found
