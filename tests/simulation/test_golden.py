"""Whoever changes what is decided raises `RULES`: what the present rules decided comes out again to the byte, and logs
of all earlier rules can still be read.
"""

import json

import pytest

from largesse.core import RULES
from services.replay.source import open_source
from services.replay.verify import verify
from tests.golden import HERE, PRESETS, digest_of, digests_path, log_path, recording

CHANGED = (
    "what is decided has changed, and RULES (largesse/core.py) has not: raise it, then `python -m tests.golden`, "
    "or undo the change"
)
KEPT = sorted(int(path.name.split("-")[1].split(".")[0]) for path in HERE.glob("rules-*.json"))


def test_what_these_rules_decide_is_kept():
    assert KEPT, "nothing is kept: `python -m tests.golden`"
    assert KEPT[-1] == RULES, f"rules {RULES} are not kept: `python -m tests.golden`"
    assert sorted(json.loads(digests_path().read_text())) == sorted(PRESETS)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_kept_story_is_decided_as_it_was(preset):
    assert digest_of(recording(preset)) == json.loads(digests_path().read_text())[preset], CHANGED


@pytest.mark.parametrize("rules", KEPT)
def test_a_kept_log_is_read_and_where_its_rules_are_ours_decided_again(rules):
    verdict = verify(open_source(log_path(rules)))

    assert verdict.difference is None, CHANGED
    assert (verdict.rounds_compared > 0) == (rules == RULES)
    assert verdict.records > 300


@pytest.mark.parametrize("rules", [rules for rules in KEPT if rules != RULES])
def test_a_kept_log_of_other_rules_is_decided_by_these_beside_what_was_recorded(rules):
    verdict = verify(open_source(log_path(rules)), across_rules=True)

    assert verdict.difference is None
    assert sum(span.rounds_compared for span in verdict.fed) > 50
    assert all(bool(span.difference) == bool(span.rounds_differing) for span in verdict.fed)
