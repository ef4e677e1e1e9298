"""The planner as a filter: one problem as JSON on stdin, its answer as JSON on stdout (docs/reservations.md).

Exit 0 with the answer, also where it is no; 2 with one line on stderr if the problem is malformed.
"""

import json
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from schemas.edge.base import Malformed
from schemas.edge.strict_json import loads_exact
from services.planner.offline.problem import BadProblem, Problem, bad, listed, number, record, shown, text
from services.planner.offline.reservation import clock_of, plain, recurrence_of, reservation, windowed_of
from services.planner.planning.book import Book
from services.planner.planning.limits import average_above, first_above
from services.planner.planning.profile import Profile
from services.planner.planning.read_rdl import BadRdl, Grid, Number, check
from services.planner.planning.replan import Promise, not_kept
from services.planner.rdl.recurrence import least_distance_s
from services.planner.rdl.times import Clock

Json = dict[str, Any]


def main() -> int:
    """Read stdin, write stdout. Returns the exit code."""
    try:
        answer = solve(parsed(sys.stdin.read()))
    except (BadProblem, ValueError, RecursionError) as error:  # ValueError: not JSON, or not UTF-8.
        print(f"cannot solve this: {error}", file=sys.stderr)
        return 2
    print(json.dumps(answer, ensure_ascii=False))
    return 0


def solve(raw: Any) -> Json:
    """The answer to a problem as parsed from JSON, decimals as Fractions. Raises BadProblem."""
    problem = Problem(raw)
    return _SOLVERS[problem.kind](problem)


def parsed(document: str) -> Any:
    """JSON with its decimals as Fractions. Raises ValueError and BadProblem."""
    try:
        return loads_exact(document)
    except Malformed as fault:
        raise BadProblem(str(fault)) from None


def _policy(problem: Problem) -> Json:
    """Whether profiles may be added, one after the other."""
    grid = problem.grid()
    limits = problem.user_limits(grid)
    instant_most = limits.instant_most(grid.capacity)
    book = Book(grid.capacity, by_user=True)
    held: dict[str, tuple[str, list[tuple[int, int, list[int]]]]] = {}
    for i, each in enumerate(listed(problem.input, "existing", default=True)):
        path = f"input.existing[{i}]"
        if not isinstance(each, dict):
            bad(path, 'has to be an object with "id", "user" and "profile"')
        runs = problem.profile(each.get("profile"), f"{path}.profile", grid)
        held[text(each, "id", path)] = (str(each.get("user") or ""), runs)
        _put(book, held[each["id"]], 1)
    results: list[Json] = []
    for i, each in enumerate(listed(problem.input, "adds")):
        path = f"input.adds[{i}]"
        if not isinstance(each, dict) or each.get("op", "add") not in ("add", "update"):
            bad(f"{path}.op", "has to be add or update")
        name, user = text(each, "id", path), str(each.get("user") or "")
        old = held.get(name)
        new = (user, problem.profile(each.get("profile"), f"{path}.profile", grid))
        reason = _refused(each.get("op", "add"), name, user, old)
        if not reason:
            if old is not None:
                _put(book, old, -1)
            _put(book, new, 1)
            reason = _broken(book, grid, new, limits, instant_most)
            if reason:
                _put(book, new, -1)
                if old is not None:
                    _put(book, old, 1)
            else:
                held[name] = new
        results.append({"accepted": False, "reason": reason} if reason else {"accepted": True})
    return {"results": results}


def _refused(op: str, name: str, user: str, old: Any) -> str:
    if op == "add" and old is not None:
        return f"name_taken: {name} is reserved already: update it"
    if op == "update" and old is None:
        return f"unknown: there is no reservation {name}"
    if old is not None and old[0] != user:
        return f"not_owner: {name} belongs to another user"
    return ""


def _broken(book: Book, grid: Grid, new: Any, limits: Any, instant_most: Any) -> str:
    user, runs = new
    names = list(grid.resources)
    for begin, end, _ in runs:
        if above := first_above(book.used, grid.capacity, begin, end):
            at, resource = above
            return f"over_commit: at {plain(grid.seconds(at))} s more {names[resource]} would be promised than there is"
        own = book.of_user(user)
        if instant_most is not None and (above := first_above(own, instant_most, begin, end)):
            at, resource = above
            when = plain(grid.seconds(at))
            return f"user_instant_limit: at {when} s {user} would hold more {names[resource]} than its share"
        found = average_above(own, grid.capacity, limits, begin, end)
        if found is not None:
            return (
                f"user_average_limit: in some window of {plain(grid.seconds(limits.window))} s {user} would hold more"
                f" {names[found]} on average than its share"
            )
    return ""


def _put(book: Book, promise: tuple[str, list[tuple[int, int, list[int]]]], sign: int) -> None:
    user, runs = promise
    for begin, end, amounts in runs:
        book.add(user, begin, end, amounts, sign)


def _validation(problem: Problem) -> Json:
    """Whether a request could be met by an empty cell."""
    grid = problem.grid()
    now = number(problem.input, "now", default=0)
    known = clock_of(problem)
    try:
        windowed = windowed_of(problem.input.get("rdl"), known, grid)
        check(windowed, grid, now)
        recurrence = recurrence_of(problem.input.get("recurrence"))
        _check_distance(recurrence, grid.seconds(windowed.end - windowed.begin), known)
    except BadRdl as fault:
        return {"valid": False, "reason": str(fault)}
    return {"valid": True}


def _check_distance(recurrence: str | int | None, length_s: Number, known: Clock) -> None:
    """Occurrences must not overlap."""
    try:
        period = least_distance_s(recurrence, known) if isinstance(recurrence, str) else recurrence
    except ValueError as error:
        raise BadRdl("recurrence", str(error)) from None
    if period is not None and period < length_s:
        raise BadRdl(
            "recurrence",
            f"comes again after {period} s, before its window of {plain(length_s)} s has ended: it overlaps",
        )


