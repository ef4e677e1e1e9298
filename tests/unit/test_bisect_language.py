"""What is looked for in a log, as text: what it means, and where the caret stands when it means nothing."""

from fractions import Fraction

import pytest

from services.replay.bisect.language import (
    BadExpression,
    Compared,
    Joined,
    Lasting,
    Negated,
    measures_in,
    read_expression,
)
from services.replay.bisect.measures import OF_CELL, STATES, SUBJECTS, Measure

PENDING = Measure("", "", "pending")
MANY = Compared(PENDING, ">", Fraction(1_000))
HELD, DUE = Measure("queue", "ads", "held"), Measure("queue", "ads", "due")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("pending() > 1000", MANY),
        ("1000 < pending()", MANY),
        ("pending()>1000 for 90s", Lasting(MANY, 90_000)),
        ('queue("ads").held < queue("ads").due for 60s', Lasting(Compared(HELD, "<", DUE), 60_000)),
        ("queue('ads').held >= 12.5%", Compared(HELD, ">=", Fraction(1, 8))),
        ('queue("ads").held == 0.5', Compared(HELD, "==", Fraction(1, 2))),
        ('job("x").waiting > 1.5m', Compared(Measure("job", "x", "waiting"), ">", Fraction(90_000))),
        ('job("x").state == "running"', Compared(Measure("job", "x", "state"), "==", "running")),
        (
            'node("n").used > node("n").capacity',
            Compared(Measure("node", "n", "used"), ">", Measure("node", "n", "capacity")),
        ),
        ('node("n").used.memory > 2Gi', Compared(Measure("node", "n", "used", "memory"), ">", Fraction(2_048))),
        ('node("n").used.cpu < 500m', Compared(Measure("node", "n", "used", "cpu"), "<", Fraction(500))),
        ("not pending() > 1000", Negated(MANY)),
        ("not pending() > 1000 for 1s", Negated(Lasting(MANY, 1_000))),
        ("(pending() > 1000 or pending() > 1000) for 2h", Lasting(Joined((MANY, MANY), False), 7_200_000)),
        (
            "pending() > 1000 or pending() > 1000 and not pending() > 1000",
            Joined((MANY, Joined((MANY, Negated(MANY)), True)), False),
        ),
    ],
)
def test_a_text_says_a_condition(text, condition):
    assert read_expression(text) == condition


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("pending() > ", "", "ends too soon: expected"),
        ("", "", "ends too soon"),
        ("pending() > 5 $", "$", '"$" means nothing here'),
        ("pending() > 5 6", "6", '"6" is not expected here'),
        ("foo() > 5", "foo", '"foo" is nothing that is measured: one of queue, job'),
        ('job("j").state == "runing"', '"runing"', "a job is never runing: one of waiting, running, succeeded, failed"),
        ('node("n").state != "down"', '"down"', "a node is never down: one of ready, draining"),
        ('job("j").state = "running"', '= "', "equality is =="),
        ('queue("a").hold > 5', "hold", 'a queue has no ".hold": one of .held, .due'),
        ('queue("a") > 5', "queue", "says not what of it: one of .held"),
        ("queue().held > 5", "queue", 'write queue("name")'),
        ('pending("a") > 5', "pending", "takes no name"),
        ("pending().cpu > 5", "cpu", "a number has no parts"),
        ('job("x").waiting > 5', "5", '"5" is no span of time'),
        ('job("x").waiting > 5y', "5y", '"5y" is no span of time'),
        ("pending() > 5 for 10", "10", '"10" is no span of time'),
        ("pending() > 5m", "5m", '"5m" is no number'),
        ("pending() > 5%", "5%", '"5%" is no number'),
        ('job("x").state > "running"', ">", "words are compared with == or !="),
        ('job("x").state == 5', "5", "it is compared with a word"),
        ('pending() > "many"', '"many"', "it is compared with a number"),
        ('pending() > queue("a").held', "queue", "this is a share of the cell, and the other side a number"),
        ('node("n").used > 5', "5", "which resource: write .used.cpu"),
        ('node("n").used.memory > 5', "5", "5 is 5 bytes"),
        ("5 > 4", "5", "compares a literal with a literal"),
        ("pending() > 5 or\nfoo() > 1", "foo", "nothing that is measured"),
    ],
)
def test_what_means_nothing_is_said_where_it_stands(text, at, words):
    with pytest.raises(BadExpression) as caught:
        read_expression(text)

    assert words in caught.value.reason
    place = caught.value.place
    assert text[place : place + len(at)] == at if at else place == len(text.rstrip())


def test_every_measure_can_be_looked_for():
    example = {"share": "5%", "time": "5s", "count": "5"}
    for subject, parts in SUBJECTS.items():
        for part, kind in parts.items():
            text = STATES[subject][0] if kind == "text" else ""
            measure, literal = (f"{part}.cpu", "5") if kind == "quantities" else (part, example.get(kind, f'"{text}"'))
            found = read_expression(f'{subject}("x").{measure} != {literal}')
            assert [(each.subject, each.part) for each in measures_in(found)] == [(subject, part)]
    for part in OF_CELL:
        assert measures_in(read_expression(f"{part}() != 5")) == [Measure("", "", part)]
