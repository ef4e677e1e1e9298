"""What `largesse get classes` shows: classes with their pools, the pools over time, forecasts against what came."""

from typing import Any

from services.cli.show import listed, moment, rounded

HISTORY_SHOWN_MAX = 5
"""So many of the latest changes of the pools are shown on a terminal; `--json` has all that the gateway keeps."""

HEADS = ("class", "up to", "pool", "running", "waiting", "held", "to come within")
KINDS = "krrrrll"
OFF = "Classes have no pools of their own: `classes=on`, or a preset that has them, switches them on."


Document = dict[str, Any]
"""As the gateway answers it."""


def class_rows(found: Document) -> list[tuple[object, ...]]:
    """A row a class of the gateway's document."""
    rows: list[tuple[object, ...]] = []
    for each in found["classes"]:
        coming = [f"{part['seconds']} s: {amounts_text(part['amount'])}" for part in each["coming"] if part["amount"]]
        rows.append(
            (
                each["class"],
                "" if each["threshold"] is None else f"{each['threshold']:.1%}",
                "" if each["pool"] is None else f"{each['pool']:.1%}",
                each["jobs"]["running"],
                each["jobs"]["waiting"],
                amounts_text(each["held"]),
                "; ".join(coming),
            )
        )
    return rows


def about_pools(found: Document) -> str:
    """What a terminal shows below the classes: how the pools moved last, and how far forecasts were off."""
    if found["pools"] == "off":
        return OFF
    names = [each["class"] for each in found["classes"]]
    moves = [row for row in found["history"] if len(row["pools"]) == len(names)][-HISTORY_SHOWN_MAX:]
    parts = []
    if moves:
        rows = [(moment(row["since_ms"]), *(f"{pool:.1%}" for pool in row["pools"])) for row in moves]
        parts.append(listed(("pools since", *names), rows, kinds="k" + "r" * len(names)))
    if found["scores"]:
        seconds = [each["seconds"] for each in found["scores"][0]["errors"]]
        heads = ("mean error of forecasts", *(f"{horizon} s" for horizon in seconds))
        errors = [(_forecaster(score, found), *map(_error, score["errors"])) for score in found["scores"]]
        parts.append(listed(heads, errors, kinds="k" + "r" * len(seconds)))
    return "\n".join(parts)


def _forecaster(score: Document, found: Document) -> str:
    return f"{score['forecaster']} (in use)" if score["forecaster"] == found["forecaster"] else str(score["forecaster"])


def _error(each: Document) -> str:
    """A dash before a forecast has been compared with what came."""
    return f"{each['error']:.2%}" if each["forecasts"] else "-"


def amounts_text(quantities: dict[str, str]) -> str:
    """Quantities of the gateway's, short."""
    return ", ".join(f"{kind} {rounded(amount)}" for kind, amount in quantities.items())
