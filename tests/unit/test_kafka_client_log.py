"""What aiokafka says is passed on thinned out, and not silenced by a wall clock that was set back."""

import logging

from largesse.bus.kafka.client import SAME_LINE_SECONDS, _Thinned


def said_at(handler, capsys, *moments):
    """How many of the same line, said at these moments of the wall clock, were passed on."""
    for moment in moments:
        record = logging.LogRecord("aiokafka", logging.WARNING, "", 0, "no broker", (), None)
        record.created = moment
        handler.handle(record)
    captured = capsys.readouterr()
    return (captured.out + captured.err).count("no broker")


def test_the_same_line_is_passed_on_once_in_its_time(capsys):
    handler = _Thinned()

    assert said_at(handler, capsys, 1_000.0, 1_001.0, 1_000.0 + SAME_LINE_SECONDS - 1) == 1
    assert said_at(handler, capsys, 1_000.0 + SAME_LINE_SECONDS) == 1


def test_a_wall_clock_that_was_set_back_silences_nothing(capsys):
    handler = _Thinned()

    assert said_at(handler, capsys, 1_000_000.0) == 1
    assert said_at(handler, capsys, 1_000_000.0 - 86_400) == 1
