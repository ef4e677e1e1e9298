"""How long, and how many, names of ended jobs stay taken."""

from schemas import InputRepeated, JobAdmitted
from tests.builders import config, job, node, stage
from tests.cells import SlowCell

KEPT = 3


def cell():
    """A cell of one node that keeps few names."""
    story = SlowCell(1)
    story.take(node("n1"), config(names_kept_max=KEPT))
    return story


def run(story, name):
    """A job that succeeds at once."""
    story.take(job(name))
    story.finish(*story.settle())
    story.settle()


def test_beyond_their_number_the_names_of_the_jobs_that_ended_first_are_free():
    story = cell()
    for i in range(KEPT):
        run(story, f"j{i}")
    assert type(story.take(job("j0"))) is InputRepeated

    run(story, "one more")

    assert list(story.admission.ended) == ["j1", "j2", "one more"]
    assert type(story.take(job("j0"))) is JobAdmitted


def test_a_name_under_which_attempts_hold_room_stays_taken_however_many_there_are():
    story = cell()
    story.take(job("held", stage(tasks=1)))
    (grant,) = story.settle()
    story.cancel("held")
    for i in range(KEPT + 2):
        run(story, f"j{i}")

    assert "held" in story.admission.ended
    assert len(story.admission.ended) == KEPT

    story.finish(grant)
    run(story, "last")
    assert list(story.admission.ended) == ["j3", "j4", "last"]
