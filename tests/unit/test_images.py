"""Images that attempts wait for, against a store that does what a test says."""

import asyncio
from pathlib import Path

import pytest

from schemas import Container
from services.agent import images
from services.agent.container_settings import ContainerSettings
from services.agent.engine import ImageRefused, NoEngine, _is_final
from services.agent.images import Images
from services.agent.local import Local
from services.agent.outbox import Name
from services.agent.settings import NodeSettings


class Store:
    """`there`: sizes of images. `faults`: what the next fetches meet, in order. `used`: not to be removed."""

    def __init__(self, **there):
        self.closed = 0
        self.there, self.faults, self.fetched, self.used = there, [], [], []

    def has_image(self, image):
        return image in self.there

    def image_bytes(self, image):
        return self.there.get(image)

    def fetch_image(self, image, over, said):
        self.fetched.append(image)
        said("1 of 2 MiB of 1 layers")
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault
        self.there[image] = 10

    def close(self):
        self.closed += 1

    def remove_image(self, image):
        if image in self.used:
            return False
        del self.there[image]
        return True


@pytest.fixture
def store():
    return Store()


def images_of(store, folder: Path, **more):
    node = NodeSettings("n", folder, containers=ContainerSettings("auto", **more))
    return Images(node, made=lambda: store)


def local(index=0):
    return Local(f"j/s/{index}/1", Name("j", "s", index, 1), 5, Path("/x"))


def waited(found, *said):
    """How attempts with these containers came off that wait for their images at the same time."""
    told = {}

    async def wait():
        told_all = asyncio.Event()
        for index, each in enumerate(said):

            async def then(outcome, index=index):
                told[index] = outcome
                if len(told) == len(said):
                    told_all.set()

            found.begin(local(index), each, then)
        await told_all.wait()
        found.close()

    asyncio.run(wait())
    return [told[index] and (told[index].result.reason, told[index].result.detail) for index in range(len(said))]


def test_an_image_that_is_there_is_not_fetched_and_is_known_for_a_while(store, tmp_path):
    store.there["i"] = 1
    found = images_of(store, tmp_path)
    assert not found.is_there(Container("i"))
    assert waited(found, Container("i")) == [None]
    assert store.fetched == []
    assert found.is_there(Container("i"))
    assert not found.is_there(Container("i", pull="always"))
    assert found.is_there(Container("other", pull="never"))
    assert found.is_there(None)


def test_one_fetch_serves_all_that_wait(store, tmp_path):
    assert waited(images_of(store, tmp_path), *[Container("i")] * 5) == [None] * 5
    assert (store.fetched, store.closed) == (["i"], 1)


def test_pull_always_fetches_what_is_there(store, tmp_path):
    store.there["i"] = 1
    assert waited(images_of(store, tmp_path), Container("i", pull="always")) == [None]
    assert store.fetched == ["i"]


def test_what_may_pass_is_tried_again_ever_more_rarely(store, tmp_path, monkeypatch):
    pauses = []

    async def sleep(seconds, real=asyncio.sleep):
        pauses.append(seconds) if seconds >= 1 else None
        await real(0)

    monkeypatch.setattr(images.asyncio, "sleep", sleep)
    store.faults = [ImageRefused("timeout", final=False)] * 3
    assert waited(images_of(store, tmp_path), Container("i")) == [None]
    assert (store.fetched, pauses) == (["i"] * 4, [1, 2, 4])

    store.faults = [ImageRefused("timeout", final=False)] * 9
    assert waited(images_of(store, tmp_path), Container("k")) == [("lost", "image k cannot be fetched: timeout")]
    assert store.fetched.count("k") == images.TRIES


def test_what_the_registry_says_of_an_image_is_final(store, tmp_path):
    store.faults = [ImageRefused("manifest unknown", final=True)]
    expected = ("cannot_start", "image i cannot be fetched: manifest unknown")
    assert waited(images_of(store, tmp_path), Container("i"), Container("i")) == [expected] * 2
    assert store.fetched == ["i"]


def test_without_an_engine_an_attempt_is_lost_and_not_failed(store, tmp_path):
    store.faults = [NoEngine("gone")]
    assert waited(images_of(store, tmp_path), Container("i")) == [("lost", "gone")]


def test_nothing_is_called_for_an_attempt_that_has_ended_meanwhile(store, tmp_path):
    called = []

    async def wait():
        found, stopped = images_of(store, tmp_path), local()

        async def then(outcome):
            called.append(outcome)

        found.begin(stopped, Container("i"), then)
        stopped.phase = "ended"
        await asyncio.gather(*found._waiting)
        found.close()

    asyncio.run(wait())
    assert called == []


def test_images_go_by_age_and_then_by_disk_the_longest_unused_first(store, tmp_path):
    store.there = {"a": 10, "b": 10, "c": 10, "d": 10, "other": 1_000}
    found = images_of(store, tmp_path, images_keep_s=1_000, images_keep_bytes=25)
    found.used = {"a": 5_000, "b": 4_900, "c": 4_800, "d": 3_000}

    assert found.sweep(5_000) == ["c", "d"]
    assert set(store.there) == {"a", "b", "other"}
    assert found.used == {"a": 5_000, "b": 4_900}
    assert images_of(store, tmp_path).used == found.used, "the next agent knows them, too"


def test_what_containers_use_stays(store, tmp_path):
    store.there, store.used = {"a": 10}, ["a"]
    found = images_of(store, tmp_path, images_keep_s=1)
    found.used = {"a": 0}
    assert found.sweep(5_000) == []
    assert found.used == {"a": 0}


def test_no_limit_keeps_all(store, tmp_path):
    store.there = {"a": 10}
    found = images_of(store, tmp_path, images_keep_s=0, images_keep_bytes=0)
    found.used = {"a": 0}
    assert found.sweep(10**9) == []


@pytest.mark.parametrize(
    ("why", "final"),
    [
        ("manifest for x:1 not found: manifest unknown", True),
        ("pull access denied for x", True),
        ("net/http: TLS handshake timeout", False),
        ("toomanyrequests: slow down", False),
        ("received unexpected HTTP status: 503", False),
    ],
)
def test_which_answers_of_a_registry_are_final(why, final):
    assert _is_final(why) == final
