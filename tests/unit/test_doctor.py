"""`largesse doctor`: what is right reads so, what is wrong is named with what helps, and nothing stops the others."""

import json
import time
from email.utils import formatdate

import pytest

from largesse.bus.open import BusUrlWrong, open_bus
from largesse.release import VERSION
from services.cli.doctor.bus import of_bus
from services.cli.doctor.findings import judged
from services.cli.doctor.gateway import of_gateway
from services.cli.doctor.machine import of_machine
from services.cli.ending import Refused, Wrong
from tests.gateway_cell import JOB, run_in_memory
from tests.unit.cli_here import largesse

PATHS = ("/readyz", "/v1/session", "/v1/summary", "/v1/nodes", "/v1/cells")
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def well():
    """What the gateway of a cell in which all is right answers."""

    async def story(cell):
        await cell.post(JOB)
        return {path: (await cell.http.get(path)).json() for path in PATHS}

    return run_in_memory(story)


class Told:
    """A gateway that answers with these documents; an error is raised."""

    def __init__(self, documents, url="http://127.0.0.1:8642", date=None):
        self.url, self._documents, self._date = url, documents, date
        self.has_token = False

    def ask(self, method, path):
        document = self.document(method, path)
        return Answer(document, {"Date": formatdate(self._date, usegmt=True)})

    def document(self, method, path, *fields):
        found = self._documents[path]
        if isinstance(found, Exception):
            raise found
        assert method == "GET"
        assert all(field in found for field in fields)
        return found


class Answer:
    def __init__(self, document, headers):
        self._document, self.headers = document, headers

    def json(self):
        return self._document


def found(well, **given):
    url = given.pop("url", "http://127.0.0.1:8642")
    date = time.time() + given.pop("ahead_s", 0)
    changed = {path: document | given.pop(path.rpartition("/")[2], {}) for path, document in well.items()}
    more = {f"/v1/{name}": document for name, document in given.items()}
    return list(of_gateway(Told(changed | more, url, date)))


def of(findings, area):
    return [(each.level, each.text, each.remedy) for each in findings if each.area == area]


def test_where_all_is_right_every_finding_says_so(well):
    findings = found(well)

    assert {each.level for each in findings} == {"ok"}
    areas = ["gateway", "versions", "clocks", "log", "rights", "rounds", "waiting", "guarantees", "inputs", "nodes"]
    assert [each.area for each in findings] == areas
    assert not any(each.remedy for each in findings)


@pytest.mark.parametrize(
    ("given", "area", "level", "says", "helps"),
    [
        ({"readyz": {"version": "0.0.1"}}, "versions", "warn", "release 0.0.1", "same release"),
        ({"readyz": {"version": ""}}, "versions", "warn", "does not say", "same release"),
        ({"readyz": {"silent_ms": 6_000}}, "log", "warn", "6.0 s ago", "services.admission"),
        ({"readyz": {"silent_ms": 15_000}}, "log", "bad", "15.0 s ago", "services.admission"),
        ({"ahead_s": 3_000}, "clocks", "bad", "s apart", "chrony"),
        ({"ahead_s": 20}, "clocks", "warn", "s apart", "chrony"),
        ({"url": "http://10.0.0.1:8642"}, "rights", "bad", "the cell is open", "largesse token make"),
        ({"session": {"open": False, "user": None}}, "rights", "warn", "none was sent", "LARGESSE_TOKEN_FILE"),
        ({"summary": {"open_since_ms": 0}}, "rounds", "bad", "has been open for", "leftover"),
        (
            {"summary": {"waiting": [{"queue": "", "reason": "no_node", "tasks": 3, "since_ms": 0}]}},
            "waiting",
            "warn",
            "no node that is there could ever run 3 tasks of root",
            "largesse why JOB",
        ),
        ({"nodes": {"nodes": []}}, "nodes", "bad", "none of 0 nodes is ready", "its agent"),
    ],
)
def test_what_is_wrong_is_named_with_what_helps(well, given, area, level, says, helps):
    told = [each for each in of(found(well, **given), area) if each[0] != "ok"]

    assert [each[0] for each in told] == [level]
    assert says in told[0][1]
    assert helps in told[0][2]


