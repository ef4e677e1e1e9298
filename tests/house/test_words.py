"""Phrases that make riddles of sentences: how many lines have them may only fall."""

import pytest

from tests.conftest import ROOT

LINES_MAX = {"of which": 119, "so many": 101, "another than": 0, " anew": 4}
"""Lower one whenever its lines go: say which, how many, other than, again."""


@pytest.mark.parametrize("phrase", LINES_MAX)
def test_no_more_lines_have_it_than_before(phrase):
    paths = [path for folder in ("schemas", "largesse", "services") for path in (ROOT / folder).rglob("*.py")]
    lines = sum(phrase in line for path in paths for line in path.read_text().splitlines())

    assert lines <= LINES_MAX[phrase]
