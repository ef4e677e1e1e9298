"""The container engine of this machine, for tests that run containers: one that is there, never one of theirs."""

from functools import cache

from services.agent.engine import AUTO, Engine, NoEngine

IMAGE = "debian:bookworm-slim"


@cache
def engine_missing(image: str = IMAGE) -> str:
    """Why no container can be run here; empty: one can."""
    engine = Engine(AUTO)
    try:
        engine.about()
        with engine.asked() as client:
            there = client.images(name=image)
    except NoEngine as why:
        return str(why)
    finally:
        engine.close()
    return "" if there else f"the engine does not have the image {image}"
