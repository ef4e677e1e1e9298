"""Plans follow jobs in a running cell: what one that is ahead gives back is promised to another, and one that is behind
gets more."""

import json

from tests.live.up_jobs import PLANNED, shell
from tests.live.up_process import eventually, up

HOUR_MS = 3_600_000
FAST = "window(+0m, +12h, atom(b='100m cpu', g=1, h=10, l=1h, w=10h))"  # All that there is, for an hour.
WIDE = "window(+0m, +50m, atom(b='100m cpu', g=10, h=10, l=5m, w=50m))"
SLOW = "window(+0m, +12h, atom(b='100m cpu', g=1, h=1, l=5m, w=30m))"


def job(name, tasks, command):
    """A job under the reservation of its name, whose tasks are estimated at an hour each."""
    stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "100m"}, "estimate_ms": HOUR_MS}
    stage["command"] = list(shell(command))
    return json.dumps({"job": name, "user": "ann", "reservation": name, "stages": [stage]})


def test_plans_follow_a_job_that_is_ahead_and_one_that_is_behind(tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps(PLANNED))
    for name, terms in (("fast", FAST), ("wide", WIDE), ("slow", SLOW)):
        (tmp_path / f"{name}.rdl").write_text(terms)
    go = tmp_path / "go"

    with up(tmp_path / "data", "--cluster", tmp_path / "cluster.json") as cell:

        def reserve(name):
            said = cell.ask("reserve", "submit", name, tmp_path / f"{name}.rdl", LARGESSE_USER="ann")
            return eventually(lambda: not why(name)["unanswered"]) and said

        def why(name):
            return cell.ask("reserve", "why", name, "--json").json

        reserve("fast")
        assert why("fast")["state"] == "accepted"
        reserve("wide")
        assert why("wide")["state"] == "rejected"

        cell.ask("submit", "-", stdin=job("fast", 10, "true"))
        assert eventually(lambda: why("fast")["ahead"])
        eventually(lambda: why("fast")["state"] == "ended")
        assert "given back" in cell.ask("reserve", "why", "fast").out
        reserve("wide")
        assert why("wide")["state"] == "accepted"
        cell.ask("reserve", "delete", "wide", LARGESSE_USER="ann")

        reserve("slow")
        planned = why("slow")["steps"]
        cell.ask("submit", "-", stdin=job("slow", 1, f"until [ -e {go} ]; do sleep 0.1; done"))
        assert eventually(lambda: why("slow")["behind"])
        grown = why("slow")
        assert "more than planned" in grown["progress"]
        assert lasts(grown["steps"]) == 2 * lasts(planned)
        go.touch()
        eventually(lambda: why("slow")["state"] == "ended")
        cell.end()


def lasts(steps):
    """Unit-milliseconds of leases."""
    return sum(step["units"] * (step["to_ms"] - step["from_ms"]) for step in steps)