def test_the_log_s_clock_ahead_of_the_gateway_s_is_told(well):
    ahead = {"time": int((time.time() + 100) * 1_000)}

    assert ("bad", "set the clock of the machine of services.admission: the log's time never goes back, it waits") in [
        (level, remedy) for level, _, remedy in of(found(well, readyz=ahead), "clocks")
    ]


def test_nodes_that_need_a_hand_are_named(well):
    (node,) = well["/v1/nodes"]["nodes"]
    nodes = [
        node,
        *(node | {"node": f"l{number}", "state": "lost"} for number in range(7)),
        node | {"node": "away", "state": "draining", "drain": {"author": "ops", "reason": "disk", "until_ms": None}},
        node | {"node": "full", "state": "unschedulable", "unschedulable": "its disk is full"},
        node | {"node": "hot", "failing": {"jobs": ["a", "b"], "until_ms": 1}},
    ]

    told = of(found(well, nodes={"nodes": nodes}), "nodes")
    assert [each[1] for each in told] == [
        "2 of 11 nodes are ready",
        "lost: l0, l1, l2, l3, l4 and 2 more",
        "away is drained by ops: disk",
        "full takes no tasks: its disk is full",
        "attempts of several jobs fail in a row on hot",
    ]


def test_broken_guarantees_and_refused_inputs_are_told(well):
    tree = well["/v1/summary"]["queues"]
    breach = {"since_ms": 0, "guaranteed": 0.5, "allocated": 0.1, "winner": None, "placeable": True}
    row = {"seq": 7, "time_ms": well["/v1/summary"]["time"], "topic": "jobs", "field": "stages", "reason": "is empty"}
    summary = {
        "queues": tree | {"children": [tree | {"queue": "ads", "breach": breach, "children": []}]},
        "refused": {"count": 3, "latest": [row | {"author": "ann"}]},
    }

    findings = found(well, summary=summary)
    assert [each[2] for each in of(findings, "guarantees")] == ["largesse why ads"]
    assert of(findings, "inputs")[0][1].startswith("3 inputs refused for good")
    assert of(findings, "inputs")[0][1].endswith(": jobs, stages: is empty")
    assert "(ann)" in of(findings, "inputs")[0][2]


def test_an_admin_hears_of_tokens_that_end_soon(well):
    now_ms = int(time.time() * 1_000)
    rows = [
        {"name": name, "user": "ann", "expires_ms": ends}
        for name, ends in [("never", None), ("gone", now_ms - 1), ("soon", now_ms + 1_000), ("late", now_ms * 2)]
    ]
    admin = {"open": False, "user": "ann", "role": "admin", "roles": ["admin"]}

    told = of(found(well, session=admin, tokens={"tokens": rows}), "rights")
    assert [level for level, *_ in told] == ["ok", "warn"]
    assert told[1][1].startswith("token soon of ann ends at")


def test_what_may_not_be_asked_is_unknown_and_the_rest_is_told(well):
    findings = list(of_gateway(Told(well | {"/v1/summary": Refused("your token is a submitter's")})))

    assert of(findings, "cell") == [
        ("unknown", "could not be asked: your token is a submitter's", "ask with a viewer's token")
    ]
    assert of(findings, "nodes")[0][0] == "ok"


def test_a_token_that_does_not_count_is_not_called_none(well):
    gateway = Told(well | {"/v1/session": {"open": False, "user": None}})
    gateway.has_token = True

    assert "is not known here" in of(list(of_gateway(gateway)), "rights")[0][1]


def test_a_gateway_that_has_read_nothing_is_wrong(well):
    findings = found(well, readyz={"cell": "", "seq": 0})

    assert [(each.area, each.level) for each in findings] == [("gateway", "bad")]


def test_of_a_recorded_log_nothing_is_asked_that_goes_on(well):
    findings = found(well, readyz={"recorded": True})

    assert [(each.area, each.level) for each in findings] == [("gateway", "ok"), ("log", "ok")]


