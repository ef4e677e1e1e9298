"""Reservations for people and for programs: charts fit the terminal, texts say what an answer is about."""

import json
from contextvars import copy_context
from time import time

import pytest

from services.cli import plan_chart
from services.cli.arguments import use_zone
from services.cli.documents import read_job
from services.cli.ending import Refused, Wrong
from services.cli.getting import _resource_time
from services.cli.plan_chart import charts, list_reservations, one_reservation, one_series, refusal_text
from services.cli.reservation_files import Wanted, read_request, read_series
from services.cli.reserving import _dry_series
from services.cli.show import listed, moment
from services.gateway.documents.models.reservations import Reservation
from tests.unit.cli_here import largesse

ATOM = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 1, "l": 60, "w": 60}
YES = {"accepted": True, "form": "", "reason": "", "detail": "", "offer_from_ms": None, "offer_to_ms": None}
YES |= {"size_permille": None}
NO = YES | {"accepted": False, "reason": "no_room", "detail": "too much is promised in this time already"}


def step(begin_s, end_s, units):
    return {"from_ms": begin_s * 1_000, "to_ms": end_s * 1_000, "units": units, "unit": {"cpu": "1"}, "atom": "0"}


def reservation(name="r", state="accepted", answer=YES, **more):
    document = {"reservation": name, "user": "ann@example.com", "queue": "advertising/production", "state": state}
    document |= {"answer": answer, "requested_ms": 0, "unanswered": 0, "moved": 0, "moved_why": ""}
    steps = [step(0, 3_600, 2), step(1_800, 7_200, 3)] if state == "accepted" else []
    return document | {"steps": steps} | more


@pytest.mark.parametrize("columns", range(40, 201, 4))
@pytest.mark.parametrize("no", [False, True])
def test_no_chart_is_torn_and_no_line_is_wider_than_the_terminal(monkeypatch, columns, no):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = charts([reservation("nightly"), *([reservation("b", "rejected", NO)] if no else [])]).splitlines()

    assert max(map(len, lines)) <= columns
    bars = [line for line in lines if "█" in line]
    assert len(bars) == 1
    assert bars[0].count("▄") + bars[0].count("█") + bars[0].count("▃") + bars[0].count("▅") >= plan_chart.COLUMNS_LEAST
    assert any(line.strip().startswith("to: ") for line in lines)


@pytest.mark.parametrize(("columns", "below"), [(80, True), (120, False)])
def test_answers_stand_below_the_charts_where_a_column_would_be_narrow(monkeypatch, columns, below):
    monkeypatch.setenv("COLUMNS", str(columns))
    found = [reservation("nightly", answer=NO), reservation("b", "rejected", NO)]
    lines = charts(found).splitlines()

    assert ("nightly: update refused: no (no_room)" in charts(found)) == below
    assert any(line.startswith("b: no (no_room)") for line in lines) == below
    assert any("answer" in line for line in lines) != below


class Listing:
    """A gateway that shows these reservations, and these series."""

    def __init__(self, *found, series=()):
        self.found, self.series = found, series

    def get(self, path, *_):
        return {"reservations": list(self.found)} if path == "/v1/reservations" else {"series": list(self.series)}

    def moment_ms(self, *, told):
        return time() * 1_000

    def dated(self, name, found):
        return found


DAILY = {"series": "s", "user": "ann", "queue": "q", "every": "86400", "zone": "UTC", "start_s": 4_000_000_000,
         "requested_ms": 0, "weight": 1, "rdl": ATOM}  # fmt: skip
CRON = DAILY | {"series": "c", "every": "0 6 * * *", "zone": "Europe/Berlin"}


def test_in_a_pipe_a_promise_is_its_begin_its_end_and_the_most_units(capsys):
    list_reservations(Listing(reservation("a"), reservation("b", "rejected", NO)), json=False)

    heads, a, b = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert heads == ["reservation", "user", "queue", "state", "from", "to", "units", "answer"]
    assert (a[0], a[6], a[7]) == ("a", "5", "")
    assert (a[4], a[5]) == (moment(0), moment(7_200_000))
    assert (b[4:7], b[7].startswith("no (no_room)")) == (["", "", ""], True)


