"""RDL as people write it: text, YAML and JSON, times and zones, recurrences, and where a fault is."""

import pytest

from services.planner.rdl.document import read_document
from services.planner.rdl.faults import BadDocument
from services.planner.rdl.parts import TEXT_MAX
from services.planner.rdl.recurrence import OCCURRENCES_MAX, expanded
from services.planner.rdl.times import clock, duration_s, time_s
from tests.plan_rig import accepted, ask, gang, solved, window

MORNING = clock("2026-11-23T00:00Z", now_s=8 * 3_600)
HOUR = 3_600

TEXT = """
# Two stages, one after the other.
window(10:00, 12:00, order(
    atom(b="1 cpu, 2Gi", g=4, h=20, l=5m, w=200m),
    any(atom('500m cpu', 1, 2, 60, 1h), atom(b="cpu=2, gpu=1", g=1, h=1, l=1m, w=90s))))
"""
YAML = """
op: window
s: 10:00
e: 12:00
of:
  op: order
  of:
    - {op: atom, b: {cpu: 1, memory: 2Gi}, g: 4, h: 20, l: 5m, w: 200m}
    - op: any
      of:
        - {op: atom, b: 500m cpu, g: 1, h: 2, l: 60, w: 1h}
        - {op: atom, b: "cpu=2, gpu=1", g: 1, h: 1, l: 1m, w: 90s}
"""
JSON = """
{"op": "window", "s": "10:00", "e": 43200, "of": {"op": "order", "of": [
  {"op": "atom", "b": {"cpu": 1, "memory": "2Gi"}, "g": 4, "h": 20, "l": 300, "w": 12000},
  {"op": "any", "of": [{"op": "atom", "b": {"cpu": "500m"}, "g": 1, "h": 2, "l": 60, "w": 3600},
                       {"op": "atom", "b": {"cpu": "2", "gpu": "1"}, "g": 1, "h": 1, "l": 60, "w": 90}]}]}}
"""


@pytest.mark.parametrize("document", [TEXT, YAML, JSON], ids=["text", "YAML", "JSON"])
def test_a_request_says_the_same_in_every_form(document):
    choice = [
        {"op": "atom", "b": {"cpu": "500m"}, "g": 1, "h": 2, "l": 60, "w": 3_600},
        {"op": "atom", "b": {"cpu": "2", "gpu": "1"}, "g": 1, "h": 1, "l": 60, "w": 90},
    ]
    first = {"op": "atom", "b": {"cpu": "1", "memory": "2Gi"}, "g": 4, "h": 20, "l": 300, "w": 12_000}

    assert read_document(document, MORNING) == {
        "op": "window",
        "s": 10 * HOUR,
        "e": 12 * HOUR,
        "of": {"op": "order", "of": [first, {"op": "any", "of": choice}]},
    }


def deep(levels):
    return "all(" * levels + 'atom(b="1 cpu", g=1, h=1, l=1, w=1)' + ")" * levels


ONE = 'atom(b="1 cpu", g=1, h=1, l=1, w=1)'


