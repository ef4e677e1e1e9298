"""Services on the page: who serves the cell, who stands by, and who is missed, over a bus that deals out shards."""

import pytest

from largesse.bus.groups import Group, Member
from largesse.bus.kafka.rights import group_of
from largesse.bus.memory import MemoryBus
from services.gateway import instances
from tests.browser import needs_chromium
from tests.live.test_page_cells import a_gateway
from tests.page_reader import NARROW, WIDE, readers

pytestmark = [pytest.mark.slow, needs_chromium]

CELL = "east"


class DealingBus(MemoryBus):
    """A bus that deals out shards. `dealt`: by service, the shards of each instance."""

    def __init__(self):
        super().__init__()
        self.dealt = {service: [(0,), ()] for service in instances.GROUPED}

    async def told(self, groups):
        by_group = {group_of(service, CELL): shards for service, shards in self.dealt.items()}
        return {
            group: Group(tuple(Member(f"m{n}", f"10.0.0.{n}", each) for n, each in enumerate(by_group[group])))
            for group in groups
        }


def numbers(tab, service):
    return {field: value for kind, name, field, value in tab.facts() if (kind, name) == ("service", service)}


@pytest.mark.parametrize(("colours", "size"), [("light", WIDE), ("dark", NARROW)], ids=["light-wide", "dark-narrow"])
def test_the_overview_shows_standbys_and_misses_those_that_are_gone(monkeypatch, colours, size):
    monkeypatch.setattr(instances, "KEPT_S", 0.0)
    bus = DealingBus()
    dealt = bus.dealt
    with a_gateway(lambda: bus) as url, readers(url) as make:
        tab = make(colours, size)
        tab.open("overview")
        tab.until("document.querySelector('section[aria-label=Services]')")
        assert [numbers(tab, each) for each in dealt] == [{"serving": "1", "standing_by": "1"}] * len(dealt)
        assert "10.0.0.0, 10.0.0.1" in tab.text("section[aria-label=Services]")
        assert "has lost" not in tab.text()

        dealt["fairness"], dealt["planner"] = [(0,)], []
        tab.until("document.querySelector('.alarms')?.innerText.includes('fairness has lost 1 instance')")
        assert numbers(tab, "fairness") == {"serving": "1", "standing_by": "0"}
        assert "1 is left, and nothing stands by" in tab.text(".alarms")
        assert "No instance of planner takes part: no reservation is answered" in tab.text(".alarms")
        assert tab.complaints == []
        assert tab.violations() == []
        assert not tab.too_wide()


def test_the_past_and_a_cell_in_one_process_have_no_standbys(monkeypatch):
    with a_gateway() as url, readers(url) as make:
        tab = make()
        tab.open("overview")
        assert "Stand by" not in tab.text()
        assert "v1/services" in " ".join(tab.asked)
