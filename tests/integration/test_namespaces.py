"""A source cluster behind a firewall: another network, names that resolve only there, and one port that is open.

The source is in a network namespace of its own; target and replicator are here. See `namespaces` and `far`.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.crossing import QUICK, RECORDS_ONLY, Crossing, cross
from tests.integration.command import unique
from tests.integration.far import PASSWORD, USER, digest
from tests.integration.namespaces import PORT, Asked, Network, Unable
from tests.integration.tunnelled import spec

from isthmus.config.security import read_security
from isthmus.errors import SourceError, WireError
from isthmus.lab import Lab
from isthmus.model import Cluster, Flow, Sync, Topics
from isthmus.security import Secret, Tunnel
from isthmus.tunnel.dialing import open_through
from isthmus.tunnel.end import End, Place
from isthmus.tunnel.secret import new_secret

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
RECORDS = 500
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass
class Far:
    """The source, and what is known of it here."""

    network: Network
    ask: Asked
    ports: list[int]
    settings: dict[str, str]
    secret: str
    folder: Path

    def cluster(self, tunnel: Tunnel | None) -> Cluster:
        security = replace(read_security(self.settings).security, tunnel=tunnel)
        bootstrap = (f"b1.far.internal:{self.ports[0]}",)
        return Cluster(alias=unique("far"), bootstrap=bootstrap, settings=self.settings, security=security)

    def flow(self, lab: Lab, tunnel: Tunnel | None, *topics: str) -> Flow:
        return Flow(
            source=self.cluster(tunnel),
            target=Cluster(alias="west", bootstrap=(lab["west"].bootstrap,)),
            topics=Topics(include=topics),
            replication_factor=1,
            internal_replication_factor=1,
            sync=Sync(configs=False),
            mm2_topics=RECORDS_ONLY,
            tuning=QUICK,
        )

    @contextlib.contextmanager
    def end(self, command: str, place: str) -> Iterator[None]:
        """`isthmus tunnel serve` or `connect` inside, as an operator would run it."""
        key, file = self.folder / "tunnel.key", self.folder / f"{command}.yaml"
        for path in (key, file):
            path.touch(mode=0o600)
        key.write_text(self.secret)
        trust = "".join(f"      {line}\n" for line in self.settings["ssl.truststore.certificates"].splitlines())
        file.write_text(
            f"role: exit\n{place}\nsecret_file: tunnel.key\ncluster:\n  bootstrap: b1.far.internal:{self.ports[0]}\n"
            f"  properties:\n    security.protocol: SASL_SSL\n    sasl.mechanism: PLAIN\n"
            f"    sasl.jaas.config: '{self.settings['sasl.jaas.config']}'\n"
            f"    ssl.truststore.certificates: |\n{trust}"
        )
        process = self.network.run("-m", "isthmus", "tunnel", command, str(file))
        try:
            yield
        finally:
            self.network.end(process)

    def proven(self, lab: Lab, flow: Flow, topic: str) -> None:
        there, here = self.ask("read", topic=topic), digest(lab["west"].bootstrap, f"{flow.source.alias}.{topic}")
        assert there == here
        assert sum(count for count, _ in here.values()) == RECORDS


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    try:
        network = Network().__enter__()
    except Unable as why:
        pytest.skip(f"network namespaces cannot be made here: {why}")
    with contextlib.ExitStack() as stack:
        stack.push(network)
        ask = Asked(network.run("-m", "tests.integration.far", network.inner))
        told = ask.heard()
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} required username="{USER}" password="{PASSWORD}";',
            "ssl.truststore.certificates": told["authority"],
        }
        if not reachable(network.inner, told["ports"][0], 60.0):
            pytest.skip("two namespaces of this machine do not reach each other: a closed path would prove nothing")
        folder = tmp_path_factory.mktemp("far")
        yield Far(network, ask, told["ports"], settings, new_secret(), folder)


def reachable(host: str, port: int, seconds: float) -> bool:
    try:
        socket.create_connection((host, port), seconds).close()
    except OSError:
        return False
    return True


def when_up(tunnel: Tunnel, far: Far) -> None:
    """Wait until a connection to the first broker passes."""
    deadline = time.monotonic() + 120
    while True:
        try:
            open_through(tunnel, "b1.far.internal", far.ports[0]).close()
            return
        except WireError as error:
            assert time.monotonic() < deadline, error
            time.sleep(0.2)


def closed(far: Far, lab: Lab) -> None:
    """Neither by name nor by address; and the flow does not get there without a tunnel."""
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("b1.far.internal", far.ports[0])
    assert not reachable(far.network.inner, far.ports[0], 1.0)
    with pytest.raises((SourceError, WireError)):
        cross(far.flow(lab, None, "anything"))


def test_one_open_port_is_enough_and_a_broker_that_joins_later_needs_no_change(far: Far, lab: Lab) -> None:
    far.network.close_all_but(PORT, inwards=True)
    closed(far, lab)
    first, later = unique("first-"), unique("later-")
    far.ask("fill", topic=first, node=1, records=RECORDS)
    tunnel = Tunnel(host=far.network.far, port=PORT, secrets=(Secret(far.secret),))
    flow = far.flow(lab, tunnel, first, f"{later}.*")
    with far.end("serve", f"listen: {far.network.far}:{PORT}"):
        when_up(tunnel, far)
        with Crossing(flow) as crossing:
            crossing.until_copied(RECORDS, 120)
            far.ask("add")
            far.ask("fill", topic=later, node=2, records=RECORDS)
            crossing.until_copied(2 * RECORDS, 120)
    for topic in (first, later):
        far.proven(lab, flow, topic)


def test_the_port_may_be_ours_and_the_source_lets_nobody_in(far: Far, lab: Lab) -> None:
    far.network.close_all_but(PORT, inwards=False)
    assert not reachable(far.network.far, PORT, 1.0)
    closed(far, lab)
    topic = unique("reverse-")
    far.ask("fill", topic=topic, node=1, records=RECORDS)
    secret = Secret(far.secret)
    tunnel = Tunnel(host=far.network.near, port=PORT, secrets=(secret,))
    meeting = spec("entry", secret, listen=Place(far.network.near, PORT))
    flow = far.flow(lab, tunnel, topic)
    with End(meeting), far.end("connect", f"dial: {far.network.near}:{PORT}"):
        when_up(tunnel, far)
        assert cross(flow).records == RECORDS
    far.proven(lab, flow, topic)
