"""What aiokafka says is passed on thinned out, and not silenced by a wall clock that was set back."""

import logging

import pytest

from largesse.bus.kafka import client
from largesse.bus.kafka.client import SAME_LINE_SECONDS, _Thinned


class Log:
    """Takes what is passed on, whatever log another test has set up in this process."""

    def __init__(self):
        self.said = []

    def warning(self, event, **fields):
        self.said.append((event, fields["logger"], fields["said"]))


@pytest.fixture
def log(monkeypatch):
    log = Log()
    monkeypatch.setattr(client, "_log", log)
    return log


def said_at(handler, log, *moments):
    """How many of the same line, said at these moments of the wall clock, were passed on."""
    log.said.clear()
    for moment in moments:
        record = logging.LogRecord("aiokafka", logging.WARNING, "", 0, "no %s", ("broker",), None)
        record.created = moment
        handler.handle(record)
    assert set(log.said) <= {("kafka_client", "aiokafka", "no broker")}
    return len(log.said)


def test_the_same_line_is_passed_on_once_in_its_time(log):
    handler = _Thinned()

    assert said_at(handler, log, 1_000.0, 1_001.0, 1_000.0 + SAME_LINE_SECONDS - 1) == 1
    assert said_at(handler, log, 1_000.0 + SAME_LINE_SECONDS) == 1


def test_a_wall_clock_that_was_set_back_silences_nothing(log):
    handler = _Thinned()

    assert said_at(handler, log, 1_000_000.0) == 1
    assert said_at(handler, log, 1_000_000.0 - 86_400) == 1