@pytest.mark.parametrize(
    ("over", "shown"), [(False, ["a", "c", "b"]), (True, ["a", "c", "b", "gone", "past"])], ids=["usual", "all"]
)
def test_on_a_terminal_those_that_are_over_are_shown_only_if_asked_for(over, shown, monkeypatch, capsys):
    monkeypatch.setattr(plan_chart, "drawing", lambda: listed)
    monkeypatch.setenv("COLUMNS", "200")
    states = {"gone": "deleted", "b": "rejected", "a": "accepted", "past": "ended", "c": "requested"}
    found = [reservation(name, state, NO if state == "rejected" else None) for name, state in states.items()]

    list_reservations(Listing(*found), json=False, over=over)

    said = capsys.readouterr().out
    assert sorted(line.split()[0] for line in said.splitlines() if line.split()[:1] and line.split()[0] in states) == (
        sorted(shown)
    )
    assert ("2 reservations deleted or ended: --all shows them" in said) == (not over)
    assert said.index("\nc ") < said.index("\nb ")


@pytest.mark.parametrize("over", [False, True])
def test_on_a_terminal_a_series_shows_its_next_occurrences_and_says_how_many_follow(over, monkeypatch, capsys):
    monkeypatch.setattr(plan_chart, "drawing", lambda: listed)
    monkeypatch.setenv("COLUMNS", "200")
    of_s = [reservation(f"s.{number:02}", series="s") for number in reversed(range(10))]
    found = [*of_s, reservation("s.10", "rejected", NO, series="s"), reservation("alone", series="")]
    list_reservations(Listing(*found, series=[DAILY]), json=False, over=over)

    said = capsys.readouterr().out
    shown = [line.split()[0] for line in said.splitlines() if line.startswith(("s.", "alone"))]
    few = {"s.00", "s.01", "s.02", "s.10", "alone"}
    assert set(shown) == ({each["reservation"] for each in found} if over else few)
    assert ("7 later occurrences of s: --all shows them" in said) == (not over)


def test_in_a_pipe_a_series_is_a_row_with_its_next_occurrence_and_how_many_are_promised(capsys):
    one, no = reservation("s.1", series="s"), reservation("s.2", "rejected", NO, series="s")
    list_reservations(Listing(one, no, reservation("b", series=""), series=[DAILY, CRON]), json=False)

    heads, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [len(row) for row in rows] == [len(heads)] * 5
    assert rows[3] == ["s", "ann", "q", "recurs", moment(4_000_000_000_000), "", "",
                       "every 86400 s (UTC); 1 occurrence promised"]  # fmt: skip
    assert rows[4][7] == "0 6 * * * (Europe/Berlin); 0 occurrences promised"


def test_on_a_terminal_series_have_a_table_of_their_own(capsys, monkeypatch):
    monkeypatch.setattr(plan_chart, "drawing", lambda: plan_chart.listed)
    list_reservations(Listing(series=[DAILY]), json=False)

    heads, row = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip(" ─━-")]
    assert heads == ["series", "recurs", "zone", "next", "promised"]
    assert (row[:5], row[-1]) == (["s", "every", "86400", "s", "UTC"], "0")


def test_as_json_series_stand_behind_the_reservations_and_have_all_that_these_have(capsys):
    first = reservation("s.1", series="s")
    list_reservations(Listing(first, series=[DAILY]), json=True)

    one, series = json.loads(capsys.readouterr().out)
    assert one == first
    assert Reservation.model_fields.keys() - {"at"} <= series.keys()  # The moment stands beside the list.
    assert (series["reservation"], series["state"], series["steps"]) == ("s", "recurs", [])
    assert (series["next_ms"], series["promised"]) == (4_000_000_000_000, 1)


def test_a_series_in_a_time_zone_that_this_machine_does_not_know_is_listed(capsys):
    list_reservations(Listing(series=[CRON | {"zone": "No/Where"}]), json=True)
    assert json.loads(capsys.readouterr().out)[0]["next_ms"] is None


def test_a_dry_run_says_that_nothing_was_changed_and_which_promises_would_move():
    printed = one_reservation(reservation(moved_why="would move other"), dry_run=True)

    assert "would be accepted" in printed
    assert "would move other" in printed
    assert printed.endswith("dry run: nothing has been changed\n")
    assert "dry run" not in one_reservation(reservation())


def test_moves_are_counted():
    assert "1 time, last broken rack" in one_reservation(reservation(moved=1, moved_why="broken rack"))
    assert "2 times, last" in one_reservation(reservation(moved=2, moved_why="broken rack"))


