"""Reads the journal of a data folder from its end, as far back as somebody wants to, without opening its bus."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from largesse.bus.file.head import JournalDamaged, read_mark
from largesse.bus.file.journal import list_segments, segment_path
from largesse.bus.file.lines import LineWrong, cut, hangs_on, message_of, self_checked
from largesse.bus.file.packed import lines_backwards, packed_path
from largesse.bus.port import Message
from largesse.from_end import lines_from_end


class Ending:
    """The last lines of a journal, more of them each time that `earlier` is called. `messages`: what is in them of the
    topic and partition asked for, in order.
    """

    def __init__(self, directory: Path, topic: str, partition: int) -> None:
        self.messages: deque[Message] = deque()
        self._directory, self._place = directory, (topic, partition)
        self._mark = read_mark(directory)
        self._following: tuple[int, str] | None = None
        self._raw = self._lines()

    def earlier(self) -> bool:
        """Reads another line, checked as every reader does, and that it stands before the one read before; False where
        there is none. Raises LineWrong, also where the journal does not end as a gentle end leaves it; OSError.
        """
        line = next(self._raw, None)
        if line is None:
            return False
        total, (number, before) = self_checked(line), hangs_on(line)
        if self._following is None and self._mark is not None and number < self._mark.line:
            raise LineWrong("lines that were synced are missing")
        if self._following not in (None, (number, total)):
            raise LineWrong("the line behind it was not written after it")
        self._following = number - 1, before
        found = [each for each in cut(line) if each[:2] == self._place]
        self.messages.extendleft(message_of(*each) for each in reversed(found))
        return True

    def last_before(self, text: bytes) -> Message | None:
        """The last message before those read that holds a text; only its own line is checked. Raises LineWrong,
        OSError.
        """
        for line in self._raw:
            if text in line:
                self_checked(line)
                for each in reversed(list(cut(line))):
                    message = message_of(*each)
                    if each[:2] == self._place and text in message.value:
                        return message
        return None

    def _lines(self) -> Iterator[bytes]:
        for first in reversed(list_segments(self._directory)):
            lines = lines_from_end(segment_path(self._directory, first))
            try:
                torn = next(lines)
            except FileNotFoundError:
                yield from self._packed(first)
                continue
            if torn:
                raise LineWrong("the last line has no end")
            yield from lines

    def _packed(self, first: int) -> Iterator[bytes]:
        try:
            yield from lines_backwards(packed_path(self._directory, first))
        except JournalDamaged as damaged:
            raise LineWrong(str(damaged)) from damaged
