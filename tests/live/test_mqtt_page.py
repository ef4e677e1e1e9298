"""The node of the page on MQTT, in a shell, takes part in a cell."""

import asyncio
import os
import re
import shutil
import signal
import subprocess

import pytest

from largesse.bus.memory import MemoryBus
from services.bridge import shell as bridge
from services.bridge.asking import Asking
from tests.bus_cell import BusCell
from tests.conftest import ROOT
from tests.mqtt_site import Site

NODE = "edge-n1"


def the_script(port):
    """The last block of the page, for a broker that is here and has no TLS."""
    script = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "mqtt.md").read_text(), re.DOTALL | re.MULTILINE)[-1]
    assert "-h broker.example.org -p 8883 --cafile ca.pem" in script
    return script.replace("-h broker.example.org -p 8883 --cafile ca.pem", f"-h 127.0.0.1 -p {port}")


def played(folder, port):
    """A process group that plays the node."""
    with (folder / "node.log").open("wb") as log:
        words = ["sh", "-eu", "-c", the_script(port)]
        return subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, start_new_session=True)


@pytest.mark.slow
def test_a_shell_plays_a_node_from_the_page_alone(tmp_path):
    for tool in ("mosquitto_pub", "mosquitto_sub", "jq"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} is installed")
    site = Site(tmp_path)
    for user in (NODE, "bridge"):
        site.password(user)

    async def story():
        async with BusCell(MemoryBus(), nodes=0) as cell:
            cell.start(bridge.run(cell.bus, cell.settings, site.broker("bridge"), cell.stop, Asking("default", "b1")))
            node = played(tmp_path, site.mosquitto.port)
            try:
                await cell.until_registered(NODE)
                await cell.submit(3)
                await cell.until_ended(3)
            finally:
                os.killpg(node.pid, signal.SIGKILL)
                node.wait()
            assert set(cell.ended.values()) == {"succeeded"}

    site.mosquitto.start()
    try:
        asyncio.run(story())
    finally:
        site.mosquitto.kill()
    assert (tmp_path / "node.log").read_text() == ""