def test_a_no_to_an_accepted_reservation_is_about_its_update():
    printed = " ".join(one_reservation(reservation(answer=NO)).split())

    assert "update no (no_room)" in printed
    assert "the old terms stay in force" in printed
    assert "answer no (no_room)" in " ".join(one_reservation(reservation(state="rejected", answer=NO)).split())


@pytest.mark.parametrize(("name", "queue", "place"), [("x/y", None, "NAME: "), ("x", "a//b", "--queue: ")])
def test_a_wrong_name_or_queue_is_not_a_fault_of_the_file(tmp_path, name, queue, place):
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"op": "window", "s": 0, "e": 7_200, "of": ATOM}))

    with pytest.raises(Wrong) as fault:
        read_request(name, Wanted(str(file), queue=queue).read(name), "UTC")
    assert str(fault.value).startswith(place)


def test_a_preset_of_a_comparison_is_named_with_its_option():
    said = largesse("compare", "--presets", "fifo,,drf", "--workload", "w", "--cluster", "c")

    assert said.code != 0
    assert '--presets: "": has to be one of' in said.err


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ({"cpu": "5037m"}, "5.03 core-s"),
        ({"cpu": "100"}, "100 core-s"),
        ({"cpu": "3m"}, "0 core-s"),
        ({"cpu": "1500m", "memory": "7680Mi"}, "1.5 core-s, memory 7.5Gi-s"),
    ],
)
def test_resource_time_is_written_in_core_seconds(amounts, text):
    assert _resource_time(amounts) == text


@pytest.mark.parametrize(
    ("terms", "user"),
    [
        ({"reservation": "r"}, "ann"),
        ({"reservation": "r", "user": "bob"}, "bob"),
        ({}, None),
        ({"user": "bob"}, "bob"),
    ],
)
@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_a_job_of_a_reservation_is_its_submitters_unless_it_names_a_user(tmp_path, capsys, terms, user, kind):
    stage = {"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": "0.25"}}
    file = tmp_path / f"job.{kind}"  # JSON is YAML, too.
    file.write_text(json.dumps({"job": "j", "stages": [stage], **terms}))

    written = read_job(str(file), lambda: "ann")
    assert written.document.get("user") == user
    assert json.loads(written.data).get("user") == user
    assert capsys.readouterr().err == ""


def test_yaml_may_begin_with_a_bracket(tmp_path):
    stages = "{job: flow, stages: [{stage: s, tasks: 1, demand: {cpu: 100m}, command: ['true']}]}"
    for name in ("job.yaml", "job"):
        file = tmp_path / name
        file.write_text(stages)
        assert read_job(str(file), lambda: "ann").document["job"] == "flow"


def recurring(tmp_path, every, window="window(0, 2h, {})"):
    file = tmp_path / "r.rdl"
    file.write_text(window.format("atom(b='1 cpu', g=1, h=1, l=1m, w=1m)"))
    return read_series("s", Wanted(str(file)).read("s", every), "UTC", every)


def test_a_series_by_a_cron_expression_counts_from_each_occurrence(tmp_path):
    series, first = recurring(tmp_path, "0 6 * * *")

    assert (series["rdl"]["s"], series["rdl"]["e"]) == (0, 7_200)
    assert first["rdl"]["s"] % 86_400 == 6 * 3_600
    assert first["reservation"].endswith("T060000Z")


def test_a_series_by_a_period_begins_with_the_window(tmp_path):
    series, first = recurring(tmp_path, "86400", "window(+1h, +2h, {})")

    assert (series["rdl"]["s"], series["rdl"]["e"]) == (0, 3_600)
    assert first["rdl"]["s"] == series["start_s"]


@pytest.mark.parametrize(
    ("every", "window", "problem"),
    [
        ("0 6 * * 8", "window(0, 2h, {})", "is no cron expression"),
        ("0 * * * *", "window(0, 2h, {})", "begins 3600 s after another, and the window has 7200 s"),
        ("0 6 30 2 *", "window(0, 2h, {})", "cron expression"),
        ("86400", "window(0, 2h, {})", "with a period the window is that of the first occurrence"),
        ("0 6 * * *", "{}", "has to be a window"),
    ],
)
def test_a_series_that_cannot_be_is_refused_with_the_option(tmp_path, every, window, problem):
    with pytest.raises(Wrong) as fault:
        recurring(tmp_path, every, window)
    assert str(fault.value).startswith("--every: ")
    assert problem in str(fault.value)


