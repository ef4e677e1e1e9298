"""Reservations, one after the other: each is answered by the agent that the problem names, and what it may ask is
read from JSON, text or YAML. "us" is CPU time, so that what else the machine does is left out.
"""

import time
from typing import Any

from schemas.reservations import WEIGHT_MAX
from services.planner.offline.problem import Problem, bad, listed, number, record, shown, text
from services.planner.offline.reorganise import TIME_LIMIT_S, reorganise
from services.planner.planning.agents import Agent
from services.planner.planning.answers import Answer, Fixed, GridRequest
from services.planner.planning.book import Book
from services.planner.planning.read_rdl import BadRdl, Grid, Number, Windowed, check, read_rdl
from services.planner.planning.request import Plan
from services.planner.rdl.document import read_document
from services.planner.rdl.faults import BadDocument
from services.planner.rdl.recurrence import expanded
from services.planner.rdl.times import Clock, clock

Json = dict[str, Any]

PROMISED_MAX = 1 << 62
"""Of a resource at any moment: what counts in 64 bits."""

AGENT_KINDS = {"gree": "late", "gree-l": "flat", "early": "early"}


def reservation(problem: Problem) -> Json:
    """Answers to a request, or to a sequence of them."""
    grid = problem.grid()
    limits = problem.user_limits(grid)
    known = clock_of(problem)
    name = problem.input.get("agent")
    book = Book(grid.capacity, limits.instant_most(grid.capacity), by_user=limits.average is not None)
    agent = Agent(name if isinstance(name, str) else "", book, limits, grid.horizon, grid.up(known.now_s))
    for i, each in enumerate(listed(problem.input, "existing", default=True)):
        path = f"input.existing[{i}]"
        if not isinstance(each, dict):
            bad(path, 'has to be an object with "id", "user" and "profile"')
        owner = str(each.get("user") or "")
        agent.fix(text(each, "id", path), Fixed(owner, problem.profile(each.get("profile"), f"{path}.profile", grid)))
    if max(book.used.most(0, max(1, grid.horizon)), default=0) > PROMISED_MAX:
        bad("input.existing", f"promises too much: at most {PROMISED_MAX} at any moment")
    if problem.input.get("request") is not None:
        operations: list[Any] = [record(problem.input, "request", "input")]
    else:
        operations = listed(problem.input, "sequence")
    results: list[Json] = []
    weights: dict[str, int] = {}  # Of the terms asked for last.
    rejected: dict[str, tuple[int, GridRequest]] = {}  # What the solver may accept after all, with its place.
    for i, each in enumerate(operations):
        path = "input.request" if problem.input.get("request") is not None else f"input.sequence[{i}]"
        if not isinstance(each, dict):
            bad(path, 'has to be an object with "op", "id" and "user"')
        weights[str(each.get("id"))] = _weight(each, path)
        begun = time.process_time_ns()
        answer, request = _answer(agent, grid, known, each, path)
        microseconds = (time.process_time_ns() - begun) // 1000
        results.append(_result(each["id"], answer, grid, microseconds))
        if answer.code == "no_room" and request is not None and agent.owner(request.name) is None:
            rejected[request.name] = i, request
        else:
            rejected.pop(str(each["id"]), None)
    found: Json = {"agent_kind": AGENT_KINDS.get(str(name), "flat"), "results": results}
    moved = any("moved" in result for result in results)
    if name == "milp":
        limit = int(number(problem.input, "time_limit_s", least=1, default=TIME_LIMIT_S))
        added, found["solver"] = reorganise(agent, [request for _, request in rejected.values()], limit, weights)
        for each in added:
            result = results[rejected[each][0]]
            result.update(accepted=True, form="milp", leases=_leases(agent.held[each].plan, grid))
            del result["reason"]
            result.pop("offer", None)
        if found["solver"] == "adopted":
            found["agent_kind"], moved = "milp", True
    if moved:
        found["final_leases"] = {each: _leases(held.plan, grid) for each, held in agent.held.items()}
    return found


def _weight(raw: Json, path: str) -> int:
    weight = number(raw, "weight", least=1, default=1, path=path)
    if weight != int(weight) or weight > WEIGHT_MAX:
        bad(f"{path}.weight", f"has to be a whole number from 1 to {WEIGHT_MAX}, is {shown(weight)}")
    return int(weight)


