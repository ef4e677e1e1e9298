"""Bundles of drawn logs are decided again elsewhere, hide what they should, and are refused where they are damaged."""

import pytest

from tests.simulation.drawn_bundles import DAMAGES, Campaign, lacks, pythons, users


def drawn(folder, seeds):
    folder.chmod(0o755)
    campaign = Campaign(folder)
    for seed in seeds:
        campaign.draw(seed)
    assert campaign.faults == []
    assert campaign.refused == dict.fromkeys(DAMAGES, 2 * len(seeds))
    return campaign


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return drawn(tmp_path_factory.mktemp("bundles"), range(3))


@pytest.mark.slow
@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("python", pythons(), ids=lambda path: path.parents[1].name)
def test_elsewhere_they_are_decided_again_the_same(few, python, user):
    if missing := lacks(python):
        pytest.skip(f"{python}: {missing}")
    few.judge(python, user)

    assert few.faults == []


@pytest.mark.whole
def test_a_hundred_of_them_hide_all_names_and_are_refused_where_they_are_damaged(tmp_path):
    campaign = drawn(tmp_path, range(100, 200))
    campaign.judge(pythons()[0], users()[-1])

    assert campaign.faults == []
