"""A list of the nodes that have changed, which readers follow each from a cursor of its own."""


class Changes:
    """Numbers of nodes in the order in which they changed. `base`: so many of the oldest are forgotten."""

    __slots__ = ("_in_span", "_most", "_span", "base", "numbers")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.base = 0
        self._most = 1_000
        self._span, self._in_span = (0, 0), list[int]()  # The last answer of `since`.

    def size(self, nodes: int) -> None:
        """There are so many nodes: the list may get a few times as long."""
        self._most = 4 * nodes + 1_000

    def add(self, number: int) -> None:
        """A node has changed."""
        self.numbers.append(number)
        if len(self.numbers) > self._most:  # Whoever has not looked for so long starts again.
            self.base += len(self.numbers)
            self.numbers.clear()

    def end(self) -> int:
        """The cursor of who has read everything."""
        return self.base + len(self.numbers)

    def knows(self, cursor: int) -> bool:
        """Whether nothing since this cursor is forgotten."""
        return cursor >= self.base

    def since(self, cursor: int) -> list[int]:
        """The nodes that have changed since, each once: many change again and again, and most readers look at the same
        time.
        """
        span = cursor, self.end()
        if span != self._span:
            self._span, self._in_span = span, list(dict.fromkeys(self.numbers[cursor - self.base :]))
        return self._in_span
