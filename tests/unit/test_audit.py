"""Who has done what, from the log: every ask of a person is there with its asker, and what it made otherwise."""

import json

import pytest

from services.replay.source import Source, steps_of, write_export
from tests.gateway_cell import JOB, run_in_memory
from tests.stepped_cell import recorded
from tests.unit.cli_here import largesse

ANN, BOB, OPS = ({"Largesse-User": name} for name in ("ann", "bob", "ops"))
PROD = {"name": "prod"}
QUEUES = {"queues": {"name": "root", "children": [{"name": "ads", "children": [PROD]}, {"name": "ml"}]}}
OTHERS = {"name": "ads", "weight": 3, "max": {"cpu": 2}, "children": [{**PROD, "submitters": ["ann"]}]}
HEAVIER = {"set": {"node_lease_ms": 30_000}, "queues": {"name": "root", "children": [OTHERS]}}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A cell that three people use."""
    path = tmp_path_factory.mktemp("audit") / "log.gz"

    async def story(cell):
        http = cell.http
        said = [
            await http.put("/v1/config", json=QUEUES, headers=OPS),
            await cell.post({**JOB, "job": "a", "queue": "ads/prod"}, headers=ANN),
            await cell.post({**JOB, "job": "b", "queue": "ads/prod", "user": "carl"}, headers=BOB),
            await http.patch("/v1/jobs/b", json={"hold": True}, headers=BOB),
            await http.delete("/v1/jobs/b", headers=OPS),
            await http.put("/v1/config", json=HEAVIER, headers=OPS),
            await cell.post({**JOB, "job": "c", "queue": "ads/prod"}, headers=BOB),
            await cell.post({**JOB, "job": "d", "stages": []}, headers=BOB),
            await http.post("/v1/nodes/n1/drain", params={"reason": "new disk"}, headers=OPS),
            await http.post("/v1/nodes/n1/resume", headers=OPS),
        ]
        await cell.stop_sequencer()
        messages = (await recorded(cell.bus, 1)).messages()
        write_export(Source("live", lambda hear: steps_of(messages, 0, hear), lambda: 1), path)
        return [answer.status_code for answer in said]

    codes = run_in_memory(story)
    assert [code // 100 for code in codes] == [2, 2, 2, 2, 2, 2, 4, 4, 2, 2]
    return path


def shown(log, *words):
    said = largesse("audit", log, *words, "--json")
    assert said.code == 0
    return [json.loads(line) for line in said.out.splitlines()]


def test_every_ask_is_there_with_who_asked(log):
    found = [(each["author"], each["user"], each["area"], each["verb"], each["refused"]) for each in shown(log)]

    assert [each for each in found if each[0] != "tester"] == [
        ("ops", "", "config", "change", False),
        ("ann", "", "jobs", "submit", False),
        ("bob", "carl", "jobs", "submit", False),
        ("bob", "", "jobs", "change", False),
        ("ops", "", "jobs", "cancel", False),
        ("ops", "", "config", "change", False),
        ("bob", "", "jobs", "submit", True),
        ("ops", "", "nodes", "drain", False),
        ("ops", "", "nodes", "resume", False),
    ]


def test_a_config_is_told_by_what_it_makes_otherwise(log):
    first, second = (each["text"] for each in shown(log, "--area", "config", "--by", "ops"))

    assert first == "; ".join(f"new queue {name} (weight 1)" for name in ("root", "ads", "ads/prod", "ml", "default"))
    assert second == (
        "node_lease_ms 86400000 -> 30000; queue ads: weight 1 -> weight 3, no max -> max cpu 2;"
        " queue ads/prod: no submitters -> submitters ann; queue ml is gone"
    )


def test_it_is_asked_by_person_area_span_and_refusal(log):
    whole = shown(log)

    assert {each["verb"] for each in shown(log, "--by", "carl")} == {"submit"}, "whose it is counts, too"
    assert {each["area"] for each in shown(log, "--area", "nodes", "--area", "jobs")} == {"nodes", "jobs"}
    (refused,) = shown(log, "--refused")
    assert "not_allowed" in refused["text"]
    first, last = whole[2]["seq"], whole[-2]["seq"]
    assert shown(log, "--from", first, "--to", last) == [each for each in whole if first <= each["seq"] <= last]


def test_people_get_a_line_a_deed_and_a_summary(log):
    lines = largesse("audit", log).out.splitlines()
    assert any("bob for carl  submit  b in ads/prod" in line for line in lines)
    assert any("bob  submit REFUSED  c in ads/prod" in line for line in lines)
    assert any("ops  drain  n1 drains: new disk" in line for line in lines)

    narrow = largesse("audit", log, columns=60, terminal=True).out
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.split() == " ".join(lines).split()

    rows = [line.split("\t") for line in largesse("audit", log, "--summary").out.splitlines()]
    assert rows[0] == ["who", "what", "", "done", "refused", "last"]
    assert [row[:5] for row in rows if row[0] == "bob"] == [
        ["bob", "jobs", "change", "1", "0"],
        ["bob", "jobs", "submit", "1", "1"],
    ]
    assert largesse("audit", log, "--summary", terminal=True, columns=60).code == 0


def test_what_cannot_be_asked_for_is_named(log):
    assert "--area: 'job' is none of jobs, reservations" in largesse("audit", log, "--area", "job").err
    assert "--from: " in largesse("audit", log, "--from", "never").err
    assert "nobody did anything of the kind" in largesse("audit", log, "--by", "eve").err
