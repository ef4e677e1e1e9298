"""`largesse logs --follow`: what a task prints is shown once and in order, whatever becomes of attempts and nodes."""

import httpx
import pytest

from largesse.task_output import ATTEMPT, END
from services.cli import patience, printing
from services.cli.client import STATE_HEADER, ending_of
from services.cli.ending import Broken, Later, Refused, Unanswered
from services.cli.printing import follow_output, sink_of


class Played:
    """A gateway that answers by a script, and what it was asked for: (attempt, offset)."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def ask(self, method, path, params):
        self.asked.append((params.get("attempt"), params["offset"]))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def said(text, end=None, *, attempt=1, state="live"):
    """An answer; `end` is where to go on, by default behind the text."""
    headers = {ATTEMPT: str(attempt), END: str(len(text) if end is None else end), STATE_HEADER: state}
    return httpx.Response(200, content=text.encode(), headers=headers)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(printing, "FOLLOW_S", 0)
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)


def printed(capfdbinary, gateway, **params):
    follow_output(gateway, "/logs", params, sink_of(raw=False))
    out, err = capfdbinary.readouterr()
    return out.decode(), err.decode()


def test_each_look_goes_on_where_the_last_one_ended(capfdbinary):
    gateway = Played(
        said("one\n"), said("", 4), said("\n[9 bytes were not kept]\ntwo\n", 17), said("", 17, state="ended")
    )

    assert printed(capfdbinary, gateway) == ("one\n\n[9 bytes were not kept]\ntwo\n", "")
    assert gateway.asked == [(None, 0), (None, 4), (None, 4), (None, 17)]


def test_the_end_of_a_failed_attempt_comes_before_the_next_one(capfdbinary):
    gateway = Played(
        said("one"),
        said("half of another", 99, attempt=2),
        said(" and its end", 15),
        said("two", attempt=2, state="ended"),
    )

    assert printed(capfdbinary, gateway) == ("one and its endtwo", "attempt 2:\n")
    assert gateway.asked == [(None, 0), (None, 3), (1, 3), (None, 0)]


def test_an_attempt_whose_node_is_gone_is_followed_by_the_next_all_the_same(capfdbinary):
    gateway = Played(
        said("one"), said("", 0, attempt=2), Broken("node n1 is lost"), said("two", attempt=2, state="ended")
    )

    out, err = printed(capfdbinary, gateway)
    assert out == "onetwo"
    assert err == "the end of attempt 1 is not available: node n1 is lost\nattempt 2:\n"


def test_a_named_attempt_is_followed_and_no_other(capfdbinary):
    gateway = Played(said("one"), said("", 3, state="ended"))

    assert printed(capfdbinary, gateway, attempt=1) == ("one", "")
    assert gateway.asked == [(1, 0), (1, 3)]


def test_what_is_not_to_be_had_now_is_waited_for_and_told_once(capfdbinary):
    gateway = Played(
        Later("it has not started", 1),
        Later("it has not started", 1),
        said("one"),
        Later("n1 does not answer", 3),
        Later("n1 does not answer", 3),
        said("", 3, state="ended"),
    )

    assert printed(capfdbinary, gateway) == (
        "one",
        "it has not started (still trying)\nn1 does not answer (still trying)\n",
    )


SILENT = Unanswered("no answer\n(a hint)", "no answer")


def test_a_gateway_that_is_started_again_is_waited_for_and_nothing_is_lost_or_said_twice(capfdbinary):
    gateway = Played(
        said("one"), SILENT, SILENT, Later("n1 does not answer", 3), said("two", 6), SILENT, said("", 6, state="ended")
    )

    out, err = printed(capfdbinary, gateway)
    assert out == "onetwo"
    assert err.splitlines() == [
        "no answer (still trying, for 60 s)",
        "the gateway answers again",
        "n1 does not answer (still trying)",
        "no answer (still trying, for 60 s)",
        "the gateway answers again",
    ]
    assert gateway.asked == [(None, 0), *[(None, 3)] * 4, *[(None, 6)] * 2]


def test_the_end_of_an_attempt_is_asked_for_again_where_the_gateway_did_not_answer(capfdbinary):
    second = said("two", attempt=2, state="ended")
    gateway = Played(said("one"), second, SILENT, second, said(" end", 7), second)

    out, _ = printed(capfdbinary, gateway)
    assert out == "one endtwo"
    assert gateway.asked == [(None, 0), (None, 3), (1, 3), (None, 3), (1, 3), (None, 0)]


@pytest.mark.parametrize("ending", [Refused("no such job"), Broken("the gateway is gone"), SILENT])
def test_what_cannot_come_is_not_waited_for(ending):
    with pytest.raises(type(ending)):
        follow_output(Played(ending), "/logs", {}, sink_of(raw=False))


@pytest.mark.parametrize(
    ("status", "kind", "live", "ending", "code"),
    [
        (404, "no_output", True, Later, 1),
        (404, "no_output", False, Refused, 1),
        (503, "node_unreachable", True, Later, 3),
        (503, "node_unreachable", False, Broken, 3),
        (503, "not_ready", False, Unanswered, 3),
    ],
)
def test_whether_to_wait_is_said_by_whether_the_job_lives(status, kind, live, ending, code):
    problem = {"type": f"urn:largesse:{kind}", "detail": "why", "live": live}
    found = ending_of(httpx.Response(status, json=problem, request=httpx.Request("GET", "http://x/")))

    assert (type(found), found.code, str(found)) == (ending, code, "why")
