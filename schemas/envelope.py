"""The envelope around every body: what a record says about itself, apart from what it says.

A *content* is the canonical JSON of a Record; hashes run over its bytes as written. A *header* (see rounds.py) says who
wrote it and which input it came from, and enters no hash, id or decision (docs/concepts/log.md).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    B = TypeVar("B", default=Any)  # The body; of a plain `Record` it may be any.
else:
    from typing import TypeVar

    B = TypeVar("B")


@dataclass
class Record(Generic[B]):
    """One fact or decision. `time` is log time in Unix milliseconds (simulation: from 0); `seq` is 0 for unsequenced
    records.
    """

    type: str
    version: int
    cell: str
    seq: int
    round: int
    time: int
    id: str
    cause: str
    body: B


@dataclass(slots=True)
class Header:
    """Who wrote a log record, from which input, and which part of it this is. Empty `topic`: of the sequencer's own
    accord.
    """

    token: str
    topic: str = ""
    partition: int = 0
    offset: int = -1
    part: int = 0
    of: int = 1