@pytest.mark.parametrize(
    ("document", "line", "column", "reason"),
    [
        ('window(10:00, 12:00,\n  atom(b="1 cpu", g=1, h=2, l=5x, w=1h))', 2, 31, "no duration"),
        ("windo(1, 2, " + ONE + ")", 1, 1, 'did you mean "window"?'),
        ('atom(b="1 cpu", g=1, h=1, l=1, k=1)', 1, 34, 'atom has no "k"'),
        ('atom(b="1 cpu", g=1, h=1, l=1)', 1, 1, "atom has no w"),
        ('atom(b="1 cpu", g=3, h=2, l=1, w=1)', 1, 19, "more than h"),
        ('atom(b="1", g=1, h=1, l=1, w=1)', 1, 8, "of what"),
        ('atom(b="1cpu", g=1, h=1, l=1, w=1)', 1, 8, 'Write b="1 cpu"'),
        ('atom(b="1 cpu, 2GB", g=1, h=1, l=1, w=1)', 1, 8, 'Write b="2G memory"'),
        ('atom(b="1 cpu, 2 cpu", g=1, h=1, l=1, w=1)', 1, 8, "twice"),
        ('atom(b="1 cpu", b="2 cpu", g=1, h=1, l=1, w=1)', 1, 17, "twice"),
        ('atom(b="1GB memory", g=1, h=1, l=1, w=1)', 1, 8, 'did you mean "1G"?'),
        ("window(2h, 1h, " + ONE + ")", 1, 12, "has to end after"),
        ("window(25:00, 26:00, " + ONE + ")", 1, 8, "no time of day"),
        ("window(10:00 Mars/Base, 12:00, " + ONE + ")", 1, 8, "no time zone"),
        ("window(1h, 2h)", 1, 1, "one request"),
        ("all()", 1, 1, "at least one"),
        ("all(1h)", 1, 5, "holds requests only"),
        ("all(" + ONE, 1, None, "ends too soon"),
        (ONE + " all", 1, None, "not expected here"),
        ("all($)", 1, 5, "means nothing"),
        ("", 1, 1, "is empty"),
        ("# only a comment", 1, 1, "is empty"),
        ("op: atom\nb: 1 cpu\ng: 0\nh: 1\nl: 1\nw: 1", 3, 4, 'g: "0" is no whole number of units'),
        ("{op: atom, b: {cpu: 1, cpu: 2}, g: 1, h: 1, l: 1, w: 1}", 1, 24, "b: names cpu twice"),
        ("WINDOW(0, 1h, " + ONE + ")", 1, 1, 'did you mean "window"?'),
        ("window(10:00 12:00, " + ONE + ")", 1, 1, "this one has no e"),
        ("window(0, 1h)", 1, 1, "this one has no request"),
        ("window(0, 1h, " + ONE + ", " + ONE + ")", 1, 1, "this one has 2 requests"),
        ("window(0, 1h, -1h, " + ONE + ")", 1, 15, "no negative"),
        ("op: all\nof: 7", 2, 5, "has to be an object"),
        ("op: [", 1, None, "neither YAML nor JSON"),
        pytest.param("{" * 5_000, 1, 1, "neither YAML nor JSON", id="5,000 braces"),
        (deep(12), 1, None, "nested too deep"),
        ("all(" + ", ".join([ONE] * 1_001) + ")", 1, None, "one atom too many"),
        ("#" * (TEXT_MAX + 1), 1, 1, "too long"),
    ],
)
def test_a_fault_is_told_with_its_place(document, line, column, reason):
    with pytest.raises(BadDocument) as fault:
        read_document(document, MORNING)
    assert fault.value.spot.line == line
    assert column is None or fault.value.spot.column == column
    assert reason in fault.value.reason


def test_aliases_do_not_multiply_without_limit():
    lines = ["op: all", "of:", "- &x0 {op: atom, b: 1 cpu, g: 1, h: 1, l: 1, w: 1}"]
    lines += [f"- &x{i + 1} {{op: all, of: [{', '.join([f'*x{i}'] * 40)}]}}" for i in range(5)]

    with pytest.raises(BadDocument, match="too large"):
        read_document("\n".join(lines), MORNING)


def test_the_end_of_a_window_is_the_first_such_time_after_its_start():
    rdl = read_document("window(12:00, 12:00 Europe/Berlin, " + ONE + ")", MORNING)

    assert (rdl["s"], rdl["e"]) == (12 * HOUR, 35 * HOUR)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5_400), ("2d", 172_800), ("0.5h", 1_800)]
)
def test_a_duration(text, seconds):
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5m", "5 m", "5M", "1e3"])
def test_no_duration(text):
    with pytest.raises(ValueError, match="is no duration"):
        duration_s(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("10:00", 10 * HOUR, id="later today"),
        pytest.param("08:00", 8 * HOUR, id="now"),
        pytest.param("07:59:59", 32 * HOUR - 1, id="not today any more"),
        pytest.param("10:00 Europe/Berlin", 9 * HOUR, id="in a zone of its own"),
        pytest.param("10:00Z", 10 * HOUR, id="in UTC"),
        pytest.param("2026-11-24T10:00", 34 * HOUR, id="a date"),
        pytest.param("2026-11-24T10:00+02:00", 32 * HOUR, id="with an offset"),
        pytest.param("2026-11-24T10:00 America/New_York", 39 * HOUR, id="with a zone"),
        pytest.param("+2h", 10 * HOUR, id="from now on"),
        pytest.param("2h", 2 * HOUR, id="from the beginning"),
    ],
)
def test_a_point_in_time(text, seconds):
    assert time_s(text, MORNING) == seconds


def test_a_time_of_day_is_the_same_after_clocks_were_changed():
    before_spring = clock("2026-03-28T12:00Z", zone="Europe/Berlin")

    assert time_s("06:00", before_spring) == 16 * HOUR  # 04:00 UTC the day after: it is summer time by then.