@pytest.mark.parametrize(("every", "seconds"), [("1d", 86_400), ("2h30m", 9_000), ("7200", 7_200), (" 120m ", 7_200)])
def test_a_period_is_a_duration_as_in_the_language(tmp_path, every, seconds):
    assert recurring(tmp_path, every, "window(+1h, +2h, {})")[0]["every"] == seconds


@pytest.mark.parametrize(
    ("every", "problem"),
    [
        ("0", "0: a period has to be at least 1 second"),
        ("-5", "-5: a period has to be at least 1 second"),
        ("-1d", "-1d: a period has to be at least 1 second"),
        ("0h", "0h: a period has to be at least 1 second"),
        ("1w", '"1w" is neither a period like 86400, 2h or 1d12h nor a cron expression of 5 fields like "0 6 * * 1-5"'),
        ("", '"" is neither a period like'),
    ],
)
def test_what_is_no_period_is_told_in_words_of_periods(tmp_path, every, problem):
    with pytest.raises(Wrong) as fault:
        recurring(tmp_path, every, "window(+1h, +2h, {})")
    assert str(fault.value).startswith(f"--every: {problem}")


class Asked:
    """A gateway that plans so far ahead, and answers every dry run with yes."""

    def __init__(self, horizon_s):
        self.horizon_s, self.paths = horizon_s, []

    def get(self, *_):
        return {"set": {"reservation_horizon_ms": self.horizon_s * 1_000}}

    def document(self, method, path, *_, json, params):
        assert (method, params) == ("POST", {"dry_run": "true"})
        self.paths.append(path)
        return dict(json) if path == "/v1/series" else reservation(json["reservation"])


def dry(tmp_path, horizon_s, as_json=False):
    gateway = Asked(horizon_s)
    _dry_series(gateway, *recurring(tmp_path, "1d", "window(+48h, +49h, {})"), as_json)
    return gateway.paths


def test_a_dry_run_of_a_series_says_that_its_first_occurrence_is_not_due_yet(tmp_path, capsys):
    assert dry(tmp_path, 86_400) == ["/v1/series"]

    said = capsys.readouterr().out
    assert said.startswith("s: would be accepted. Its first occurrence is not due yet: s.2")
    assert said.endswith("dry run: nothing has been changed\n")


def test_as_json_it_says_when_that_occurrence_is_due(tmp_path, capsys):
    dry(tmp_path, 86_400, as_json=True)

    said = json.loads(capsys.readouterr().out)
    assert said["series"] == "s"
    assert said["first"]["from_ms"] - said["first"]["due_ms"] == (86_400 - 3_600) * 1_000


def test_a_dry_run_of_a_series_whose_first_occurrence_is_due_tells_the_answer_to_that(tmp_path, capsys):
    assert dry(tmp_path, 7 * 86_400) == ["/v1/series", "/v1/reservations"]
    assert "would be accepted" in capsys.readouterr().out


def test_a_series_is_shown_with_its_occurrences():
    series = {"series": "s", "user": "ann", "queue": "q", "every": "86400", "zone": "UTC", "start_s": 0}
    printed = one_series(series | {"occurrences": 2}, [reservation("s.19700101T000000Z")])

    assert "86400 s from" in printed
    assert "2 occurrences so far" in printed
    assert "s.19700101T000000Z" in printed


# ---------------------------------------------------------------- time zones
@pytest.mark.parametrize(
    ("zone", "text"),
    [("UTC", "2026-07-01 12:00:00 UTC"), ("Europe/Berlin", "2026-07-01 14:00:00 CEST")],
)
def test_times_name_their_zone_and_are_shown_in_the_one_that_was_asked_for(zone, text):
    def shown():
        use_zone(zone)
        return moment(1_782_907_200_000)

    assert copy_context().run(shown) == text


def test_a_zone_that_is_not_known_is_refused_with_the_option():
    with pytest.raises(Wrong, match=r"^--zone: "):
        use_zone("Europe/Atlantis")


# ---------------------------------------------------------------- where a fault stands
TEXT = """window(0, 2h,
  all(atom(b="1 cpu", g=1, h=2, l=5m, w=20m),
      atom(b="1 gpu, 2Gi", g=1, h=2, l=5m, w=20m)))
"""
AS_YAML = """op: window
s: 0
e: 2h
of:
  op: all
  of:
  - {op: atom, b: "1 cpu", g: 1, h: 2, l: 5m, w: 20m}
  - op: atom
    b: {gpu: 1,
        memory: 2Gi}
    g: 1
    h: 2
    l: 5m
    w: 20m
"""


