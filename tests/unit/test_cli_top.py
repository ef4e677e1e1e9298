"""`largesse top`: what a page shows, and what keys do to it."""

import pytest

from services.cli import top
from services.cli.top import Page, head_text, key_named, queues_text, rows_of, waiting_text


def queue(path, allocated=0.0, children=(), running=0, waiting=0, breach=None, guaranteed=None):
    return {
        "queue": path,
        "guaranteed": guaranteed,
        "fair": 0.25,
        "allocated": allocated,
        "jobs": {"running": running, "waiting": waiting, "parked": 0},
        "breach": breach,
        "children": list(children),
    }


TREE = queue(
    "",
    0.9,
    [
        queue("ads", 0.3, [queue("ads/prod", 0.1, breach={"since_ms": 1}), queue("ads/dev", 0.2)]),
        queue("ml", 0.6, running=1),
    ],
)
SUMMARY = {
    "cell": "c",
    "preset": "hdrf",
    "seq": 1_234,
    "round": 56,
    "time": 10_000,
    "jobs": {"running": 1, "waiting": 3, "succeeded": 9},
    "nodes": {"ready": 2, "lost": 1},
    "capacity": {"cpu": "4", "memory": "8Gi"},
    "used": {"cpu": "2500m", "memory": "1Gi"},
    "waiting": [
        {"queue": "ads/prod", "reason": "no_room", "tasks": 7, "since_ms": 4_000},
        {"queue": "ml", "reason": "queue_max", "tasks": 2, "since_ms": None},
    ],
    "queues": TREE,
}


def test_the_head_says_how_far_the_log_is_and_how_full_the_cell():
    assert head_text(SUMMARY, 12_000).splitlines() == [
        "c (hdrf): record 1,234 of 2.0 s ago, round 56",
        "jobs: 1 running, 3 waiting; nodes: 2 ready, 1 lost",
        "in use: cpu 2500m of 4, memory 1Gi of 8Gi",
    ]


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("tree", ["ads", "ads/prod", "ads/dev", "ml"]),
        ("has", ["ml", "ads", "ads/dev", "ads/prod"]),
        ("waiting", ["ads", "ads/prod", "ml", "ads/dev"]),
        ("name", ["ads", "ads/dev", "ads/prod", "ml"]),
    ],
)
def test_queues_are_sorted_as_asked_for(order, names):
    assert [row["queue"] for _, row in rows_of(SUMMARY, order)] == names
    lines = queues_text(SUMMARY, Page(order=order)).splitlines()
    assert [line.split("\t")[0].removesuffix(" !") for line in lines[1:]] == names
    counted = {line.split("\t")[0]: line.split("\t")[-1] for line in lines[1:]}
    assert counted == {"ads": "7", "ads/prod !": "7", "ads/dev": "0", "ml": "2"}


def test_what_waits_is_told_by_reason_and_cut_on_a_terminal(monkeypatch):
    many = SUMMARY | {"waiting": [SUMMARY["waiting"][0] | {"queue": f"q{at}"} for at in range(20)]}
    assert len(waiting_text(many, 5_000).splitlines()) == 21
    assert waiting_text(SUMMARY, 5_000).splitlines()[1:] == ["no_room\tads/prod\t7\t1.0 s", "queue_max\tml\t2\t"]
    assert waiting_text(SUMMARY | {"waiting": []}, 0) == "no task waits\n"
    monkeypatch.setattr(top, "on_terminal", lambda: True)
    assert waiting_text(many, 5_000).splitlines()[-1] == "and 12 lines more"


def test_keys_choose_a_queue_and_go_in_and_back():
    names = ["a", "b", "c"]
    page = Page()
    for key, chosen in (("up", 0), ("down", 1), ("j", 2), ("down", 2), ("k", 1)):
        page.press(key, names)
        assert page.chosen == chosen
    page.press("enter", names)
    assert (page.kind, page.inside) == ("jobs", "b")
    for key, kind in (("esc", "queues"), ("n", "nodes"), ("w", "waiting"), ("esc", "queues"), ("x", "queues")):
        page.press(key, names)
        assert page.kind == kind
    orders = []
    for _ in range(4):
        page.press("s", names)
        orders.append(page.order)
    assert orders == ["has", "waiting", "name", "tree"]
    page.chosen = 9  # Queues have gone meanwhile.
    page.press("enter", names)
    assert page.inside == "c"
    Page().press("enter", [])


@pytest.mark.parametrize(
    ("sent", "name"),
    [(b"\x1b[A", "up"), (b"\x1bOB", "down"), (b"\x1b", "esc"), (b"\r", "enter"), (b"Q", "q"), (b"", "q"), (b"s", "s")],
)
def test_keys_have_names(sent, name):
    assert key_named(sent) == name
