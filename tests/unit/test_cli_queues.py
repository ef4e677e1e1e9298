"""How queues look on a terminal: a tree that fits, limits in words, guarantees that are broken."""

import re
from typing import Any

import pytest

from services.cli.queues import effect_text, limits_text, tree_text

NO_LIMITS: dict[str, Any] = {"guaranteed": {}, "max": {}, "running_jobs_max": None, "submitters": []}


def queue(path, *children, parked=0, breach=None, policy=None, share=0.3, resource="memory", **limits):
    return {
        "queue": path,
        "weight": 30.25,
        "policy": policy,
        "limits": NO_LIMITS | limits,
        "guaranteed": share,
        "fair": share,
        "allocated": share or 0,
        "lent": share and 0.05,
        "borrowed": share and 0,
        "resource": resource,
        "promised": {},
        "jobs": {"running": 12, "waiting": 1234, "parked": parked},
        "breach": breach,
        "children": list(children),
    }


BREACH = {"since_ms": 1_760_000_000_000, "guaranteed": 0.3, "allocated": 0.1, "winner": "ml", "placeable": True}
TREE = queue(
    "",
    queue("advertising", queue("advertising/production", breach=BREACH, parked=5), queue("advertising/test")),
    queue("ml", share=None, resource=None),
    parked=5,
    share=1.0,
)


IGNORED = {"guaranteed": ["cpu"], "max": ["memory"]}


def test_limits_that_do_not_count_are_marked_and_the_mark_explained(shown):
    limits = {"guaranteed": {"cpu": "1"}, "max": {"cpu": "2", "memory": "2Gi"}}
    tree = queue("", queue("a", **limits) | {"ignored": IGNORED}) | {"preset": "fifo"}

    assert limits_text(tree["children"][0]) == "guaranteed cpu 1 (ignored); max cpu 2; max memory 2Gi (ignored)"
    assert "ignored: does not count under the preset fifo, or below a list of jobs\n" in shown(tree, 100)
    assert "ignored" not in shown(TREE, 100)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_column_and_the_limit_of_one_name_are_told_apart_where_there_is_such_a_limit(shown, columns):
    tree = queue("", queue("a", guaranteed={"cpu": "1"}), queue("b"))
    said = "guaranteed, the limit: what the config says; the column: what the queue can count on now"

    assert said in " ".join(shown(tree, columns).split())
    assert max(map(len, shown(tree, columns).splitlines())) <= columns
    assert "the column" not in shown(queue("", queue("b", max={"cpu": "1"})), columns)


def test_columns_that_are_empty_say_why(shown):
    tree = queue("", queue("a", share=None), share=None) | {"preset": "carbyne"}

    text = " ".join(shown(tree, 100).split())

    assert "guaranteed, fair, lent and borrowed are empty: no queue has shares of its own under carbyne" in text
    assert "are empty" not in shown(TREE, 100)


@pytest.fixture
def shown(monkeypatch):
    def show(tree, columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        return tree_text(tree)

    return show


def heads(text):
    return text.splitlines()[0].split()


@pytest.mark.parametrize(
    ("columns", "there"),
    [
        (100, ["weight", "guaranteed", "fair", "has", "of", "lent", "borrowed", "run", "wait", "parked"]),
        (80, ["weight", "guar.", "fair", "has", "of", "lent", "borr.", "run", "wait", "park"]),
        (60, ["guar.", "fair", "has", "borr.", "run", "wait", "park"]),
        (50, ["guar.", "fair", "has", "run", "wait", "park"]),
        (40, ["fair", "has", "run", "wait"]),
    ],
)
def test_the_tree_fits_the_terminal_and_leaves_out_what_matters_less(shown, columns, there):
    text = shown(TREE, columns)

    assert heads(text) == ["queue", *there]
    assert max(map(len, text.splitlines())) <= columns


@pytest.mark.parametrize("columns", range(40, 121))
def test_no_line_is_wider_than_the_terminal(shown, columns):
    text = shown(TREE, columns)

    assert max(map(len, text.splitlines())) <= columns
    assert "production" in text.replace("\n", "")


def test_children_stand_below_their_parents_and_columns_below_their_heads(shown):
    lines = shown(TREE, 80).splitlines()

    assert [re.split(r" {2,}\d", line)[0] for line in lines[1:6]] == [
        "root",
        "  advertising",
        "    production !",
        "    test",
        "  ml",
    ]
    for head in ("weight", "guar.", "fair", "has", "run", "wait", "park"):
        end = lines[0].index(head) + len(head)
        assert lines[1][end - 1] != " "
        assert all(line[end : end + 1] in ("", " ") for line in lines[1:6])


def test_shares_are_percentages_and_what_nobody_said_is_left_empty(shown):
    lines = shown(TREE, 100).splitlines()

    assert lines[1].split() == ["root", "30.25", "100.0", "100.0", "100.0", "memory", "5.0", "12", "1234", "5"]
    assert lines[5].split() == ["ml", "30.25", "0.0", "12", "1234", "0"]
    assert "shares in % of the cell\n" in shown(TREE, 100)
    assert "shares in % of the cell; guar.: guaranteed; borr.: borrowed; park: parked\n" in shown(TREE, 80)


def test_names_of_a_cell_without_a_tree_are_shown_whole(shown):
    text = shown(queue("", queue("ads/prod"), queue("ads", queue("ads/test")), share=None), 100)

    assert [line.partition("  30")[0].rstrip() for line in text.splitlines()[1:5]] == [
        "root",
        "  ads/prod",
        "  ads",
        "    test",
    ]


def test_jobs_before_a_gate_have_a_column_only_where_there_are_any(shown):
    assert heads(shown(queue("", queue("a")), 100))[-1] == "wait"
    assert heads(shown(queue("", queue("a"), parked=1), 100))[-1] == "parked"


def test_a_broken_guarantee_is_told_below_the_tree(shown):
    printed = " ".join(shown(TREE, 60).split("!")[-1].split())

    assert printed.startswith("advertising/production is guaranteed 30.0 % and has had less since 2025-10-09 ")
    assert printed.endswith(", 30.0 % now; ml has most beyond its own")
    assert "!" not in shown(queue("", queue("a")), 60)


def test_limits_are_told_where_there_are_any(shown):
    limited = queue("", queue("a", policy="fifo", max={"cpu": "4"}), queue("b"))

    assert shown(limited, 60).endswith("\nqueue  limits\na      fifo; max cpu 4\n")
    assert "limits" not in shown(TREE, 60)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, ""),
        ({"policy": "srtf"}, "srtf"),
        ({"max": {"cpu": "2500m", "gpu": "0"}}, "max cpu 2500m, gpu 0"),
        ({"guaranteed": {"memory": "2Gi"}, "max": {"memory": "4Gi"}}, "guaranteed memory 2Gi; max memory 4Gi"),
        ({"running_jobs_max": 1}, "1 job runs at once"),
        ({"running_jobs_max": 2, "policy": "fifo"}, "fifo; 2 jobs run at once"),
        ({"submitters": ["ann", "bob"]}, "from ann, bob"),
        ({"submitters": list("abcdefg")}, "from a, b, c, d, e and 2 more"),
    ],
)
def test_limits_in_words(given, text):
    assert limits_text(queue("a", **given)) == text


