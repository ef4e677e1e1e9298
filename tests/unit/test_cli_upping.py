"""What `up` makes of its environment, and of nodes that an earlier start had."""

import pytest

from services.cli.ending import Wrong
from services.cli.upping import _repeat, check_environment


def test_an_address_that_up_would_pass_over_is_refused():
    with pytest.raises(Wrong, match=r"LARGESSE_HTTP=0\.0\.0\.0:80: .* --http PORT"):
        check_environment({"LARGESSE_HTTP": "0.0.0.0:80"}, 8642)


def test_settings_that_are_not_read_are_named_with_what_counts(capsys):
    check_environment({"LARGESSE_BUS": "kafka://a:1", "LARGESSE_WAIT_MS": "5"}, 8642)

    assert capsys.readouterr().err == "note: `up` does not read LARGESSE_BUS: --data\n"


@pytest.mark.parametrize(
    ("nodes", "missing", "text"),
    [
        (["node-0", "node-1", "node-10"], ["node-1", "node-10"], "to start them again, repeat --nodes 11"),
        (["node-0", "node-1"], ["node-1"], "to start it again, repeat --nodes 2"),
        (["node-0", "gpu"], ["gpu"], "to start it again, repeat --cluster with the file that describes it"),
    ],
)
def test_what_would_start_them_again_is_said(nodes, missing, text):
    assert _repeat(nodes, missing) == text
