"""`largesse submit --dry-run`: what would become of a job, as text."""

import json

from services.cli.client import Row
from services.cli.show import described, in_zone, on_terminal, percent, plural, tabbed
from services.cli.why import start_text

REASONS_SHOWN = 4
PLACES_SHOWN = 8
"""Nodes that are named on a terminal."""
AT_WORK = ("starting", "running")
"""Reasons that say no more than the places do."""


def trial_text(answer: Row) -> str:
    """For a terminal, folded to its width."""
    rows = [("job", answer["job"])]
    if answer["state"] == "repeated":
        return described([*rows, ("state", "in the cell already, word for word")]) + _END
    rows += [("state", "would be admitted"), ("class", answer["class"] or "not judged yet")]
    rows += [("queue", _queue_text(answer)), ("starts", _start_text(answer))]
    rows += [(f"stage {stage}", text) for stage, text in _places(answer)]
    rows += [("waits", text) for text in _waits(answer)[:REASONS_SHOWN]]
    return described(rows) + _END


_END = "\ndry run: nothing has been submitted\n"


def trial_rows(answer: Row) -> str:
    """For a pipe: a row a line."""
    rows = [("job", answer["job"]), ("state", answer["state"])]
    if answer["state"] != "repeated":
        rows += [("class", answer["class"] or ""), ("queue", answer["queue"])]
        rows += [(name, "" if (value := answer["shares"][name]) is None else str(value)) for name in _SHARES]
        rows += [("start", in_zone(_start_text(answer))), ("waiting", str(answer["waiting"]))]
        rows += [("place", f"{each['stage']} {each['node']} {each['tasks']}") for each in answer["places"]]
        rows += [("waits", text) for text in _waits(answer)]
    return tabbed(("", ""), rows)


_SHARES = ("guaranteed", "fair", "allocated")


def shown(answer: Row, spec: bytes | None = None) -> str:
    """As what it is written to takes it. `spec`: what the file stands for, where that says it in short."""
    if on_terminal():
        return (
            trial_text(answer) if spec is None else f"{json.dumps(json.loads(spec), indent=2)}\n\n{trial_text(answer)}"
        )
    text = trial_rows(answer)
    return text if spec is None else f"{text.rstrip()}\nspec\t{json.dumps(json.loads(spec))}\n"


def with_spec(answer: Row, spec: bytes) -> Row:
    """The answer as one document, beside what was sent."""
    return answer | {"spec": json.loads(spec)}


def _queue_text(answer: Row) -> str:
    shares = answer["shares"]
    texts = [f"has {percent(shares['allocated'])} of the cell now"]
    texts += [f"{name} {percent(shares[name])}" for name in ("guaranteed", "fair") if shares[name] is not None]
    return f"{answer['queue']}: {', '.join(texts)}"


def _start_text(answer: Row) -> str:
    tasks = sum(each["tasks"] for each in answer["places"])
    if tasks:
        rest = answer["waiting"]
        return f"{plural(tasks, 'task')} in the next round" + (f", {rest:,} would wait" if rest else "")
    if answer["start"] is None:
        return "not known when"
    return start_text(answer["start"], answer["at"]["time"])


def _places(answer: Row) -> list[tuple[str, str]]:
    """By stage, which nodes its first tasks start on."""
    stages: dict[str, list[str]] = {}
    for each in answer["places"]:
        stages.setdefault(each["stage"], []).append(f"{each['tasks']:,} on {each['node']}")
    found = []
    for stage, texts in stages.items():
        more = len(texts) - PLACES_SHOWN
        found.append((stage, ", ".join(texts[:PLACES_SHOWN]) + (f" and on {more:,} more nodes" if more > 0 else "")))
    return found


def _waits(answer: Row) -> list[str]:
    return [in_zone(each["text"]) for each in answer["reasons"] if each["reason"] not in AT_WORK]
