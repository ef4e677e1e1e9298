"""Accounts of what jobs give away and receive, as altruism tells them and the gateway shows them."""

import pytest

from schemas import Asks, LedgerEntry
from services.gateway.documents.ledger import ledger_document
from services.gateway.view import ledger
from services.gateway.view.ledger import LEDGER_JOBS_MAX, fold_ledger
from services.gateway.view.state import State
from tests.builders import config, job, single, stage, tree
from tests.unit.test_altruism_plans import bodies, cell, forked


def entries(story, shard=0):
    return {entry.job: entry for entry in bodies(story, "asks", shard).ledger}


def play(story, *ends):
    """Finishes tasks at given moments, each as (time, job, stage); starts all that is granted on the way."""
    at = {}
    for time, name, of in [(0, None, None), *ends]:
        story.at(time)
        if name is not None:
            story.finish(at.pop((name, of)))
        while story.open():
            for grant in story.close().grants:
                story.start(grant)
                for index in range(grant.first, grant.first + grant.count):
                    at[grant.job, grant.stage] = single(grant, index)
    return at


def test_a_job_alone_donates_what_it_does_not_hold_and_loses_nothing():
    """Four cores for a job that holds two of them for a second, one for four, and one for a last one."""
    story = cell(forked("j"))
    play(story, (1_000, "j", "short"), (5_000, "j", "long"), (6_000, "j", "last"))
    (entry,) = [entry for body in story.bodies_of("Asks") for entry in body.ledger if entry.over]

    assert entry.donated["cpu"] == (2 + 4 * 3 + 3) * 1_000
    assert entry.received == {}
    assert entry.lost_ms == 0


def test_what_one_job_holds_beyond_its_entitlement_another_has_left():
    story = cell(job("wide", stage("s", 4, duration_ms=9_000)), forked("j"))
    play(story, (1_000, "j", "long"))
    story.at(2_000).take(config(share_tolerance_permille=0))
    story.cancel("wide")
    story.cancel("j")
    story.open()
    found = entries(story)

    assert found["wide"].received["cpu"] > 0
    assert found["j"].over
    assert found["wide"].over


def test_accounts_survive_a_restart_and_are_said_once():
    plain, restored = (cell(forked("j")) for _ in range(2))
    for story in (plain, restored):
        play(story, (1_000, "j", "short"))
        if story is restored:
            story.restore()
        story.cancel("j")
        story.open()
    assert entries(plain) == entries(restored)
    assert entries(plain)["j"].over

    plain.close()
    plain.take(forked("k"))
    plain.open()
    assert entries(plain) == {}


def test_an_abandoned_round_loses_no_account():
    story = cell(forked("j"))
    play(story)
    story.cancel("j")
    story.open()
    story.abandon()
    story.open()

    assert entries(story)["j"].over


@pytest.mark.parametrize("permille", [0, 1_000])
def test_only_who_gives_donates(permille):
    story = cell(forked("j"), altruism_permille=permille)
    play(story, (1_000, "j", "short"))
    story.cancel("j")
    story.open()

    assert bool(entries(story)["j"].donated) is (permille > 0)


def taken(**knobs):
    """Four cores that a job of another queue keeps for ten seconds."""
    story = cell(job("wide", stage("s", 4, duration_ms=10_000), queue="a"), queues=tree("a", "b"), **knobs)
    (held,) = story.settle()
    story.start(held)
    return story, held


def comes(story, spec):
    """A job at one second, for which there is no room."""
    story.at(1_000).take(spec)
    assert story.settle() == []


def account_at(story, name, time):
    """The account of a job that is cancelled at a moment."""
    story.at(time).cancel(name)
    story.open()
    return entries(story)[name]


@pytest.mark.parametrize("permille", [0, 1_000])
def test_a_job_that_only_waited_has_donated_nothing(permille):
    story, _ = taken(altruism_permille=permille)
    comes(story, job("late", stage("s", 4, duration_ms=5_000), queue="b"))
    found = account_at(story, "late", 8_000)

    assert (found.donated, found.waited, found.received) == ({}, {"cpu": 2 * 7_000}, {})


def test_what_it_needs_not_yet_is_donated_while_the_rest_waits():
    """Entitled to two cores, it waits for one task that has to start; another has until five seconds have gone by."""
    story, _ = taken()
    comes(story, forked("late", queue="b"))
    found = account_at(story, "late", 4_000)

    assert (found.donated, found.waited) == ({"cpu": 3_000}, {"cpu": 3_000})


def test_a_job_that_gets_what_it_required_waits_no_longer():
    story, held = taken()
    comes(story, job("late", stage("s", 2, duration_ms=5_000), queue="b"))
    story.at(4_000).finish(single(held, 0), single(held, 1))
    assert [(grant.job, grant.count) for grant in story.settle()] == [("late", 2)]
    found = account_at(story, "late", 7_000)

    assert (found.donated, found.waited) == ({}, {"cpu": 2 * 3_000})


def test_what_a_job_waited_for_survives_a_restart():
    story, _ = taken()
    comes(story, job("late", stage("s", 4, duration_ms=5_000), queue="b"))
    story.restore()

    assert account_at(story, "late", 8_000).waited == {"cpu": 2 * 7_000}


# ---------------------------------------------------------------- as the gateway shows them
def asks(*entries):
    return Asks(0, 1, [], ledger=list(entries))


def test_queues_have_the_sums_of_their_jobs_live_or_over():
    state = State()
    fold_ledger(state, asks(LedgerEntry("a", "q", {"cpu": 1_000}, {}, 0), LedgerEntry("b", "q", {}, {"cpu": 500}, 7)))
    fold_ledger(state, asks(LedgerEntry("a", "q", {"cpu": 3_000}, {}, 2, over=True, waited={"cpu": 2_000})))

    document = ledger_document(state)
    assert document["queues"] == [
        {
            "queue": "q",
            "jobs": 2,
            "donated": {"cpu": "3"},
            "received": {"cpu": "500m"},
            "waited": {"cpu": "2"},
            "lost_ms": 9,
        }
    ]
    assert [(row["job"], row["over"], row["donated"]) for row in document["jobs"]] == [
        ("a", True, {"cpu": "3"}),
        ("b", False, {}),
    ]


def test_jobs_reported_longest_ago_are_forgotten_and_their_queues_keep_their_totals(monkeypatch):
    monkeypatch.setattr(ledger, "LEDGER_JOBS_MAX", 2)
    state = State()
    for name in ("a", "b", "c"):
        fold_ledger(state, asks(LedgerEntry(name, "q", {"cpu": 1_000}, {}, 0, over=True)))

    document = ledger_document(state)
    assert [row["job"] for row in document["jobs"]] == ["c", "b"]
    assert document["queues"][0]["donated"] == {"cpu": "3"}
    assert LEDGER_JOBS_MAX > 2
