"""Sessions with a real mosquitto: half-open connections, slow readers, TLS, and what a broker refuses."""

import asyncio
import subprocess
from contextlib import asynccontextmanager

import pytest

from largesse.mqtt.address import read_address
from largesse.mqtt.client import ClientBroker, MqttOptions
from largesse.mqtt.port import PACKET_BYTES_MAX, PAYLOAD_BYTES_MAX, Arrived, MqttError, Refused, Will
from tests.mosquitto import Mosquitto
from tests.mqtt_proxy import Proxy
from tests.secret_files import keep

GUARD_SECONDS = 120
QUICK = MqttOptions(keep_alive_seconds=1, answer_seconds=1, connect_seconds=1)


def told(folder, story, *lines, options=None):
    """Runs a story with a broker reached through a proxy, with both, and with the broker reached directly."""

    async def guarded():
        mosquitto = Mosquitto(folder, *lines)
        mosquitto.start()
        try:
            async with asyncio.timeout(GUARD_SECONDS), Proxy(mosquitto.port).running() as proxy:
                far = ClientBroker(read_address(f"mqtt://127.0.0.1:{proxy.port}"), options)
                near = ClientBroker(read_address(f"mqtt://127.0.0.1:{mosquitto.port}"))
                await story(mosquitto, proxy, far, near)
        finally:
            mosquitto.kill()

    asyncio.run(guarded())


async def arrived(session, count):
    found = []
    while len(found) < count:
        found += [message.payload for message in await session.next()]
    return found


async def until(holds):
    while not holds():  # noqa: ASYNC110 nobody tells, and `told` has a guard
        await asyncio.sleep(0.01)