def _no_gap(problem: Problem) -> Json:
    """Whether stages touch the placed one on the side they are for, and have no gap inside."""
    step = number(problem.input, "step_s", least=Fraction(1, 1000), default=1)
    placed = _spans(listed(problem.input, "placed_stage"), "input.placed_stage", step)
    found = []
    for i, each in enumerate(listed(problem.input, "candidates")):
        path = f"input.candidates[{i}]"
        if not isinstance(each, dict) or each.get("position") not in ("before", "after"):
            bad(f"{path}.position", "has to be before or after")
        spans = _spans(listed(each, "stage", path=path), f"{path}.stage", step)
        meets = True
        if spans and placed:
            first, last = min(a for a, _ in spans), max(b for _, b in spans)
            if each["position"] == "before":
                meets = last == min(a for a, _ in placed)
            else:
                meets = first == max(b for _, b in placed)
        found.append(meets and _solid(spans))
    return {"no_gap": found}


def _solid(spans: list[tuple[int, int]]) -> bool:
    reached: int | None = None
    for begin, end in sorted(spans):
        if reached is not None and begin > reached:
            return False
        reached = end if reached is None else max(reached, end)
    return True


def _spans(raw: list[Any], path: str, step: Number) -> list[tuple[int, int]]:
    """Spans in seconds, [from, to), as the steps they touch."""
    found = []
    for i, each in enumerate(raw):
        numbers = isinstance(each, list) and len(each) == 2 and all(isinstance(x, int | Fraction) for x in each)
        if not numbers or each[0] > each[1]:
            bad(f"{path}[{i}]", "has to be [from, to] in seconds")
        found.append((int(each[0] // step), -int(-each[1] // step)))
    return found


def _capacity_profile(problem: Problem) -> Json:
    """Bundles that fit throughout an interval, and its cost: the sum over its steps of the dominant share of load and
    pending changes."""
    grid = problem.grid("capacity" if "capacity" in problem.input else "bundle")
    free, load, pending = Profile(len(grid.resources)), Profile(len(grid.resources)), Profile(len(grid.resources))
    for name, profile, times in (("free", free, 1), ("load", load, 1), ("pending_changes", pending, 1)):
        for begin, end, amounts in problem.profile(problem.input.get(name) or [], f"input.{name}", grid):
            profile.add(begin, end, amounts, times)
    given = record(problem.input, "bundle", "input")
    bundle = [0] * len(grid.resources)
    for name in given:
        if name not in grid.resources:
            bad(f"input.bundle.{name}", f"the cell has none of it: it has {', '.join(grid.resources)}")
        exact = Fraction(number(given, name, path="input.bundle"))
        bundle[grid.resources[name]] = -int(-exact * grid.units[grid.resources[name]] // 1)
    if not any(bundle):
        bad("input.bundle", "has to ask for something")
    fits, costs = [], []
    for begin, end in _spans(listed(problem.input, "intervals"), "input.intervals", grid.step_s):
        fits.append(_fitting(free, pending, bundle, begin, end))
        costs.append(plain(_cost(load, pending, grid.capacity, begin, end)))
    return {"fit": fits, "cost": costs}


def _fitting(free: Profile, pending: Profile, bundle: list[int], begin: int, end: int) -> int:
    least: int | None = None
    for first, last, room in free.runs(begin, end):
        for _, _, taken in pending.runs(first, last):
            for i, need in enumerate(bundle):
                if need:
                    fit = max(0, (room[i] - taken[i]) // need)
                    least = fit if least is None else min(least, fit)
    return least or 0


def _cost(load: Profile, pending: Profile, capacity: list[int], begin: int, end: int) -> Fraction:
    total = Fraction(0)
    for first, last, used in load.runs(begin, end):
        for a, b, more in pending.runs(first, last):
            shares = [Fraction(x + y, have) for x, y, have in zip(used, more, capacity, strict=True) if have]
            total += max(shares, default=Fraction(0)) * (b - a)
    return total


def _replan(problem: Problem) -> Json:
    """Which promises cannot be kept with less capacity."""
    before = problem.input.get("capacity_before")
    lost = dict.fromkeys(before, 0) if isinstance(before, dict) else {}  # Of what is not named there is none left.
    problem.input["capacity_after"] = {**lost, **record(problem.input, "capacity_after", "input")}
    grid = problem.grid("capacity_after")
    now = number(problem.input, "now", default=0)
    length = number(problem.input, "check_window_s", default=grid.seconds(grid.horizon))
    promises = []
    for i, each in enumerate(listed(problem.input, "reservations")):
        path = f"input.reservations[{i}]"
        if not isinstance(each, dict):
            bad(path, 'has to be an object with "id", "accepted_order" and "profile"')
        order = each.get("accepted_order", i)
        if isinstance(order, bool) or not isinstance(order, int | Fraction):
            bad(f"{path}.accepted_order", f"has to be a number, is {shown(order)}")
        promises.append(
            Promise(text(each, "id", path), int(order), problem.profile(each.get("profile"), f"{path}.profile", grid))
        )
    removed = not_kept(promises, grid.capacity, grid.down(now), min(grid.horizon, grid.up(now + length)))
    return {"removed": removed, "kept": [each.name for each in promises if each.name not in removed]}


_SOLVERS: dict[str, Callable[[Problem], Json]] = {
    "reservation": reservation,
    "reservation-policy": _policy,
    "rdl-validation": _validation,
    "order-no-gap-check": _no_gap,
    "capacity-profile": _capacity_profile,
    "replan": _replan,
}
