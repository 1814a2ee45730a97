"""Client sessions against the server's sessions, over connections that break and programs that crash.

Nothing acknowledged is lost in either direction, QoS 2 arrives exactly once, order is kept, and neither side ever
exceeds what the other takes.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.mqtt.client.server import LASTING, Pipe, Server
from tests.mqtt.session.test_session_model import _replayed

from geomq.mqtt.client.events import Accepted, Acknowledged, Connected, Event, Repeated, Request
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.state import restore, save
from geomq.mqtt.client.terms import ClientPolicy
from geomq.mqtt.codec.packets import Connect, Publish, Subscribe, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5, V311
from geomq.mqtt.session.handshake import Policy
from geomq.mqtt.session.session import Session

POLICY = Policy(receive_max=3, in_flight_max=4, alias_max=2)


class ClientMachine(RuleBasedStateMachine):
    """`forgetful` servers lose sessions, and then QoS 2 may arrive twice."""

    forgetful = False

    @initialize(version=st.sampled_from((V5, V311)), manual=st.booleans(), window=st.integers(1, 3))
    def begin(self, version: int, manual: bool, window: int) -> None:
        properties = Properties(session_expiry_interval=LASTING) if version == V5 else Properties()
        self.connect_packet = Connect("c", version, clean_start=False, properties=properties)
        self.policy = ClientPolicy(
            manual=manual, receive_max=window, alias_max=2, resubscribes=True, identifiers=(65_530, 6)
        )
        self.pipe = Pipe(ClientSession(self.connect_packet, self.policy), Server(POLICY))
        self.published: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self.delivered: dict[int, list[bytes]] = {1: [], 2: []}
        self.acknowledged: list[bytes] = []
        self.got: list[bytes] = []
        self.held: list[Publish | Repeated] = []
        self.subscribed: list[str] = []
        self.lost = 0
        self.count = 0

    def _payload(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def _take(self) -> None:
        self.pipe.flush()
        events, self.pipe.events = self.pipe.events, []
        for event in events:
            self._note(event)

    def _note(self, event: Event) -> None:
        if isinstance(event, Publish | Repeated):
            if isinstance(event, Publish):
                self.got.append(event.payload)
                assert event.topic == "t"
            if self.policy.manual:
                self.held.append(event)
        elif isinstance(event, Connected):
            self.lost += event.lost
            self.held = [one for one in self.held if isinstance(one, Publish)]
        elif isinstance(event, Accepted | Acknowledged):
            packet = event.request.packet
            if isinstance(packet, Publish):
                assert packet.qos == 0 or packet.payload in self.pipe.server.routed, "acknowledged, and not there"
                self.acknowledged.append(packet.payload)
            elif isinstance(packet, Subscribe):
                self.subscribed += [asked.topic_filter for asked in packet.requests]

    @rule(trouble=st.sampled_from(("none", "none", "server crashes", "program crashes", "server forgets")))
    def reconnect(self, trouble: str) -> None:
        self.pipe.cut()
        self._take()
        if trouble == "server crashes":
            self._crash_server()
        elif trouble == "program crashes" and not self.held:
            self._crash_program()
        elif trouble == "server forgets" and self.forgetful:
            self._forget()
        self.pipe.connect()
        self.pipe.server_reads()
        self.client_reads(1)

    @precondition(lambda self: self.pipe.connected)
    @rule()
    def lose_connection(self) -> None:
        self.pipe.cut()
        self._take()

    def _crash_server(self) -> None:
        server = self.pipe.server
        server.session = Session("c", POLICY, server.journal)
        server.session.restore(*_replayed(server.journal))

    def _crash_program(self) -> None:
        state = save(self.pipe.client, 7.0)
        self.pipe.client = ClientSession(self.connect_packet, self.policy)
        restore(self.pipe.client, state, 9.0)

    def _forget(self) -> None:
        server = self.pipe.server
        lost = {payload for payloads in self.delivered.values() for payload in payloads} - set(self.got)
        self.delivered = {qos: [one for one in made if one not in lost] for qos, made in self.delivered.items()}
        server.journal = []
        server.forget()

    @rule(qos=st.integers(0, 2), count=st.integers(1, 3))
    def publish(self, qos: int, count: int) -> None:
        for _ in range(count):
            payload = self._payload()
            self.published[qos].append(payload)
            self.pipe.client.publish(Publish("up", payload, qos), self.pipe.now)
        self._take()

    @precondition(lambda self: len(self.subscribed) < 3)
    @rule()
    def subscribe(self) -> None:
        self.pipe.client.subscribe(SubscribeRequest(f"f/{self.count}"))
        self._take()

    @rule(qos=st.integers(1, 2), count=st.integers(1, 3))
    def deliver(self, qos: int, count: int) -> None:
        for _ in range(count):
            payload = self._payload()
            self.delivered[qos].append(payload)
            self.pipe.server.deliver(payload, qos)
        self._take()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        one = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        answer = self.pipe.client.acknowledge(one)
        if answer:
            assert self.pipe.connected
            self.pipe.to_server.append(answer)
        self._take()

    @precondition(lambda self: self.pipe.to_client)
    @rule(count=st.integers(1, 3))
    def client_reads(self, count: int) -> None:
        for _ in range(count):
            self.pipe.client_reads()
            self._take()

    @precondition(lambda self: self.pipe.to_server)
    @rule(count=st.integers(1, 3))
    def server_reads(self, count: int) -> None:
        for _ in range(count):
            self.pipe.server_reads()
            self._take()

    @invariant()
    def qos_2_is_never_doubled(self) -> None:
        if self.forgetful or not hasattr(self, "got"):
            return
        for seen, made in ((self.got, self.delivered[2]), (self.pipe.server.routed, self.published[2])):
            twice = [payload for payload in seen if payload in made]
            assert len(twice) == len(set(twice))
        assert not self.lost

    @invariant()
    def nothing_is_made_up(self) -> None:
        if hasattr(self, "got"):
            routed = self.pipe.server.routed
            assert set(routed) <= {payload for payloads in self.published.values() for payload in payloads}

    def teardown(self) -> None:
        if not hasattr(self, "got"):
            return
        self.reconnect("none")
        while self.pipe.to_client or self.pipe.to_server or self.held:
            self.client_reads(9)
            self.server_reads(9)
            while self.held:
                answer = self.pipe.client.acknowledge(self.held.pop(0))
                if answer:
                    self.pipe.to_server.append(answer)
            self._take()
        assert len(self.pipe.client.requests) == 0
        assert self.pipe.client.dropped == 0
        assert self.pipe.server.session.pending == 0
        assert set(self.subscribed) <= set(self.pipe.server.filters)
        for seen, made in ((self.got, self.delivered), (self.pipe.server.routed, self.published)):
            for qos in (1, 2):
                first = list(dict.fromkeys(payload for payload in seen if payload in made[qos]))
                assert sorted(first, key=int) == made[qos], "lost"
                assert self.forgetful or first == made[qos], "out of order"
        for qos in (1, 2):
            assert set(self.published[qos]) <= set(self.acknowledged)


class ForgetfulMachine(ClientMachine):
    forgetful = True


COUNTS = settings(max_examples=200, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow])
TestClientSession = ClientMachine.TestCase
TestClientSession.settings = COUNTS
TestClientSessionAtAForgetfulServer = ForgetfulMachine.TestCase
TestClientSessionAtAForgetfulServer.settings = COUNTS


def test_a_request_says_what_it_is_about() -> None:
    assert Request(Publish("a/b")).subject == "a/b"
    assert Request(Subscribe(0, (SubscribeRequest("f"),))).subject == "f"
