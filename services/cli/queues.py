"""Texts about queues: the tree with its shares and limits, and what another config would do to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from schemas.presets import PRESETS
from services.cli.show import moment, plural, rendered, rounded, tabbed, table, width

Document = dict[str, Any]

NAME_COLUMNS = 16
"""So wide may the names of the tree be before columns are left out for them; then they are folded."""
SUBMITTERS_SHOWN = 5
IGNORED = " (ignored)"
"""Marks a limit that does not count."""
BROKEN = "!"
"""Marks a queue that has had less than it is guaranteed for too long."""


@dataclass(frozen=True, slots=True)
class _Column:
    """`short` stands above where `head` is too wide. The column with the highest `spare` goes first; 0: it stays."""

    head: str
    short: str
    cells: list[str]
    spare: int = 0

    def width(self, *, short: bool) -> int:
        return max(len(self.short if short else self.head), *map(len, self.cells))


TWO_GUARANTEES = (
    "guaranteed, the limit: what the config says; the column: what the queue can count on now, by that or by its "
    "weight, nothing while it asks for nothing"
)
"""Said where a queue has such a limit: the column and the limit have one name."""


def tree_text(tree: Document) -> str:
    """The tree as a table that fits the terminal; below it limits and broken guarantees, where there are any."""
    queues = list(_walk(tree))
    drawn, shortened = _fitted("queue", [name for name, _ in queues], _columns([queue for _, queue in queues]))
    text = rendered(drawn) + "\n" + _legend(_base(queues) + _unshared(tree, queues), shortened)
    limits = [(queue["queue"] or "root", message) for _, queue in queues if (message := limits_text(queue))]
    if limits:
        text += "\n" + rendered(table(("queue", "limits"), limits))
    if any(queue["limits"]["guaranteed"] for _, queue in queues):
        text += _paragraph(TWO_GUARANTEES)
    if any(IGNORED in message for _, message in limits):
        text += _paragraph(f"ignored: does not count under the preset {tree['preset']}, or below a list of jobs")
    promised = [(queue["queue"] or "root", _limit(queue["promised"])) for _, queue in queues if queue["promised"]]
    if promised:
        text += "\n" + rendered(table(("queue", "promised now, beside the shares"), promised))
    if len(queues) > 1 and (facts := PRESETS.get(tree.get("preset", ""))) is not None and facts.may_starve:
        text += _paragraph(f"{tree['preset']} is a baseline: a queue may get nothing for as long as others have work")
    broken = [(BROKEN, _broken_text(queue)) for _, queue in queues if queue["breach"] is not None]
    return text + ("\n" + rendered(table(("", ""), broken)) if broken else "")


def _base(queues: list[tuple[str, Document]]) -> str:
    """What shares are of."""
    if not any(queue["promised"] for _, queue in queues):
        return "shares in % of the cell"
    return "has in % of the cell; guaranteed, fair and lent in % of what is not promised"


def tree_rows(tree: Document) -> str:
    """The tree for programs: a queue a line, by its whole path, shares in percent of the cell."""
    heads = ("queue", "weight", "guaranteed", "fair", "has", "of", "lent", "borrowed", "run", "wait", "parked")
    rows = []
    for _, queue in _walk(tree):
        shares = [_percent(queue[name]) for name in ("guaranteed", "fair", "allocated")]
        moved = [_percent(queue["lent"]), _percent(queue["borrowed"])]
        jobs = [queue["jobs"][state] for state in ("running", "waiting", "parked")]
        limits = limits_text(queue)
        broken = _broken_text(queue) if queue["breach"] is not None else ""
        said = [queue["queue"] or "root", f"{queue['weight']:g}", *shares, queue["resource"], *moved, *jobs]
        rows.append((*said, limits, broken, _limit(queue["promised"])))
    return tabbed((*heads, "limits", "broken", "promised"), rows)


def limits_text(queue: Document) -> str:
    """What the config says of a queue beside its weight: `fifo; max cpu 4; 2 jobs run at once`."""
    limits, texts = queue["limits"], [queue["policy"]] if queue["policy"] else []
    for name in ("guaranteed", "max"):
        void = queue.get("ignored", {}).get(name, ())  # An older gateway does not tell.
        if counts := {kind: amount for kind, amount in limits[name].items() if kind not in void}:
            texts.append(f"{name} {_limit(counts)}")
        if void:
            texts.append(f"{name} {_limit({kind: limits[name][kind] for kind in void})}{IGNORED}")
    if (most := limits["running_jobs_max"]) is not None:
        texts.append(f"{plural(most, 'job')} run{'s' if most == 1 else ''} at once")
    if (most := limits.get("user_jobs_max")) is not None:  # An older gateway does not tell.
        texts.append(f"{plural(most, 'job')} of one user")
    if (most := limits.get("user_running_max")) is not None:  # The same.
        texts.append(f"{plural(most, 'task')} of one user run{'s' if most == 1 else ''} at once")
    if users := limits["submitters"]:
        more = f" and {len(users) - SUBMITTERS_SHOWN} more" if len(users) > SUBMITTERS_SHOWN else ""
        texts.append(f"from {', '.join(users[:SUBMITTERS_SHOWN])}{more}")
    return "; ".join(texts)


def _unshared(tree: Document, queues: list[tuple[str, Document]]) -> str:
    """Says why columns are empty; nothing where a queue has shares of its own."""
    if not tree["children"] or any(queue["guaranteed"] is not None for _, queue in queues):
        return ""
    under = f" under {tree['preset']}" if tree.get("preset") else ""
    return f"; guaranteed, fair, lent and borrowed are empty: no queue has shares of its own{under}"


def _limit(amounts: dict[str, str]) -> str:
    """`cpu 2, memory 7.5Gi`."""
    return ", ".join(f"{resource} {rounded(amount)}" for resource, amount in amounts.items())


def _walk(queue: Document, depth: int = 0, above: str = "") -> Iterator[tuple[str, Document]]:
    """Every queue with its name as the tree shows it; where there is no tree, a name may have several parts."""
    name = queue["queue"].removeprefix(f"{above}/") if above else queue["queue"] or "root"
    yield "  " * depth + (f"{name} {BROKEN}" if queue["breach"] is not None else name), queue
    for child in queue["children"]:
        yield from _walk(child, depth + 1, queue["queue"])


def _columns(queues: list[Document]) -> list[_Column]:
    def shares(name: str) -> list[str]:
        return [_percent(queue[name]) for queue in queues]

    def jobs(state: str) -> list[str]:
        return [str(queue["jobs"][state]) for queue in queues]

    found = [
        _Column("weight", "weight", [f"{queue['weight']:g}" for queue in queues], 4),
        _Column("guaranteed", "guar.", shares("guaranteed"), 1),
        _Column("fair", "fair", shares("fair")),
        _Column("has", "has", shares("allocated")),
        _Column("of", "of", [queue["resource"] or "" for queue in queues], 5),
        _Column("lent", "lent", [_percent(queue["lent"] or None) for queue in queues], 6),
        _Column("borrowed", "borr.", [_percent(queue["borrowed"] or None) for queue in queues], 3),
        _Column("run", "run", jobs("running")),
        _Column("wait", "wait", jobs("waiting")),
    ]
    if any(queue["jobs"]["parked"] for queue in queues):
        found.append(_Column("parked", "park", jobs("parked"), 2))
    return found


def _fitted(head: str, names: list[str], columns: list[_Column]) -> tuple[object, list[tuple[str, str]]]:
    """Heads are shortened, columns moved together, then left out, until names have their room; and the short heads."""
    wanted, short, gap = max(len(head), *map(len, names)), False, 2

    def room() -> int:
        return width() - sum(gap + column.width(short=short) for column in columns)

    short = room() < wanted
    gap = 1 if room() < wanted else 2
    while room() < min(wanted, NAME_COLUMNS) and any(column.spare for column in columns):
        columns = [column for column in columns if column.spare < max(each.spare for each in columns)]
    heads = [column.short if short else column.head for column in columns]
    cells = zip(*(column.cells for column in columns), strict=True)
    rows = [(name, *row) for name, row in zip(names, cells, strict=True)]
    kinds = "".join("k" if head == "of" else "r" for head in heads)
    shortened = [(each.short, each.head) for each in columns if short and each.short != each.head]
    return table((head, *heads), rows, kinds="l" + kinds, gap=gap), shortened


def _legend(text: str, shortened: list[tuple[str, str]]) -> str:
    return _paragraph("; ".join([text, *(f"{short}: {head}" for short, head in shortened)]))


def _paragraph(text: str) -> str:
    return rendered(table(("",), [(text,)]))


def _percent(share: float | None) -> str:
    """One digit behind the point, two of what is below one percent."""
    return "" if share is None else f"{100 * share:.{2 if 0 < share < 0.01 else 1}f}"


def _broken_text(queue: Document) -> str:
    breach = queue["breach"]
    most = f"; {breach['winner']} has most beyond its own" if breach["winner"] else ""
    if not breach["placeable"]:
        most = "; none of its waiting tasks finds room on a node"
    had = f"has had less since {moment(breach['since_ms'])}, {_percent(queue['allocated'])} % now"
    return f"{queue['queue'] or 'root'} is guaranteed {_percent(breach['guaranteed'])} % and {had}{most}"


# ---------------------------------------------------------------- what another config would do
SIGNS = {"new": "+ ", "gone": "- ", "set": "  ", "moved": "  "}


def effect_text(answer: Document) -> str:
    """What a dry run has found: knobs, queues whose share or settings would change, and what deserves a second look."""
    if not answer["changed"]:
        return "in force already: nothing would change\n"
    text = ""
    if answer["set"]:
        text = rendered(
            table(("knob", "now", "then"), [(name, *sides.values()) for name, sides in answer["set"].items()])
        )
    found = answer["queues"]
    text += "\n" if text else ""
    if found:
        names = [SIGNS[each["change"]] + (each["queue"] or "root") for each in found]
        drawn, shortened = _fitted("  queue", names, _moves(found))
        text += rendered(drawn) + "\n" + _legend(f"shares in % of the cell; + new, - gone{_idle(found)}", shortened)
    else:
        text += "no queue would have another share\n"
    limits = [(each["queue"] or "root", moved) for each in found if (moved := _limits_move(each))]
    if limits:
        text += "\n" + rendered(table(("queue", "limits"), limits))
    for note in answer["notes"]:
        text += "\n" + rendered(table(("", ""), [("note", note)]))
    return text + "\n" + _paragraph("dry run: nothing has been changed")


def _idle(found: list[Document]) -> str:
    """Says why all shares are nothing; empty where one is not."""
    sides = [side for each in found for side in (each["before"], each["after"]) if side is not None]
    shares = [side[name] for side in sides for name in ("guaranteed", "fair") if side[name] is not None]
    return "" if any(shares) or not shares else "; all are 0 as long as no queue asks for anything"


def _moves(found: list[Document]) -> list[_Column]:
    return [
        _Column("weight", "weight", [_move(each, lambda side: f"{side['weight']:g}") for each in found], 1),
        _Column(
            "guaranteed",
            "guar.",
            [_move(each, lambda side: _percent(side["guaranteed"]) or "none") for each in found],
            2,
        ),
        _Column("fair", "fair", [_move(each, lambda side: _percent(side["fair"]) or "none") for each in found]),
    ]


def _move(queue: Document, text: Callable[[Document], str]) -> str:
    """`now -> then`, or one of them where they read alike or there is only one."""
    sides = [text(side) for side in (queue["before"], queue["after"]) if side is not None]
    return " -> ".join(dict.fromkeys(sides))


def _limits_move(queue: Document) -> str:
    """Limits, where they would be others."""
    was, would = (limits_text(queue[side]) if queue[side] is not None else "" for side in ("before", "after"))
    if queue["change"] == "new":
        return would
    return "" if was == would or queue["after"] is None else f"{was or 'none'} -> {would or 'none'}"
