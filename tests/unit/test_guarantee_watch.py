"""What is known of broken guarantees, from when a queue falls below its own until it is published as whole again."""

from schemas import Breach
from services.fairness.core.guarantees import Broken, GuaranteeWatch, Standing


def broken(queue="a", since_ms=1_000, **rest):
    return Breach(queue, 500, 100, since_ms, **rest)


def watched():
    """A queue whose guarantee was published as broken."""
    watch = GuaranteeWatch()
    watch.fall("a", 1_000)
    watch.fold(broken())
    return watch


def test_a_queue_is_below_since_it_fell_first():
    watch = GuaranteeWatch()
    watch.fall("a", 1_000)
    watch.fall("a", 2_000)

    assert watch.below == {"a": 1_000}


def test_a_broken_guarantee_does_not_fall_again():
    watch = watched()
    watch.fall("a", 2_000)

    assert (watch.below, watch.broken) == ({}, {"a": Broken(1_000, Standing.BROKEN)})


def test_one_that_holds_again_may_fall_before_that_is_published():
    watch = watched()
    watch.rise("a")
    watch.fall("a", 3_000)
    assert (watch.below, watch.mended()) == ({"a": 3_000}, {"a": 1_000})

    watch.fold(broken(over=True))
    watch.fold(broken(since_ms=3_000))
    assert (watch.below, watch.broken, watch.mended()) == ({}, {"a": Broken(3_000, Standing.BROKEN)}, {})


def test_what_finds_no_room_is_noted_until_it_does():
    watch = watched()
    watch.fold(broken(placeable=False))
    assert watch.broken["a"].standing is Standing.UNPLACED

    watch.fold(broken())
    assert (watch.broken["a"].standing, watch.noted) == (Standing.BROKEN, {})


def test_nothing_is_kept_of_a_queue_that_is_gone_nor_of_what_is_published_of_it():
    watch = watched()
    watch.rise("a")
    watch.fall("b", 2_000)
    watch.forget_others(["c"])
    watch.fold(broken())

    assert watch == GuaranteeWatch()
