"""`largesse top`: a cell at a glance, drawn again and again on a terminal, or once."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import fill

from services.cli.client import Gateway
from services.cli.ending import Unanswered, out, out_json, shown
from services.cli.getting import node_row, numbered
from services.cli.job_lists import jobs_text, listing
from services.cli.patience import Patience
from services.cli.queues import Document
from services.cli.show import drawing, in_zone, listed, moment, on_terminal, plural, rounded, span, width

LOOK_S = 2.0
"""Between two looks, unless a key is pressed."""
ROWS_MOST = 500
"""Jobs or nodes that a page has at most; what the terminal has no room for is cut."""
REASONS_SHOWN = 8

ORDERS = ("tree", "has", "waiting", "name")
"""In which queues may be sorted, one after another by the key `s`."""

KEYS = "q ends, s sorts, up and down choose a queue, Enter shows its jobs, n nodes, w what waits, Esc goes back"


@dataclass(slots=True)
class Page:
    """What is shown. `chosen`: the queue on which the cursor stands; `inside`: the one whose jobs are shown."""

    kind: str = "queues"
    order: str = ORDERS[0]
    chosen: int = 0
    inside: str = ""

    def press(self, key: str, queues: list[str]) -> None:
        """A key other than the one that ends it."""
        if key == "s":
            self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        elif key in ("up", "k"):
            self.chosen = max(0, self.chosen - 1)
        elif key in ("down", "j"):
            self.chosen = min(max(0, len(queues) - 1), self.chosen + 1)
        elif key == "enter" and self.kind == "queues" and queues:
            self.kind, self.inside = "jobs", queues[min(self.chosen, len(queues) - 1)]
        elif key == "n":
            self.kind = "nodes"
        elif key == "w":
            self.kind = "waiting"
        elif key == "esc":
            self.kind = "queues"


def top(gateway: Gateway, *, once: bool, json: bool) -> None:
    """Draws the cell until `q` or Ctrl-C; once where that is asked for, or stdout is no terminal."""
    if json or once or not (on_terminal() and sys.stdin.isatty()):
        summary = _summary(gateway)
        if json:
            out_json(summary)
            return
        now_ms = gateway.moment_ms()
        out(head_text(summary, now_ms) + "\n" + queues_text(summary, Page()) + "\n" + waiting_text(summary, now_ms))
        return
    _run(gateway)


def _summary(gateway: Gateway) -> Document:
    found: Document = gateway.get("/v1/summary", "queues", "waiting", "seq")
    return found


# ---------------------------------------------------------------- texts
def head_text(summary: Document, now_ms: float) -> str:
    """Which cell this is, how far its log is, how full it is."""
    jobs, nodes = summary["jobs"], summary["nodes"]
    ago = span(max(0.0, now_ms - summary["time"]))
    lines = [
        f"{summary['cell']} ({summary['preset']}): record {summary['seq']:,} of {ago} ago, round {summary['round']:,}",
        f"jobs: {_counts(jobs, ('running', 'waiting'))}; nodes: {_counts(nodes, tuple(nodes))}",
        "in use: " + (", ".join(_used(summary, kind) for kind in summary["capacity"]) or "there is no node"),
    ]
    return "".join(f"{fill(line, width()) if on_terminal() else line}\n" for line in lines)


def _counts(found: dict[str, int], names: tuple[str, ...]) -> str:
    return ", ".join(f"{found.get(name, 0):,} {name}" for name in names) or "none"


def _used(summary: Document, kind: str) -> str:
    return f"{kind} {rounded(summary['used'][kind])} of {rounded(summary['capacity'][kind])}"


def rows_of(summary: Document, order: str) -> list[tuple[int, Document]]:
    """The queues below the root with their depths, in an order of ORDERS."""
    rows = [(depth, queue) for depth, queue in _walk(summary["queues"], 0) if queue["queue"]]
    if order == "has":
        rows.sort(key=lambda row: (-row[1]["allocated"], row[1]["queue"]))
    elif order == "waiting":
        rows.sort(key=lambda row: (-_tasks(summary, row[1]["queue"]), row[1]["queue"]))
    elif order == "name":
        rows.sort(key=lambda row: row[1]["queue"])
    return rows


def _walk(queue: Document, depth: int) -> Iterator[tuple[int, Document]]:
    yield depth, queue
    for child in queue["children"]:
        yield from _walk(child, depth + 1)


def _tasks(summary: Document, path: str) -> int:
    """Tasks that wait in a queue and those below it."""
    return sum(
        each["tasks"] for each in summary["waiting"] if each["queue"] == path or each["queue"].startswith(f"{path}/")
    )


def queues_text(summary: Document, page: Page, *, cursor: bool = False) -> str:
    """Queues with what they hold and are due, and what waits in them."""
    rows = []
    for at, (depth, queue) in enumerate(rows_of(summary, page.order)):
        path = queue["queue"]
        name = path if not on_terminal() or page.order != "tree" else "  " * (depth - 1) + path.rpartition("/")[2]
        mark = ("> " if at == page.chosen else "  ") if cursor else ""
        jobs = queue["jobs"]
        rows.append(
            (
                f"{mark}{name}{' !' if queue['breach'] else ''}",
                *(_percent(queue[field]) for field in ("guaranteed", "fair", "allocated")),
                jobs["running"],
                jobs["waiting"],
                _tasks(summary, path),
            )
        )
    heads = ("queue", "guaranteed", "due", "has", "run", "wait", "tasks wait")
    return drawing()(heads, rows, kinds="krrrrrr") if rows else "no queues\n"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def waiting_text(summary: Document, now_ms: float) -> str:
    """Why tasks wait, by queue and reason."""
    rows = [
        (each["reason"], each["queue"], each["tasks"], "" if since is None else span(max(0.0, now_ms - since)))
        for each in summary["waiting"]
        for since in (each["since_ms"],)
    ]
    if not rows:
        return "no task waits\n"
    heads = ("waits for", "queue", "tasks", "oldest job")
    text = drawing()(heads, rows[:REASONS_SHOWN] if on_terminal() else rows, kinds="kkrr")
    more = len(rows) - REASONS_SHOWN
    return text + (f"and {plural(more, 'line')} more\n" if more > 0 and on_terminal() else "")


def _page_text(gateway: Gateway, summary: Document, page: Page) -> str:
    now_ms = gateway.moment_ms()
    head = head_text(summary, now_ms)
    if page.kind == "jobs":
        found = listing(gateway, {"queue": page.inside, "limit": ROWS_MOST, "state": ["waiting", "running"]})
        return f"{head}\n{page.inside}\n{jobs_text(found, listed, now_ms=now_ms)}"
    if page.kind == "nodes":
        nodes = sorted(gateway.get("/v1/nodes", "nodes")["nodes"], key=lambda node: numbered(node["node"]))
        rows = [node_row(node, now_ms) for node in nodes[:ROWS_MOST]]
        return f"{head}\n{listed(('node', 'state', 'tasks', 'free'), rows, kinds='kkrl')}"
    if page.kind == "waiting":
        return f"{head}\n{waiting_text(summary, now_ms)}"
    return f"{head}\n{queues_text(summary, page, cursor=True)}\n{waiting_text(summary, now_ms)}"


# ---------------------------------------------------------------- the terminal
def _run(gateway: Gateway) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    page, patience = Page(), Patience()
    summary = _summary(gateway)  # Where nothing answers, that is said before the screen is cleared.
    console = Console(highlight=False)
    with (
        _single_keys() as key,
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while True:
            try:
                text = _page_text(gateway, summary, page)
                patience.answered()
            except Unanswered as why:
                patience.wait(why)
                continue
            foot = in_zone(f"{moment(summary['time'])}; sorted by {page.order}; {KEYS}")
            live.update(Text.from_ansi(shown(f"{text}\n{foot}\n")), refresh=True)
            pressed = key(LOOK_S)
            if pressed == "q":
                return
            page.press(pressed, [queue["queue"] for _, queue in rows_of(summary, page.order)])
            try:
                summary = _summary(gateway)
            except Unanswered as why:
                patience.wait(why)


@contextmanager
def _single_keys() -> Iterator[Callable[[float], str]]:
    """Keys come one by one, without Enter; gives what waits for one, for a while, and says its name ("" for none)."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def key(seconds: float) -> str:
        if not select.select([terminal], [], [], seconds)[0]:
            return ""
        return key_named(os.read(terminal, 16))

    try:
        yield key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def key_named(pressed: bytes) -> str:
    """The name of a key by what the terminal sends; an end of its input is `q`."""
    names = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"\x1b": "esc", b"": "q"}
    names |= {b"\n": "enter", b"\r": "enter"}
    return names.get(pressed[:3], pressed[:1].decode(errors="replace").lower())