# ---------------------------------------------------------------- the machine and the bus
def test_a_variable_that_nothing_reads_is_told_with_the_one_that_was_meant():
    said = {"LARGESSE_UR": "x", "LARGESSE_URL": "y", "LARGESSE_TEST_KAFKA": "z", "LARGESSE_JOB": "j", "PATH": "p"}

    told = of(of_machine(said), "environment")
    assert told == [("warn", "LARGESSE_UR is set, and nothing reads it", "was LARGESSE_URL meant? unset it")]
    assert of(of_machine({}), "environment") == [("ok", "nothing is set for Largesse", "")]


def test_a_folder_without_a_log_and_what_is_no_bus_are_told(tmp_path):
    assert [(each.area, each.level) for each in of_bus(str(tmp_path), "default", 0)] == [("bus", "bad")]
    (tmp_path / "journal-000000000001.jsonl").write_bytes(b"\n")
    assert [each.area for each in of_bus(str(tmp_path), "default", 0)] == ["bus", "disk"]
    with pytest.raises(Wrong, match="neither kafka://HOST:PORT nor a data folder"):
        list(of_bus(str(tmp_path / "not-there"), "default", 0))


def test_a_measure_is_judged_at_its_edges():
    levels = [judged("a", amount, 5, 10, "text", "remedy").level for amount in (4.9, 5, 9.9, 10)]

    assert levels == ["ok", "warn", "warn", "bad"]


# ---------------------------------------------------------------- the command
def test_without_a_gateway_it_says_so_and_ends_with_1():
    said = largesse("doctor", "--url", NOWHERE)

    assert said.code == 1
    assert "wrong    gateway: no answer from" in said.out
    assert said.err == "largesse: of 4 findings 1 wrong\n"


def test_programs_get_all_findings_as_one_document():
    document = largesse("doctor", "--url", NOWHERE, "--json").json

    assert document["counts"] == {"bad": 1, "warn": 0, "unknown": 0, "ok": 3}
    assert document["findings"][0]["text"].startswith(f"Largesse {VERSION}")
    assert json.dumps(document)


def test_on_a_narrow_terminal_it_folds():
    said = largesse("doctor", "--url", NOWHERE, columns=40, terminal=True)

    assert max(map(len, said.out.splitlines())) <= 40


def test_a_data_folder_is_no_bus_and_says_where_its_bus_is(tmp_path):
    (tmp_path / "bus").mkdir()
    (tmp_path / "bus" / "head.json").write_text("{}")

    with pytest.raises(BusUrlWrong, match=r"is the data folder of `largesse up`: its bus is file:.*/bus"):
        open_bus(f"file:{tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["bus"]


def routed(well, **said):
    router = {"silent_ms": 400, "behind": 0, "jobs": {"waiting": 0}, "cells": [{"cell": "east", "state": "heard"}]}
    return {**well, "/v1/cells": {**well["/v1/cells"], "router": {**router, **said}}}


@pytest.mark.parametrize(
    ("said", "level", "text"),
    [
        pytest.param({}, "ok", "it hears 1 cell", id="well"),
        pytest.param({"jobs": {"waiting": 3}}, "ok", "3 jobs wait for a cell", id="jobs that wait"),
        pytest.param({"silent_ms": 60_000}, "bad", "wrote into its log 60.0 s ago", id="silent"),
        pytest.param({"behind": 2}, "warn", "2 messages to the router not taken yet", id="behind"),
        pytest.param(
            {"cells": [{"cell": "east", "state": "heard"}, {"cell": "west", "state": "silent"}]},
            "warn",
            "it sends no jobs to cell west",
            id="a cell that is silent",
        ),
    ],
)
def test_a_router_is_looked_at_where_there_is_one(well, said, level, text):
    found = [each for each in of_gateway(Told(routed(well, **said))) if each.area == "router"]
    assert any(each.level == level and text in each.text for each in found), found
    assert not [each for each in of_gateway(Told(well)) if each.area == "router"]
