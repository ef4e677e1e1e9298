"""What a sequencer has beyond its fold while it leads: readers of inputs and decisions, leases, a pending snapshot."""

from dataclasses import dataclass

from largesse.bus.port import Bus
from largesse.log.decisions import FORECASTS, DecisionReader
from largesse.log.fencing import LogOrder
from largesse.log.inputs import InputReader
from largesse.log.writer import LogWriter
from schemas.topics import INPUTS
from services.admission.node_leases import Leases


@dataclass(slots=True)
class Pending:
    """A snapshot that waits for its closing to be read back."""

    seq: int
    order: LogOrder
    state: bytes


class Leading:
    """What a sequencer has beyond its fold while its claim is the latest. `taken`: by topic, the offset of the last
    input that was judged.
    """

    def __init__(self, bus: Bus, log: LogWriter, partition: int, decisions: dict[str, int], now_ms: int) -> None:
        taken = log.running.positions
        self.log = log
        self.inputs = InputReader(bus, partition, taken)
        self.taken = {topic: taken.get(f"{topic}/{partition}", -1) for topic in INPUTS}
        self.decisions = DecisionReader(bus, partition, decisions)
        places = {topic: f"{topic}/{partition}" for topic in FORECASTS}
        self.forecasts = {
            topic: DecisionReader(bus, partition, {place: taken.get(place, -1) + 1}) for topic, place in places.items()
        }
        self.leases = Leases()
        self.skipped = 0
        self.appended_ms = now_ms
        self.round_ms = 0
        self.pending: Pending | None = None
