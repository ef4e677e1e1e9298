"""How far a reader has to go who follows one decision through a core: the files that it enters, and how often it comes
back to one that it has left. `python -m benchmarks.walks`, with cores as they stand.

Counted are the calls of the project's own functions, in order, while `decide` of a service runs: the first job of B-4
under `drf` and under the default preset, round by round. Comprehensions and constructors belong to whoever calls them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from benchmarks.variety import carbyne
from schemas import Policy

ROOT = str(Path(__file__).resolve().parents[1])
OF_THEIR_CALLER = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>", "__init__")
SERVICES = ("fairness", "altruism", "leftover")


class Walk:
    """The files that one decision goes through, in order."""

    def __init__(self) -> None:
        self.trail: list[str] = []

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """For `sys.setprofile`: notes where the walk is after a call or a return."""
        if event == "call" and frame.f_code.co_name in OF_THEIR_CALLER:
            return
        at: FrameType | None = frame if event == "call" else frame.f_back if event == "return" else None
        while at is not None and at.f_code.co_name in OF_THEIR_CALLER:
            at = at.f_back
        name = at.f_code.co_filename if at is not None else ""
        if name.startswith(ROOT) and name != __file__ and (not self.trail or self.trail[-1] != name):
            self.trail.append(name)

    def returns(self) -> int:
        """How often it came back to a file that it had left."""
        return len(self.trail) - len(dict.fromkeys(self.trail))


def walks(preset: str, services: tuple[str, ...] = SERVICES) -> dict[str, list[Walk]]:
    """By service, the walks of its rounds under a preset."""
    found: dict[str, list[Walk]] = {service: [] for service in services}

    def followed(service: str, decide: Callable[..., Any]) -> Callable[..., Any]:
        def decide_and_follow(*arguments: Any) -> Any:
            walk = Walk()
            found[service].append(walk)
            sys.setprofile(walk.profile)
            try:
                return decide(*arguments)
            finally:
                sys.setprofile(None)

        return decide_and_follow

    decides = {service: sys.modules[f"services.{service}.core"].decide for service in services}
    for service, decide in decides.items():
        sys.modules[f"services.{service}.core"].decide = followed(service, decide)  # type: ignore[attr-defined]
    try:
        carbyne("B-4", "B2.nodes", preset, 1, 100)
    finally:
        for service, decide in decides.items():
            sys.modules[f"services.{service}.core"].decide = decide  # type: ignore[attr-defined]
    return found


def main() -> None:
    """The table: medians over the rounds of each service."""
    print(f"{'preset':9} {'decide of':10} {'rounds':>7} {'files':>6} {'returns':>8}   longest: files, returns")
    for preset in ("drf", Policy().preset):
        for service, of_rounds in walks(preset).items():
            files = [len(dict.fromkeys(walk.trail)) for walk in of_rounds]
            returns = [walk.returns() for walk in of_rounds]
            most = max(range(len(returns)), key=returns.__getitem__)
            row = f"{preset:9} {service:10} {len(of_rounds):7} {median(files):6.0f} {median(returns):8.0f}"
            print(f"{row}   {files[most]}, {returns[most]}")


if __name__ == "__main__":
    main()