@pytest.mark.parametrize(
    ("text", "place"),
    [(TEXT, "line 3, column 14: gpu"), (AS_YAML, "line 9, column 14: gpu")],
    ids=["text", "YAML"],
)
def test_what_the_cell_finds_wrong_in_a_request_is_told_with_its_line_and_column(tmp_path, text, place):
    file = tmp_path / "r.rdl"
    file.write_text(text)
    document, places = read_request("r", Wanted(str(file)).read("r"), "UTC")
    assert document["rdl"]["of"]["of"][1]["b"]["gpu"] == "1"

    with pytest.raises(Refused) as refused, places.named():
        raise Refused("r is not accepted: rdl.of.of[1].b.gpu: the cell has none of it")
    assert str(refused.value) == f"r is not accepted: {file}: {place}: the cell has none of it"

    no = {"accepted": False, "detail": "rdl.of.of[1].b.gpu: none of it"}
    assert places.in_answer({"answer": no})["answer"]["detail"] == f"{file}: {place}: none of it"
    assert places.in_answer({"answer": None}) == {"answer": None}
    assert places.placed("rdl.of.of[7].b: no such part") == "rdl.of.of[7].b: no such part"


def test_a_broken_promise_says_until_when_it_is_tried_again():
    no = NO | {"reason": "broken", "detail": "too little cpu"}
    one = reservation(state="broken", answer=no, retry_until_ms=7_200_000)
    assert "again" in one_reservation(one)
    assert "1970-01-01 02:00:00 UTC, whenever there is more room" in " ".join(one_reservation(one).split())
    assert refusal_text(one).endswith("; it is tried again until 1970-01-01 02:00:00 UTC, whenever there is more room")
    over = reservation(state="broken", answer=no)
    assert "tried again" not in one_reservation(over) + refusal_text(over)


def test_a_restored_promise_says_so():
    assert "1 time after its promise was broken" in one_reservation(reservation(restored=1))


@pytest.mark.parametrize("columns", [40, 47, 48, 120])
def test_the_chart_of_one_reservation_has_axes(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = one_reservation(reservation()).splitlines()

    at = next(i for i, line in enumerate(lines) if "█" in line)
    assert lines[at - 1] == "units at a time, full height is 5"
    assert (len(lines[at + 1]), lines[at + 1][0], lines[at + 1][-1]) == (len(lines[at]), "├", "┤")
    below = lines[at + 2 : at + (3 if columns >= 48 else 4)]
    assert " ".join(" ".join(below).replace("from", "").replace("to", "").split()) == f"{moment(0)} {moment(7_200_000)}"
    assert len(below[0]) <= len(lines[at])
    assert lines[at + 2 + len(below)] == ""


@pytest.mark.parametrize(
    ("form", "text"),
    [("flat", "as few units at a time as its window allows"), ("early", "as soon as possible"), ("", "")],
)
def test_the_form_of_a_plan_is_explained_where_it_is_printed(form, text):
    printed = " ".join(one_reservation(reservation(answer=YES | {"form": form})).split())
    assert f"answer yes{f', planned {form} ({text})' if form else ''}" in printed


def test_a_reservation_says_which_of_its_jobs_ended_late(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    window = {"op": "window", "s": 0, "e": 3_600, "of": ATOM}
    jobs = [
        {"job": "late", "state": "succeeded", "ended_ms": 3_609_000},
        {"job": "punctual", "state": "failed", "ended_ms": 3_600_000},
        {"job": "slow", "state": "running", "ended_ms": None},
    ]
    lines = one_reservation(reservation(rdl=window), jobs=jobs).splitlines()

    said = [line.split(maxsplit=1)[1] for line in lines if line.lstrip().startswith("job")]
    assert said == [
        f"late succeeded {moment(3_609_000)}, 9.0 s after the end of the window",
        f"punctual failed {moment(3_600_000)}",
        "slow running",
    ]


def test_only_so_many_jobs_of_a_reservation_are_named():
    jobs = [{"job": f"j{i}", "state": "running", "ended_ms": None} for i in range(plan_chart.JOBS_SHOWN_MAX + 2)]

    assert "and 2 more" in one_reservation(reservation(), jobs=jobs)
