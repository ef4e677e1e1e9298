"""Named places where a test makes a service die: armed by the environment alone, and nothing otherwise.

`LARGESSE_FAILPOINT=service:point:n[:action]` acts at the n-th hit (from 1) of that point in that service. Actions:
`kill` (SIGKILL to this process, the default), `raise` (Failpoint), `pause` (SIGSTOP, until SIGCONT).
What does not exist is refused at import: a typing error must not pass for a fault that was survived.
"""

import os
import signal
from dataclasses import dataclass

VARIABLE = "LARGESSE_FAILPOINT"

PLACES = ("consume", "judge", "append", "read_back", "decide", "publish", "close", "snapshot", "task_start", "mark",
          "solve", "pack", "send", "segment", "manifest", "trim", "remove", "states", "note")  # fmt: skip
POINTS = tuple(f"{when}_{place}" for place in PLACES for when in ("before", "after"))
ACTIONS = ("kill", "raise", "pause")


class Failpoint(Exception):
    """What the action `raise` raises. Nothing catches it."""


@dataclass(slots=True)
class Armed:
    """One armed failpoint: `left` is how many hits it still lets pass, this one included."""

    service: str
    point: str
    left: int
    action: str


def parse(text: str) -> Armed | None:
    """Reads the variable's text; None if it is empty. Raises ValueError, with what would be right."""
    if not text:
        return None
    words = text.split(":")
    service, point, count, action = [*words, "kill"][:4] if len(words) in (3, 4) else ("", "", "", "")
    if not service or not count.isdecimal() or int(count) < 1:
        raise ValueError(f"{VARIABLE}={text}: expected service:point:n[:action] with n from 1")
    if point not in POINTS:
        raise ValueError(f"{VARIABLE}={text}: no point {point!r}; there are {', '.join(POINTS)}")
    if action not in ACTIONS:
        raise ValueError(f"{VARIABLE}={text}: no action {action!r}; there are {', '.join(ACTIONS)}")
    return Armed(service, point, int(count), action)


_armed = parse(os.environ.get(VARIABLE, ""))


def hit(service: str, point: str) -> None:
    """Passes `point` of `service`: one comparison when nothing is armed. Raises Failpoint if that was asked for."""
    if _armed is not None:
        _pass(_armed, service, point)


def _pass(armed: Armed, service: str, point: str) -> None:
    assert point in POINTS, f"no failpoint {point!r}"
    if (service, point) != (armed.service, armed.point):
        return
    armed.left -= 1
    if armed.left != 0:
        return
    if armed.action == "raise":
        raise Failpoint(f"{service}:{point}")
    os.kill(os.getpid(), signal.SIGSTOP if armed.action == "pause" else signal.SIGKILL)
