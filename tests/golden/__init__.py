"""What these rules decide, kept: one story's decisions, by preset, and one whole log.

`rules-N.json` holds a digest of all decision bodies of the story for each preset, `rules-N.jsonl.gz` its log under the
default preset. They are recorded once for each released number of `largesse.core.RULES`, by `python -m tests.golden`:
whoever changes what is decided after that raises the number.
"""

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import get_args

from largesse.bus.memory import MemoryBus
from largesse.core import RULES
from largesse.log.codec import decode, encode_body
from schemas.presets import Preset
from services.replay.source import Source, steps_of, write_export
from tests.simulation.cell_story import record_story
from tests.stepped_cell import Recording

HERE = Path(__file__).parent
SHARDS = 2
PRESETS: tuple[str, ...] = get_args(Preset)


def recording(preset: str) -> Recording:
    """The story as these sources tell it."""
    return asyncio.run(record_story(MemoryBus(), SHARDS, preset=preset))


def source_of(recorded: Recording) -> Source:
    """The recording as a log to replay."""
    return Source("the story", lambda hear: steps_of(recorded.messages(), hear=hear), lambda: SHARDS)


def digest_of(recorded: Recording) -> str:
    """Names what was decided: the bodies of all decisions, in the order of their names."""
    answers = sorted(recorded.first_answers().items(), key=lambda answer: (decode(answer[1]).seq, answer[0]))
    whole = sha256()
    for _, content in answers:
        whole.update(encode_body(decode(content).body) + b"\n")
    return whole.hexdigest()


def digests_path(rules: int = RULES) -> Path:
    """Where the digests of a number of rules lie."""
    return HERE / f"rules-{rules}.json"


def log_path(rules: int = RULES) -> Path:
    """Where the log of a number of rules lies."""
    return HERE / f"rules-{rules}.jsonl.gz"


def record() -> None:
    """Keeps what is decided now. Raises FileExistsError if these rules have been recorded."""
    if digests_path().exists():
        raise FileExistsError(f"{digests_path().name} is there: what rules {RULES} decide stands; raise RULES")
    digests = {preset: digest_of(recording(preset)) for preset in PRESETS}
    digests_path().write_text(json.dumps(digests, indent=2) + "\n")
    write_export(source_of(recording("largesse")), log_path())