def test_a_half_open_connection_ends_by_the_answer_that_does_not_come(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async with far.session("far") as session:
            assert proxy.freeze("far") == 1
            with pytest.raises(MqttError, match="no answer in 1 s"):
                await session.publish("a", b"")
            with pytest.raises(MqttError, match="no answer in 1 s"):
                await session.next()

    told(tmp_path, story, options=QUICK)


def test_a_half_open_connection_ends_by_keep_alive_on_both_sides(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async with near.session("near") as watcher:
            await watcher.subscribe("will")
            async with far.session("far", Will("will", b"far is gone")) as session:
                await session.subscribe("a")
                proxy.freeze("far")
                with pytest.raises(MqttError, match="the connection was lost"):
                    await session.next()
                assert await arrived(watcher, 1) == [b"far is gone"]

    told(tmp_path, story, options=QUICK)


def test_what_was_held_back_on_the_way_comes_in_order(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async with far.session("far") as session, near.session("near") as writer:
            await session.subscribe("a")
            proxy.freeze("far")
            for number in range(50):
                await writer.publish("a", str(number).encode())
            proxy.thaw("far")
            assert await arrived(session, 50) == [str(number).encode() for number in range(50)]

    told(tmp_path, story, options=MqttOptions(keep_alive_seconds=60))


def test_many_publications_at_once_are_each_answered(tmp_path):
    async def story(mosquitto, proxy, far, near):
        proxy.delay = 0.001
        async with far.session("far") as session, near.session("near") as reader:
            await reader.subscribe("#")
            async with asyncio.TaskGroup() as group:
                for number in range(500):
                    group.create_task(session.publish(f"a/{number}", str(number).encode()))
            assert sorted(await arrived(reader, 500)) == sorted(str(number).encode() for number in range(500))

    told(tmp_path, story)


def test_a_slow_reader_is_sent_no_more_than_it_has_room_for(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async with far.session("far") as session, near.session("near") as writer:
            await session.subscribe("a")
            for number in range(200):
                await writer.publish("a", str(number).encode())
            await session.publish("b", b"")  # Its answer comes behind what was sent before.
            found = await session.next()
            assert len(found) <= 8
            rest = await arrived(session, 200 - len(found))
            assert [message.payload for message in found] + rest == [str(number).encode() for number in range(200)]

    told(tmp_path, story, options=MqttOptions(receive_max=8))


@pytest.mark.parametrize("how", ["frozen", "paused", "nobody"])
def test_a_broker_that_does_not_answer_is_given_up(tmp_path, how):
    async def story(mosquitto, proxy, far, near):
        if how == "paused":
            mosquitto.pause()
        elif how == "nobody":
            mosquitto.kill()
        else:
            proxy.delay = 60
        with pytest.raises(MqttError, match="no session with mqtt"):
            async with far.session("far"):
                pass
        direct = ClientBroker(near.address, QUICK)
        if how != "frozen":
            with pytest.raises(MqttError, match="no session with mqtt"):
                async with direct.session("near"):
                    pass

    told(tmp_path, story, options=QUICK)


def test_a_session_that_is_cancelled_at_any_moment_is_gone(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async def stays(number):
            async with far.session(f"far-{number}", Will("will", b"said")):
                await asyncio.Event().wait()

        async with near.session("near") as watcher:
            await watcher.subscribe("will")
            for number in range(40):
                session = asyncio.create_task(stays(number))
                for _ in range(number):
                    await asyncio.sleep(0.0003)
                session.cancel()
                await asyncio.wait({session})
                assert session.cancelled()
            async with far.session("last"):
                await until(lambda: proxy.clients == ["last"])
            await until(lambda: sum("_misc_loop" in repr(task) for task in asyncio.all_tasks()) == 1)  # The watcher's.

    told(tmp_path, story)


def test_a_publication_that_is_cancelled_leaves_the_session_as_it_was(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async with far.session("far") as session:
            await session.subscribe("#")
            for number in range(30):
                saying = asyncio.create_task(session.publish("a", str(number).encode()))
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                saying.cancel()
                await asyncio.wait({saying})
            await session.publish("b", b"last")
            found = await arrived(session, 1)
            while found[-1] != b"last":
                found += await arrived(session, 1)

    told(tmp_path, story)


def test_leaving_does_not_wait_for_a_half_open_connection(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async with far.session("far") as session:
            await session.publish("a", b"")
            proxy.freeze("far")
        with pytest.raises(MqttError, match="is over"):
            await session.publish("a", b"")

    told(tmp_path, story)


def test_a_broker_that_lets_too_little_through_is_named_as_the_fault(tmp_path):
    async def story(mosquitto, proxy, far, near):
        with pytest.raises(MqttError, match=f"set its max_packet_size to {PACKET_BYTES_MAX} or more"):
            async with near.session("near"):
                pass

    told(tmp_path, story, "allow_anonymous true", "max_packet_size 100000")


def test_a_broker_that_lets_exactly_our_packets_through_is_enough(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async with near.session("near") as session:
            await session.subscribe("a" * 200)
            await session.publish("a" * 200, bytes(PAYLOAD_BYTES_MAX), retain=True)
            assert await session.next() == [Arrived("a" * 200, bytes(PAYLOAD_BYTES_MAX))]

    told(tmp_path, story, "allow_anonymous true", f"max_packet_size {PACKET_BYTES_MAX}")


def test_who_has_no_right_name_is_refused_and_no_password_is_told(tmp_path, caplog, capfd):
    async def story(mosquitto, proxy, far, near):
        keep(tmp_path / "secret", "hunter2\n")
        address = read_address(f"mqtt://n1@127.0.0.1:{mosquitto.port}")
        for broker in (near, ClientBroker(address, MqttOptions(password_file=str(tmp_path / "secret")))):
            with pytest.raises(Refused, match="not in") as caught:
                async with broker.session("one"):
                    pass
            assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r} {broker.options!r} {broker.address!r}"

    (tmp_path / "passwords").write_text("")
    caplog.set_level(0)
    told(tmp_path, story, "allow_anonymous false", f"password_file {tmp_path / 'passwords'}")
    shown = capfd.readouterr()
    assert "hunter2" not in caplog.text + shown.out + shown.err


def test_a_reader_or_writer_without_the_right_is_refused_and_stays_in(tmp_path):
    async def story(mosquitto, proxy, far, near):
        async with near.session("near") as session:
            with pytest.raises(Refused, match="publish on b"):
                await session.publish("b", b"")
            await session.subscribe("a")
            await session.publish("a", b"yes")
            assert await arrived(session, 1) == [b"yes"]

    (tmp_path / "rules").write_text("topic readwrite a\n")
    told(tmp_path, story, "allow_anonymous true", f"acl_file {tmp_path / 'rules'}")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate for 127.0.0.1 that signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files],
        check=True,
        capture_output=True,
        timeout=GUARD_SECONDS,
    )
    return folder


@pytest.mark.parametrize(
    ("host", "trusts", "is_in"), [("127.0.0.1", True, True), ("localhost", True, False), ("127.0.0.1", False, False)]
)
def test_tls_takes_certificates_of_trusted_authorities_for_the_right_host(tmp_path, certificates, host, trusts, is_in):
    async def story(mosquitto, proxy, far, near):
        address = read_address(f"mqtts://{host}:{mosquitto.port}")
        broker = ClientBroker(address, MqttOptions(ca_file=str(certificates / "cert.pem") if trusts else ""))
        if is_in:
            async with broker.session("one") as session:
                await session.subscribe("big")
                await session.publish("big", b"x" * PAYLOAD_BYTES_MAX)
                assert await arrived(session, 1) == [b"x" * PAYLOAD_BYTES_MAX]
        else:
            with pytest.raises(MqttError, match="certificate"):
                async with broker.session("one"):
                    pass

    certificate = certificates / "cert.pem"
    told(tmp_path, story, "allow_anonymous true", f"certfile {certificate}", f"keyfile {certificates / 'key.pem'}")


@asynccontextmanager
async def silent():
    """A server that takes connections and says nothing."""
    kept = []
    server = await asyncio.start_server(lambda reader, writer: kept.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in kept:
            writer.close()


@pytest.mark.parametrize("kind", ["mqtt", "mqtts"])
def test_a_server_that_says_nothing_is_given_up(kind):
    async def story():
        async with asyncio.timeout(GUARD_SECONDS), silent() as port:
            with pytest.raises(MqttError, match="no session with"):
                async with ClientBroker(read_address(f"{kind}://127.0.0.1:{port}"), QUICK).session("one"):
                    pass

    asyncio.run(story())
