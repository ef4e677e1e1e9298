"""`order` across jobs in a running cell: the job of a later part begins once the job of the earlier part has ended."""

import json
from itertools import pairwise

from tests.live.campaign_checks import read
from tests.live.up_jobs import PLANNED, shell
from tests.live.up_process import eventually, up

TERMS = """
window(+0m, +12h, order(
    atom(b="100m cpu, 32Mi", g=1, h=2, l=2s, w=4s),
    atom(b="100m cpu, 32Mi", g=1, h=2, l=4h, w=8h)))   # Longer than any machine needs for the story.
"""
TASKS = 2


def part(atom, name, **commands):
    """A job bound to an atom, with a stage for each command, one after the other."""
    stages = [
        {"stage": stage, "tasks": TASKS, "demand": {"cpu": "100m", "memory": "32Mi"}, "command": list(shell(command))}
        for stage, command in commands.items()
    ]
    for before, after in pairwise(stages):
        after["after"] = [before["stage"]]
    bound = {"reservation": "r", "reservation_atom": atom}
    return json.dumps({"job": name, "user": "ann", **bound, "stages": stages})


def test_a_job_begins_only_after_the_job_that_the_order_puts_before_it_has_ended(tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps(PLANNED))
    (tmp_path / "order.rdl").write_text(TERMS)
    marks, seen, go = tmp_path / "marks", tmp_path / "seen", tmp_path / "go"
    marks.mkdir()
    seen.mkdir()
    index = "$LARGESSE_TASK_INDEX"
    first = part("0", "first", waits=f"until [ -e {go} ]; do sleep 0.1; done", marks=f"touch {marks}/{index}")
    # What was there when a task of the second job began, in a file that is whole as soon as it has its name.
    second = part("1", "second", looks=f"ls {marks} > {seen}/.{index}; mv {seen}/.{index} {seen}/{index}")

    with up(tmp_path / "data", "--cluster", tmp_path / "cluster.json") as cell:
        cell.ask("reserve", "submit", "r", tmp_path / "order.rdl", LARGESSE_USER="ann")
        eventually(lambda: cell.ask("reserve", "why", "r", "--json").json["state"] == "accepted")
        for name, text in (("first", first), ("second", second)):
            cell.ask("submit", "-", stdin=text)
            eventually(lambda name=name: cell.ask("get", "job", name, "--json").code == 0)

        # Its lease has begun, and there is room for it: only the order holds it back.
        cell.until("second", lambda job: "waits for job first" in str(job["why"]) or any(seen.iterdir()))
        cell.until("first", lambda job: job["tasks"]["running"] == TASKS)
        assert list(seen.iterdir()) == []
        go.touch()
        assert cell.until("second", lambda job: job["ended_ms"] is not None)["state"] == "succeeded"
        cell.end()

    assert [each.read_text().split() for each in sorted(seen.iterdir())] == [["0", "1"]] * TASKS
    log = read(tmp_path / "data" / "bus").log
    ends = {job["job"]: at for at, each in enumerate(log) if each.type == "JobEnded" for job in each.body["jobs"]}
    grants = [
        (at, grant)
        for at, each in enumerate(log)
        if each.type == "RoundClosed"
        for grant in each.body["grants"]
        if grant["job"] == "second"
    ]
    assert ends["first"] < min(at for at, _ in grants) < ends["second"]
    assert {grant["why"] for _, grant in grants} == {"reserved"}
