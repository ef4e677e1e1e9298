"""`largesse token make --bus kafka://`: past the gateway, straight to a real broker, with a sequencer that answers."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from largesse.bus.kafka.topic_settings import TOPICS
from services.cli.access import PREFIX, new_text
from tests.contract.kafka_rig import kafka_address, put_right_at_once
from tests.contract.test_kafka_bus import tell
from tests.live.kafka_cell import free_partition
from tests.secret_files import keep
from tests.unit.cli_process import ROOT, Said, largesse

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("kafka cells")]

END_SECONDS = 30


@pytest.fixture
def address() -> str:
    return kafka_address()


@asynccontextmanager
async def sequencer(environment: dict[str, str], folder: Path):
    """The one service that makes a record of a token."""
    with (folder / "admission.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.admission"),
            env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            async with asyncio.timeout(END_SECONDS):
                await process.wait()


def test_the_first_token_is_made_past_the_gateway_and_its_text_is_nowhere_but_in_its_file(address, tmp_path):
    token, drawn = tmp_path / "admin.token", tmp_path / "drawn.token"
    keep(drawn, f"{new_text()}\n")

    async def story():
        partition = await free_partition(address)
        await put_right_at_once(address, TOPICS.values(), cells=partition + 1, grow=True)
        cell = {
            "LARGESSE_BUS": f"kafka://{address}",
            "LARGESSE_CELL": f"tokens-{partition}",
            "LARGESSE_PARTITION": str(partition),
        }

        async def ask(*words: object) -> Said:
            return await asyncio.to_thread(
                lambda: largesse("token", *words, "--bus", cell["LARGESSE_BUS"], columns=200, **cell)
            )

        async with sequencer(cell, tmp_path):
            # Only an admin's can be the first.
            viewer = await ask("make", "bob", "--user", "bob", "--role", "viewer")
            assert (viewer.code != 0, "admin" in viewer.err) == (True, True), viewer
            made = await ask("make", "first", "--user", "ann", "--role", "admin", "--out", token)
            assert (made.code, made.out) == (0, ""), made.err
            again = await ask("make", "first", "--user", "ann", "--role", "admin")
            assert again.code != 0
            printed = await ask("make", "second", "--user", "ann", "--role", "viewer", "--expires", "90d", "--json")
            assert printed.json["token"].startswith(PREFIX)
            known = await ask("make", "third", "--user", "ann", "--role", "viewer", "--from", drawn)
            assert (known.code, known.out) == (0, ""), known.err
            listed = await ask("list", "--json")
            assert [each["name"] for each in listed.json] == ["first", "second", "third"]
            assert [each["roles"] for each in listed.json] == [["admin"], ["viewer"], ["viewer"]]
            assert (await ask("revoke", "second")).code == 0
            assert [each["name"] for each in (await ask("list", "--json")).json] == ["first", "third"]
        texts = [token.read_text().strip(), printed.json["token"], drawn.read_text().strip()]
        tail = await asyncio.to_thread(
            lambda: largesse("tail", f"kafka://{address}/{cell['LARGESSE_CELL']}", "--json", columns=200)
        )
        assert tail.code == 0, tail.err
        said = tail.out + (tmp_path / "admission.log").read_text() + json.dumps([made.err, known.err, listed.out])
        assert "TokenMade" in tail.out
        assert not [text for text in texts if text in said]

    tell(story)
    assert token.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("short\n", "no text of a token", id="another text"),
        pytest.param("lgt_short\n", "no text of a token", id="too short"),
        pytest.param("", "only line", id="empty"),
    ],
)
def test_a_file_that_holds_no_text_of_a_token_is_refused_before_anybody_is_asked(tmp_path, text, said):
    keep(tmp_path / "token", text)
    words = ("token", "make", "a", "--user", "a", "--role", "admin", "--from", tmp_path / "token")
    refused = largesse(*words, "--bus", "kafka://127.0.0.1:1", columns=200)

    assert (refused.code, said in refused.err) == (2, True), refused.err
    assert text.strip() == "" or text.strip() not in refused.err
