"""The log of a live cell decided again: commands that ran, failed and were cancelled do the same in virtual time."""

import json

from tests.live.up_process import up

LITTLE = {"cpu": "100m", "memory": "16Mi"}


def job(name, *stages, user=""):
    return json.dumps(
        {"job": name, "user": user, "stages": [{"tasks": 1, "demand": LITTLE, **stage} for stage in stages]}
    )


JOBS = (
    job("graph", {"stage": "s", "tasks": 4, "command": ["sleep", "0.2"]},
        {"stage": "t", "after": ["s"], "tasks": 2, "command": ["sleep", "0.1"]}),
    job("flaky", {"stage": "s", "tasks": 3, "retries": 2, "command": ["sh", "-c", "test $LARGESSE_ATTEMPT -ge 2"]}),
    job("bad", {"stage": "s", "tasks": 1, "command": ["false"]}),
    job("gang", {"stage": "g", "gang": True, "tasks": 3, "command": ["sleep", "0.2"]}, user="ann"),
)  # fmt: skip


def same_answer(cell, data, *different):
    """A cell that runs says of its own past what `replay` says of its log."""
    seq = cell.ask("top", "--json").json["seq"]
    span = ("--to", seq)
    expected = cell.ask("replay", data, "--what-if", *different, *span, "--json").json
    assert cell.ask("whatif", *different, "--since", 0, *span, "--json").json == expected


def test_every_job_ends_as_it_did_and_another_policy_can_be_tried(tmp_path):
    data = tmp_path / "data"
    with up(data, "--nodes", 3) as cell:
        for document in JOBS:
            assert cell.ask("submit", "-", stdin=document).code == 0
        assert cell.ask("submit", "-", stdin=job("long", {"stage": "s", "command": ["sleep", "600"]})).code == 0
        cell.until("long", lambda found: found["state"] == "running")
        assert cell.ask("node", "drain", "node-2").code == 0
        assert cell.ask("cancel", "long").code == 0
        ended = {name: cell.until(name, lambda found: found["ended_ms"])["state"] for name in
                 ("graph", "flaky", "bad", "gang", "long")}  # fmt: skip
        alive = cell.ask("replay", data, "--what-if", "--json").json
        same_answer(cell, data, "--preset", "fifo", "--without-user", "ann")
        config = json.dumps({"set": {"preset": "drf"}})
        (tmp_path / "config.json").write_text(config)
        tried = cell.ask("config", "apply", tmp_path / "config.json", "--dry-run", "--replay", "1h", "--json").json
        assert tried["replay"]["changed"] == {"preset": ["largesse", "drf"]}
        assert {row["job"] for row in tried["replay"]["jobs"]} == set(ended)
        new = cell.ask("submit", "-", "--dry-run", "--json", stdin=JOBS[0].replace("graph", "new")).json
        assert (new["job"], new["dry_run"], [each["stage"] for each in new["places"]][:1]) == ("new", True, ["s"])
        assert cell.ask("get", "job", "new").code == 1

    again = cell.ask("replay", data, "--what-if", "--json").json
    for answer in (alive, again):
        found = {row["job"]: (row["recorded_outcome"], row["decided_outcome"]) for row in answer["jobs"]}
        assert found == {name: (state, state) for name, state in ended.items()}
    assert ended == {"graph": "succeeded", "flaky": "succeeded", "bad": "failed", "gang": "succeeded",
                     "long": "cancelled"}  # fmt: skip

    other = cell.ask("replay", data, "--what-if", "--preset", "fifo", "--without-user", "ann", "--json").json
    rows = {row["job"]: row["decided_outcome"] for row in other["jobs"]}
    assert rows == {**ended, "gang": None}
    assert other["changed"]["users left out"] == [[], ["ann"]]
