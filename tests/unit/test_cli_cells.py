"""`largesse cell`: what is wrong with a command line is said before anything is asked."""

import pytest

from tests.unit.cli_process import largesse

KAFKA = "kafka://127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("add", "a b", "--bus", KAFKA), "NAME: 'a b' has to be 1 to 63 letters", id="a name with a space"),
        pytest.param(("add", "a"), "--bus: several cells need Kafka: write kafka://HOST:PORT\n", id="no bus"),
        pytest.param(("list", "--bus", "data"), "--bus: several cells need Kafka", id="a folder"),
        pytest.param(("list", "--bus", "kafka://x"), "--bus: 'x' is not a broker", id="a broker without a port"),
    ],
)
def test_a_slip_is_named(words, said):
    done = largesse("cell", *words, columns=200, LARGESSE_BUS="")

    assert (done.code, done.out) == (2, "")
    assert said in done.err