# ---------------------------------------------------------------- what another config would do
def side(weight=1, guaranteed=0.25, fair=0.5, **limits):
    policy = limits.pop("policy", None)
    return {"weight": weight, "policy": policy, "limits": NO_LIMITS | limits, "guaranteed": guaranteed, "fair": fair}


def change(path, what, before, after):
    return {"queue": path, "change": what, "before": before, "after": after}


def answer(*queues, notes=(), changed=True, **knobs):
    return {"dry_run": True, "changed": changed, "set": knobs, "queues": list(queues), "notes": list(notes)}


MOVES = answer(
    change("ads", "set", side(60), side(30, 0.125, 0.375)),
    change("ads/prod", "moved", side(70), side(70, fair=0.002)),
    change("ml", "set", side(), side(max={"cpu": "2"}, policy="fifo")),
    change("new", "new", None, side(running_jobs_max=1)),
    change("old", "gone", side(max={"cpu": "1m"}), None),
    notes=["queue ads: 2 jobs ask for more at once than its max, and would never continue"],
    preset={"before": "largesse", "after": "drf"},
)


@pytest.fixture
def dry_run_text(monkeypatch):
    def show(document, columns=60):
        monkeypatch.setenv("COLUMNS", str(columns))
        return effect_text(document)

    return show


def test_what_a_config_would_do_reads_well_in_sixty_columns(dry_run_text):
    assert dry_run_text(MOVES) == (
        "knob    now       then\n"
        "preset  largesse  drf\n"
        "\n"
        "  queue       weight    guaranteed          fair\n"
        "  ads       60 -> 30  25.0 -> 12.5  50.0 -> 37.5\n"
        "  ads/prod        70          25.0  50.0 -> 0.20\n"
        "  ml               1          25.0          50.0\n"
        "+ new              1          25.0          50.0\n"
        "- old              1          25.0          50.0\n"
        "\n"
        "shares in % of the cell; + new, - gone\n"
        "\n"
        "queue  limits\n"
        "ml     none -> fifo; max cpu 2\n"
        "new    1 job runs at once\n"
        "\n"
        "note  queue ads: 2 jobs ask for more at once than its max,\n"
        "      and would never continue\n"
        "\n"
        "dry run: nothing has been changed\n"
    )


@pytest.mark.parametrize("columns", range(40, 101))
def test_no_line_of_it_is_wider_than_the_terminal(dry_run_text, columns):
    assert max(map(len, dry_run_text(MOVES, columns).splitlines())) <= columns


def test_a_config_that_moves_nobody_or_changes_nothing_says_so(dry_run_text):
    assert dry_run_text(answer(seed={"before": 0, "after": 7})).splitlines()[3:] == [
        "no queue would have another share",
        "",
        "dry run: nothing has been changed",
    ]
    assert dry_run_text(answer(changed=False)) == "in force already: nothing would change\n"


def test_who_has_no_share_inside_a_list_says_so(dry_run_text):
    text = dry_run_text(answer(change("a", "set", side(1), side(2, None, None, policy="fifo"))))

    assert "  a      1 -> 2  25.0 -> none  50.0 -> none" in text


def test_what_is_promised_to_reservations_stands_below_the_shares(shown):
    text = shown(queue("", queue("prod") | {"promised": {"cpu": "4"}}, queue("batch")), 80)
    assert text.rstrip().splitlines()[-2:] == ["queue  promised now, beside the shares", "prod   cpu 4"]
    assert "has in % of the cell; guaranteed, fair and lent in % of what is not promised" in text


def test_a_dry_run_in_an_idle_cell_says_why_all_shares_are_nothing(dry_run_text):
    idle = {"weight": 1, "policy": None, "limits": NO_LIMITS, "guaranteed": 0, "fair": 0}
    found = [{"queue": "a", "change": "new", "before": None, "after": idle}]
    document = {"changed": True, "set": {}, "queues": found, "notes": []}

    assert "all are 0 as long as no queue asks for anything" in " ".join(dry_run_text(document).split())
    assert "as long as" not in dry_run_text(MOVES)