def clock_of(problem: Problem) -> Clock:
    """What times in requests that are written as text count from."""
    origin, zone = problem.input.get("origin", "1970-01-01T00:00Z"), problem.input.get("zone", "UTC")
    now = number(problem.input, "now", default=0)
    try:
        return clock(str(origin), int(now), str(zone))
    except (ValueError, OverflowError) as error:
        bad("input", str(error))


def windowed_of(rdl: Any, known: Clock, grid: Grid) -> Windowed:
    """A request on the grid, from RDL as JSON or as a text that somebody wrote. Raises BadRdl."""
    return read_rdl(_as_json(rdl, known), grid)


def _as_json(rdl: Any, known: Clock) -> Any:
    if not isinstance(rdl, str):
        return rdl
    try:
        return read_document(rdl, known)
    except BadDocument as fault:
        raise BadRdl("rdl", str(fault)) from None


def _all_occurrences(rdl: Any, recurrence: str | int, known: Clock, grid: Grid) -> Windowed:
    """One request for all occurrences in the horizon. Raises BadRdl."""
    try:
        every = expanded(_as_json(rdl, known), recurrence, known, int(grid.seconds(grid.horizon)))
    except ValueError as error:
        raise BadRdl("recurrence", str(error)) from None
    return read_rdl(every, grid)


def _answer(agent: Agent, grid: Grid, known: Clock, raw: Json, path: str) -> tuple[Answer, GridRequest | None]:
    """The answer to an operation, and the request that it was about, if it came so far."""
    name, user, op = text(raw, "id", path), str(raw.get("user") or ""), raw.get("op", "submit")
    if op not in ("submit", "update", "delete"):
        bad(f"{path}.op", f"has to be submit, update or delete, is {shown(op)}")
    owner = agent.owner(name)
    if op == "submit" and owner is not None:
        return Answer("name_taken", f"{name} is reserved already: update or delete it"), None
    if op != "submit" and owner is None:
        return Answer("unknown", f"there is no reservation {name}"), None
    if op != "submit" and owner != user:
        return Answer("not_owner", f"{name} belongs to another user"), None
    if op == "delete":
        agent.drop(name)
        return Answer(), None
    try:
        windowed = windowed_of(raw.get("rdl"), known, grid)
        recurrence = recurrence_of(raw.get("recurrence"))
        if recurrence is not None:
            windowed = _all_occurrences(raw.get("rdl"), recurrence, known, grid)
    except BadRdl as fault:
        return Answer("invalid", str(fault)), None
    request = GridRequest(name, user, windowed.body, max(windowed.begin, agent.first), windowed.end)
    try:
        check(windowed, grid, known.now_s)
    except BadRdl as fault:
        return Answer("invalid", str(fault), offer=agent.offer(request)), None
    return agent.submit(request) if op == "submit" else agent.update(request), request


def _result(name: str, answer: Answer, grid: Grid, microseconds: int) -> Json:
    found: Json = {"id": name, "accepted": not answer.code, "us": microseconds, "leases": _leases(answer.plan, grid)}
    if answer.code:
        found["reason"] = f"{answer.code}: {answer.reason}"
    if answer.form is not None:
        found["form"] = answer.form
    if answer.moved:
        found["moved"] = answer.moved
    if answer.offer is not None and answer.offer.window is not None:
        begin, end = answer.offer.window
        found["offer"] = {"from": plain(grid.seconds(begin)), "to": plain(grid.seconds(end))}
    elif answer.offer is not None:
        found["offer"] = {"size_permille": answer.offer.size_permille}
    return found


def _leases(plan: Plan, grid: Grid) -> list[Json]:
    return [
        {
            "atom": atom.path,
            "from": plain(grid.seconds(each.begin)),
            "to": plain(grid.seconds(each.end)),
            "n": each.gangs * atom.gang,
        }
        for atom, leases in plan
        for each in leases
    ]


def recurrence_of(value: Any) -> str | int | None:
    """A cron expression, or seconds between the starts of two occurrences; None for none, which 0 and null are."""
    if isinstance(value, str) and value.strip().lstrip("+-").isdigit():
        value = int(value)
    if isinstance(value, str):
        return value
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        text = 'has to be a cron expression like "0 6 * * *", or a period in seconds of 0 (none) or more'
        raise BadRdl("recurrence", f"{text}, is {shown(value)}")
    return value


def plain(value: Number) -> int | float:
    """A number as JSON writes it."""
    return int(value) if value == int(value) else float(value)