def test_an_order_of_cron_occurrences_is_planned_whole_or_not_at_all():
    rdl = window(0, 2 * HOUR, gang(6, HOUR))
    day = {"capacity": {"x": 10}, "horizon": 3 * 24 * HOUR, "origin": "2026-11-21T00:00Z", "zone": "Europe/Berlin"}
    request = {"op": "submit", "id": "r", "user": "ann", "rdl": rdl, "recurrence": "0 6 * * 1-5"}
    blocked = {"id": "other", "user": "bob", "profile": [{"from": 53 * HOUR, "to": 55 * HOUR, "usage": {"x": 5}}]}

    found = ask(request, agent="early", **day)["results"][0]

    assert [lease["from"] for lease in found["leases"]] == [53 * HOUR]  # Monday, six in Berlin.
    assert accepted(ask(request, existing=[blocked], **day)) == [False]


def test_a_period_repeats_a_request_as_it_stands():
    rdl = window(HOUR, 2 * HOUR, gang(6, HOUR))
    request = {"op": "submit", "id": "r", "user": "ann", "rdl": rdl, "recurrence": 3 * HOUR}

    found = ask(request, horizon=9 * HOUR)["results"][0]

    assert [(lease["atom"], lease["from"]) for lease in found["leases"]] == [
        ("0", HOUR),
        ("1", 4 * HOUR),
        ("2", 7 * HOUR),
    ]


def test_occurrences_have_a_limit():
    rdl, midnight = window(0, 60, gang(1, 60)), clock("2026-11-23T00:00Z")

    assert len(expanded(rdl, 60, midnight, OCCURRENCES_MAX * 60)["of"]) == OCCURRENCES_MAX
    with pytest.raises(ValueError, match="more than"):
        expanded(rdl, 60, midnight, (OCCURRENCES_MAX + 1) * 60)


@pytest.mark.parametrize(
    ("text", "recurrence", "reason"),
    [
        pytest.param("window(0m, 30m, {})", 3600, "write times like", id="durations with a period"),
        pytest.param("window(+0m, +30m, {})", "0 6 * * *", "write durations like", id="times with cron"),
        pytest.param("window(+0m, +30m, {})", 3600, None, id="times with a period"),
        pytest.param("window(0m, 30m, {})", "0 6 * * *", None, id="durations with cron"),
    ],
)
def test_a_window_that_counts_otherwise_than_its_recurrence_is_refused_with_how_to_write_it(text, recurrence, reason):
    today = clock(now_s=MORNING.now_s + 20_000 * 24 * HOUR)
    rdl = read_document(text.format("atom(b='1 cpu', g=1, h=1, l=30m, w=30m)"), today)
    horizon_s = today.now_s + 7 * 24 * HOUR

    if reason is None:
        found = expanded(rdl, recurrence, today, horizon_s)["of"]
        assert [one["e"] - one["s"] for one in found] == [HOUR // 2] * len(found)
        assert len(found) == (7 if recurrence == "0 6 * * *" else 7 * 24)
    else:
        with pytest.raises(ValueError, match=reason):
            expanded(rdl, recurrence, today, horizon_s)


@pytest.mark.parametrize(
    ("recurrence", "reason"),
    [
        pytest.param("0 6 * * *", None, id="once a day"),
        pytest.param("0 * * * *", "overlaps", id="more often than the window is long"),
        pytest.param("61 * * * *", "no cron expression", id="a minute that is none"),
        pytest.param("sometimes", "no cron expression", id="words"),
    ],
)
def test_a_cron_expression_is_checked_with_its_window(recurrence, reason):
    answer = solved(
        "rdl-validation",
        {
            "now": 0,
            "step_s": 60,
            "capacity": {"x": 10},
            "rdl": window(0, 2 * HOUR, gang(6, HOUR)),
            "recurrence": recurrence,
        },
    )

    assert answer["valid"] == (reason is None)
    assert reason is None or reason in answer["reason"]


def test_a_request_as_text_is_answered_with_quantities_in_base_units():
    given = {"capacity": {"cpu": "40", "memory": "100Gi"}, "horizon": 24 * HOUR}

    found = ask('window(10:00, 12:00, atom(b="1 cpu, 2Gi", g=4, h=20, l=5m, w=200m))', **given)["results"][0]

    assert found["accepted"]
    assert sum(lease["n"] * (lease["to"] - lease["from"]) for lease in found["leases"]) == 12_000


def test_a_fault_in_a_text_rejects_the_request_with_its_place():
    found = ask("window(10:00, 12:00, atom())")["results"][0]

    assert found["reason"].startswith("invalid: rdl: line 1, column 22:")
