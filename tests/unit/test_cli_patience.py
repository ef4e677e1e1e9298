"""A gateway that does not answer is waited for: how long, how often, and that nothing is printed twice."""

import httpx
import pytest

from services.cli import patience
from services.cli.client import Gateway
from services.cli.ending import Broken, Refused, Unanswered
from services.cli.patience import PAUSE_S_MAX, SILENCE_S_MAX, Patience, followed

SILENT = Unanswered("no answer\n(a hint)", "no answer")


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(patience, "sleep", made.sleep)
    monkeypatch.setattr(patience, "monotonic", lambda: made.now)
    return made


def test_pauses_grow_up_to_a_limit_and_end_in_time(clock, capsys):
    waiting = Patience()
    waiting.answered()

    def out_of_patience():
        while True:
            waiting.wait(SILENT)

    with pytest.raises(Broken, match="given up after 60 s: no answer\n") as ending:
        out_of_patience()

    assert ending.value.code == 3
    assert clock.pauses[:6] == [0.5, 1, 2, 4, 8, 8]
    assert (max(clock.pauses), clock.now) == (PAUSE_S_MAX, SILENCE_S_MAX)
    assert capsys.readouterr().err == "no answer (still trying, for 60 s)\n"


def test_an_answer_starts_everything_anew(clock, capsys):
    waiting = Patience()
    for _ in range(3):
        waiting.answered()
        for _ in range(5):
            waiting.wait(SILENT)

    assert clock.pauses == [0.5, 1, 2, 4, 8] * 3
    assert capsys.readouterr().err.splitlines()[1] == "the gateway answers again"


def test_who_was_never_answered_does_not_wait(clock):
    with pytest.raises(Unanswered):
        Patience().wait(SILENT)

    assert clock.pauses == []


class Streams:
    """A gateway whose streams of events are these, one after the other."""

    def __init__(self, *streams):
        self.streams = list(streams)

    def events(self, job):
        for each in self.streams.pop(0):
            if isinstance(each, Exception):
                raise each
            yield each


def test_a_job_is_followed_over_a_restart_and_what_is_known_is_not_told_again(clock):
    gateway = Streams([1, 2, SILENT], [SILENT], [2, 3, SILENT], [4])

    assert list(followed(gateway, "j")) == [1, 2, 3, 4]
    assert clock.pauses == [0.5, 1, 0.5]


def test_a_job_that_is_not_there_after_the_restart_is_not_waited_for(clock):
    with pytest.raises(Refused):
        list(followed(Streams([1, SILENT], [Refused("not known here")]), "j"))


@pytest.mark.parametrize(
    ("lines", "ended"),
    [
        pytest.param(['data: {"ended_ms": null}', 'data: {"ended_ms": 5}'], True, id="to the end"),
        pytest.param(['data: {"ended_ms": null}', ": still here"], False, id="cut off"),
        pytest.param(
            ['event: job\r\ndata: {"ended_ms":\ndata: null, "detail": "a\u2028b"}\nid: 7-ab', 'data:{"ended_ms": 5}'],
            True,
            id="in lines as an event stream may have them",
        ),
        pytest.param(
            ['id: 7-ab\ndata: {"ended_ms": null}', ": still here", 'data: {"ended_ms": 5}'],
            True,
            id="with a comment after an event that has an id",
        ),
        pytest.param([], False, id="nothing at all"),
    ],
)
def test_a_stream_that_ends_before_its_job_is_no_answer(lines, ended):
    def answered(request):
        return httpx.Response(
            200, text="".join(f"{line}\n\n" for line in lines), headers={"Content-Type": "text/event-stream"}
        )

    gateway = Gateway("http://127.0.0.1:9")
    gateway._http = httpx.Client(transport=httpx.MockTransport(answered), base_url=gateway.url)

    if ended:
        assert [each["ended_ms"] for each in gateway.events("j")] == [None, 5]
    else:
        with pytest.raises(Unanswered, match="has ended, and job j has not"):
            list(gateway.events("j"))
