"""Calls under a network and answers that are not as they should be."""

import asyncio
import contextlib
import os
import random
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
from daemon import PATIENCE, Daemon, until
from tenure_client import HELD, LeaseHeld, LostClaim, Tenure, TenureError, Unreachable, aio
from tenure_client import _holdings as holdings
from tenure_client import _http as http
from tenure_client._address import Address


class Base(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.client = Tenure(self.daemon.url)

    def join(self, name="a", **options):
        member = self.client.join("g", name, **{"ttl": 3.0, **options})
        self.addCleanup(member.__exit__)
        return member


class DeadConnections(Base):
    def fill(self, member, count=40):
        """Leaves that many idle connections."""
        rule = self.daemon.rule("PUT", "/claims/", hold=True)
        threads = [threading.Thread(target=member.claim, args=("r", f"k{n}")) for n in range(count)]
        for thread in threads:
            thread.start()
        for _ in threads:
            rule.arrives()
        rule.go.set()
        for thread in threads:
            thread.join()
        self.daemon.rules.remove(rule)

    def test_closed_connections_cost_no_attempt(self):
        lost = []
        member = self.join(on_lease_lost=lost.append)
        lease = member.acquire("l")
        with mock.patch.object(http, "ATTEMPTS", 1):
            for _ in range(3):
                self.fill(member)
                self.daemon.cut()
                self.assertEqual(member.claim("r", "k"), "new")
        self.daemon.beats(3)
        self.assertEqual((lease.verdict(), lost), (HELD, []))

    def test_connections_that_break_when_used_cost_no_attempt(self):
        lost = []
        member = self.join(on_lease_lost=lost.append)
        lease = member.acquire("l")
        with mock.patch.object(http, "ATTEMPTS", 1):
            for _ in range(3):
                self.fill(member)
                self.daemon.dead = self.daemon.opened
                self.assertEqual(member.claim("r", "k"), "new")
        self.daemon.beats(3)
        self.assertEqual((lease.verdict(), lost), (HELD, []))

    def test_beat_has_a_connection_of_its_own(self):
        member = self.join(ttl=1.0)
        self.fill(member)
        self.daemon.beats(3)
        beats = {number for _, path, number in self.daemon.requests if path.endswith("/beat")}
        others = {number for _, path, number in self.daemon.requests if not path.endswith("/beat")}
        self.assertEqual((len(beats), beats & others), (1, set()))


class Waits(Base):
    def wait(self, **options):
        """A member that waits for the lease of another one; returns the holder's lease and what the wait returned."""
        held, waiter, found = self.join("a", ttl=60.0).acquire("l"), self.join("b", ttl=60.0), []

        def run():
            try:
                found.append(waiter.acquire("l", **options))
            except TenureError as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: self.daemon.waiting or found, "the wait")
        return held, thread, found

    def test_longer_than_a_minute(self):
        held, thread, found = self.wait(wait=90)
        held.release()
        thread.join(PATIENCE)
        self.assertEqual(found[0].verdict(), HELD)

    def test_is_made_of_parts(self):
        with mock.patch.object(http, "LONGEST_WAIT", 0.2):
            held, thread, found = self.wait(wait=PATIENCE)
            until(lambda: self.daemon.count("POST", "/acquire$") > 5, "the parts")
            held.release()
            thread.join(PATIENCE)
        self.assertEqual(found[0].verdict(), HELD)
        self.assertGreater(found[0].waited, 0.6)

    def test_lasts_as_long_as_was_asked_behind_a_proxy_that_cuts(self):
        held, thread, found = self.wait(wait=PATIENCE)
        for _ in range(8):
            before = self.daemon.count("POST", "/acquire$")
            self.daemon.cut()
            until(lambda: self.daemon.count("POST", "/acquire$") > before, "another request")  # noqa: B023
            until(lambda: self.daemon.waiting == 1)
        self.assertEqual(found, [])
        held.release()
        thread.join(PATIENCE)
        self.assertEqual(found[0].verdict(), HELD)

    def test_lasts_as_long_as_was_asked_when_refused(self):
        began = time.monotonic()
        with mock.patch.object(http, "LONGEST_WAIT", 0.3):
            _, thread, found = self.wait(wait=1.2)
            thread.join(PATIENCE)
        self.assertIsInstance(found[0], LeaseHeld)
        self.assertGreaterEqual(time.monotonic() - began, 1.0)


class Blocks(Base):
    def test_body_fails_while_the_daemon_is_away(self):
        self.daemon.rule("DELETE", "/tenures/", lose=True)
        self.daemon.rule("POST", "/release$", lose=True)

        def body():
            with self.client.join("g", "a", ttl=5.0) as member, member.acquire("l"):
                raise KeyError("the body's own")

        with self.assertLogs("tenure_client", "WARNING"), self.assertRaises(KeyError):
            body()

    def test_body_succeeds_while_the_daemon_is_away(self):
        self.daemon.rule("DELETE", "/tenures/", lose=True)
        self.daemon.rule("POST", "/release$", answer=(503, {"code": "overloaded", "outcome": "unchanged"}))
        with (
            self.assertLogs("tenure_client", "WARNING") as logged,
            self.client.join("g", "a", ttl=5.0) as member,
            member.acquire("l"),
        ):
            pass
        self.assertEqual(len(logged.output), 2, logged.output)

    def test_asyncio(self):
        self.daemon.rule("DELETE", "/tenures/", lose=True)
        self.daemon.rule("POST", "/release$", lose=True)

        async def run():
            async with await aio.Tenure(self.daemon.url).join("g", "a", ttl=5.0) as member, await member.acquire("l"):
                raise KeyError("the body's own")

        with self.assertLogs("tenure_client", "WARNING"), self.assertRaises(KeyError):
            asyncio.run(run())

    def test_refused_release_is_made_up_for(self):
        rule = self.daemon.rule(
            "POST", "/release$", answer=(503, {"code": "overloaded", "outcome": "unchanged"}), times=3
        )
        member = self.join()
        with self.assertLogs("tenure_client", "WARNING"), member.acquire("l"):
            pass
        self.assertEqual(rule.times, 0)
        until(lambda: not self.daemon.leases, "the release in the background")


class LostClaims(Base):
    def test_after_a_rejoin(self):
        told = []
        member = self.join(ttl=1.0, on_claim_lost=told.append)
        member.claim("r", "mine")
        member.claim("r", "moved")
        tenure = member.tenure
        other = self.join("b")
        self.daemon.claims["r", "moved"] = other.tenure
        del self.daemon.tenures[tenure]
        until(lambda: self.daemon.claims["r", "mine"] not in (tenure, other.tenure), "it claims again")
        expected = [LostClaim("r", "moved", other.tenure)]
        until(lambda: told == expected, "the callback")
        self.assertEqual(member.lost_claims(), expected)
        self.assertEqual(member.lost_claims(), [])
        # It is not claimed again once the other one is gone.
        del self.daemon.tenures[member.tenure], self.daemon.tenures[other.tenure]
        tenure = self.daemon.claims["r", "mine"]
        until(lambda: self.daemon.claims["r", "mine"] != tenure, "it claims again")
        self.assertEqual(self.daemon.claims["r", "moved"], other.tenure)

    def test_under_the_same_tenure(self):
        told = []
        member, other = self.join(ttl=1.0, on_claim_lost=told.append), self.join("b")
        member.claim("r", "mine")
        member.claim("r", "moved")
        with mock.patch.object(holdings, "_REVIEW", 0.0):
            self.daemon.beats(3)
            self.assertEqual(told, [])
            other.claim("r", "moved")
            until(lambda: told == [LostClaim("r", "moved", other.tenure)], "the review")


class Start(Base):
    def test_daemon_that_starts_later(self):
        port = self.daemon.server.server_port
        self.daemon.server.shutdown()
        self.daemon.server.server_close()
        with self.assertRaises(Unreachable):
            self.client.join("g", "a")
        found, refused = [], threading.Semaphore(0)
        learn = http.Http.learn

        def watched(self):
            try:
                learn(self)
            except TenureError:
                refused.release()
                raise

        with mock.patch.object(http.Http, "learn", watched):
            thread = threading.Thread(target=lambda: found.append(self.client.join("g", "a", patience=PATIENCE)))
            thread.start()
            for _ in range(2):
                self.assertTrue(refused.acquire(timeout=PATIENCE))
            daemon = Daemon(port)
            thread.join(PATIENCE)
        self.assertIn(found[0].tenure, daemon.tenures)
        found[0].leave()

    def test_patience_is_not_for_refusals(self):
        self.daemon.rule("POST", "/members$", answer=(403, {"code": "forbidden"}))
        with self.assertRaises(TenureError) as caught:
            self.client.join("g", "a", patience=3600)
        self.assertEqual(caught.exception.code, "forbidden")

    def test_names_are_generated(self):
        members = [self.client.join("g") for _ in range(2)]
        names = [member.member for member in members]
        self.assertEqual(len(set(names)), 2)
        for name, member in zip(names, members):
            self.assertRegex(name, r"^[A-Za-z0-9._:-]{1,128}$")
            self.assertEqual(self.daemon.tenures[member.tenure], name)
            member.leave()

    def test_joining_as_the_wrapper_is_an_error(self):
        around = {"TENURE_ID": "w@1", "TENURE_GROUP": "g", "TENURE_MEMBER": "w"}
        with mock.patch.dict(os.environ, around):
            with self.assertRaisesRegex(ValueError, "wrapper"):
                self.client.join("g", "w")
            self.client.join("g", "x").leave()
            self.client.join("h", "w").leave()


class Environment(unittest.TestCase):
    def certificate(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        cert, key = f"{place.name}/ca cert.pem", f"{place.name}/key.pem"
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
        names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert]
        subprocess.run([*make, *names], check=True, capture_output=True)
        return cert, key

    def test_replaced_tls_files_count_for_new_connections(self):
        (cert, key), (next_cert, next_key) = self.certificate(), self.certificate()
        daemon = Daemon()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        daemon.server.socket = context.wrap_socket(daemon.server.socket, server_side=True)
        url = f"https://localhost:{daemon.server.server_port}"
        address = Address(f"{url}?tls_ca={cert.replace(' ', '%20')}", None)

        def connect():
            with contextlib.closing(address.connection(PATIENCE)) as connection:
                connection.connect()

        connect()
        context.load_cert_chain(next_cert, next_key)
        with self.assertRaises(ssl.SSLCertVerificationError):
            connect()
        os.replace(next_cert, cert)
        connect()
        with open(cert, "w") as half:
            half.write("-----BEGIN CERT")
        connect()

    def test_tls_files_in_the_url(self):
        cert, key = self.certificate()
        daemon = Daemon()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=cert)
        context.load_cert_chain(cert, key)
        context.verify_mode = ssl.CERT_REQUIRED
        daemon.server.socket = context.wrap_socket(daemon.server.socket, server_side=True)
        url = f"https://localhost:{daemon.server.server_port}"
        named = cert.replace(" ", "%20")
        mine = {"TENURE_STORE": f"{url}?tls_ca={named}&tls_cert={named}&tls_key={key}"}
        with mock.patch.dict(os.environ, mine), Tenure().join("g", "a", ttl=3.0) as member:
            self.assertEqual(member.acquire("l").verdict(), HELD)
        with self.assertRaisesRegex(Unreachable, "CERTIFICATE_VERIFY_FAILED"):
            Tenure(url).join("g", "a", patience=3600)

    def test_urls_that_cannot_be_meant(self):
        for url in (
            "https://h?tls_ca=",
            "https://h?tls_ca=/a&tls_ca=/b",
            "https://h?ca=/a",
            "https://h?tls_ca=/nowhere/ca.pem",
            "http://h?tls_ca=/a",
            "http://me:secret@h",
            "http://h#x",
            "http://h:99999",
            "http://",
            "http://h h",
            "valkey://:secret@h",
        ):
            with self.subTest(url), self.assertRaises(ValueError) as caught:
                Tenure(url)
            self.assertNotIn("secret", str(caught.exception))

    def test_token_from_the_environment(self):
        def shown(**environment):
            with mock.patch.dict(os.environ, environment):
                return Tenure("http://h")._http._token.header().get("Authorization")

        with tempfile.NamedTemporaryFile("w") as file:
            file.write("in-file\n")
            file.flush()
            self.assertEqual(shown(TENURE_TOKEN_FILE=file.name, TENURE_TOKEN="x"), "Bearer in-file")
        self.assertEqual(shown(TENURE_TOKEN="x\n"), "Bearer x")
        self.assertIsNone(shown(TENURE_TOKEN=""))
        with self.assertRaises(ValueError):
            shown(TENURE_TOKEN_FILE="/nowhere/token")
        with self.assertRaises(ValueError):
            shown(TENURE_TOKEN="a\r\nHost: b")

    def test_token_file_is_read_again(self):
        with tempfile.NamedTemporaryFile("w") as file, mock.patch.dict(os.environ, {"TENURE_TOKEN_FILE": file.name}):
            token = Tenure("http://h")._http._token
            for text, wanted in (("new", "new"), ("newer\n", "newer"), ("a\r\nHost: b", "newer")):
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()
                self.assertEqual(token.header(), {"Authorization": f"Bearer {wanted}"})


STRANGE = (None, True, -1, 0.5, 1 << 70, 10**400, "", "x", "9" * 5000, [], [1], {}, {"a": 1}, [[]], float("nan"), 1e308)


class Hostile(Base):
    def test_ends_without_a_text_as_reason_end_nothing(self):
        member = self.join(ttl=2.0)
        lease = member.acquire("l")
        for reason in (5, True, [], ["lapsed"], {}, 0.5, float("inf")):
            rule = self.daemon.rule("PUT", "/beat$", answer=(410, {"code": "tenure_ended", "reason": reason}), times=1)
            rule.arrives()
            self.daemon.beats(1)
            self.assertEqual((member.ended, lease.verdict()), (None, HELD), reason)

    def test_strange_answers_to_beats_end_nothing(self):
        member = self.join(ttl=1.0)
        for status in (200, 410, 503):
            for field in ("expires_in_ms", "revision", "code", "reason", "retry_after_ms", "outcome"):
                for value in STRANGE:
                    answer = {
                        "expires_in_ms": 1000,
                        "revision": 0,
                        **({"code": "x"} if status != 200 else {}),
                        field: value,
                    }
                    if status == 410 and field == "reason":
                        answer["code"] = "overloaded"
                    self.daemon.rule("PUT", "/beat$", answer=(status, answer), times=1)
        # One attempt for each beat would take minutes.
        while any(rule.times for rule in self.daemon.rules):
            member._next_beat = 0.0
            member._wakeup.set()
            time.sleep(0.001)
        self.daemon.beats(2)
        self.assertEqual((member.verdict(), member.ended), (HELD, None))

    def test_strange_answers_raise_no_odd_exception(self):
        """Each field of each answer is replaced, and each status has a strange problem."""
        member, client, roster = self.join(ttl=60.0), self.client, self.client.roster("r")
        provider = {"provider": "p", "online": True, "alive": True, "occupancy": 0, "capacity": 1, "display_name": "d"}
        session = {"session": "s", "state": "active", "connections": 1, "epoch": 1, "data": {}, "outcome": "created"}
        shown = {"member": "m", "tenure": "m@1", "alive": True, "labels": {}, "ttl_ms": 1, "expires_in_ms": 1}
        lease = {"lease": "l", "holder": "m", "tenure": "m@1", "token": 1, "alive": True, "free": 0, "waiting": 0}
        target = {
            "target": "t",
            "paused": False,
            "weight": 1,
            "holder": "m",
            "tenure": "m@1",
            "token": 1,
            "alive": True,
        }
        event = {"id": 1, "type": "t", "at": "now"}
        calls = (
            (lambda: client.join("g", "x"), {"tenure": "x@1"}),
            (lambda: member.claim("r", "k"), {"outcome": "new", "revision": 1}),
            (
                lambda: member.acquire("l"),
                {"outcome": "granted", "token": 1, "place": 0, "waited_ms": 0, "revision": 1},
            ),
            (lambda: member.attach("s", "c"), session),
            (lambda: member.patch_session("s", {}), session),
            (lambda: client.session("g", "s"), session),
            (lambda: member.set_labels({}), {"revision": 1}),
            (lambda: client.owner("g", "r", "k"), {"key": "k", "owner": "m", "tenure": "m@1", "alive": True}),
            (lambda: client.lease("g", "l"), lease),
            (lambda: list(client.members("g")), {"members": [shown], "next": None}),
            (lambda: list(client.targets("g")), {"targets": [target], "next": None}),
            (lambda: client.events("g"), {"events": [event], "next": "1", "missed": False}),
            (lambda: roster.put("p"), provider),
            (lambda: roster.get("p"), provider),
            (lambda: list(roster.available()), {"providers": [{"provider": "p"}], "next": None}),
            (lambda: roster.reserve(), {"engagement": "e", "status": "s", "provider": "p"}),
        )
        problem = {"code": "c", "detail": "d", "outcome": "unchanged", "reason": "r", "retry_after_ms": 1, "status": 4}
        sent = [None]
        rules = [
            self.daemon.rule(m, "^(?!.*(beat$|now$|tenures/[^/]*$)).*", answer=(200, {}))
            for m in ("GET", "POST", "PUT", "PATCH")
        ]
        chance = random.Random(1)
        with mock.patch.object(http, "_pause", return_value=None):
            for call, good in calls:
                for status, answer in [(200, good), *((s, problem) for s in (302, 400, 404, 409, 429, 500))]:
                    fields = list(answer)
                    for field in fields if status == 200 else chance.sample(fields, 3):
                        for value in STRANGE:
                            inner = answer[field]
                            replaced = {**answer, field: value}
                            if isinstance(inner, list):
                                replaced = {**answer, field: [{**inner[0], next(iter(inner[0])): value}]}
                            for sent[0] in ({k: v for k, v in answer.items() if k != field}, replaced):
                                for rule in rules:
                                    rule.answer = (status, sent[0])
                                try:
                                    found = call()
                                except TenureError as error:
                                    self.assertIn(error.outcome, ("unchanged", "unknown"))
                                    self.assertTrue(error.retry_after is None or 0 <= error.retry_after < 1e9)
                                else:
                                    self.assertEqual(status, 200, sent)
                                    if hasattr(found, "leave"):
                                        self.daemon.rules = []
                                        found.leave()
                                        self.daemon.rules = rules
        self.daemon.rules = []
        self.daemon.beats(1)
        self.assertEqual((member.verdict(), member.ended), (HELD, None))

    def test_same_page_again_ends_the_list(self):
        self.daemon.rule("GET", "/members$", answer=(200, {"members": [], "next": "x"}))
        self.assertEqual(list(self.client.members("g")), [])

    def test_repair_survives_strange_answers(self):
        member = self.join(ttl=1.0)
        member.claim("r", "k")
        for body in (
            {},
            {"results": 5},
            {"results": [1]},
            {"results": [{"key": "k"}]},
            {"results": [{"key": 1, "outcome": "held"}]},
        ):
            self.daemon.rule("POST", "/claims$", answer=(200, body), times=1)
        tenure = member.tenure
        del self.daemon.tenures[tenure]
        until(lambda: self.daemon.claims["r", "k"] != tenure, "it claims again")

    def test_stream_survives_strange_events(self):
        for line in (
            b"[1]",
            b"5",
            b"{}",
            b'{"id": "x"}',
            b'{"id": [], "type": 1, "at": null}',
            b"\xff",
            b"[" * 100_000,
            b"x",
        ):
            self.daemon.scripts.append(b"id: 1\ndata: " + line + b"\n\n")
        self.daemon.scripts.append(b'id: 1\ndata: {"id": 1, "type": "t", "at": "now"}\n\n')
        with self.client.follow("g") as stream:
            self.assertEqual(next(iter(stream)).id, 1)


class Streams(Base):
    def test_close_ends_a_reader_and_its_connection(self):
        stream = self.client.follow("g")
        thread = threading.Thread(target=list, args=(stream,), daemon=True)
        thread.start()
        until(lambda: self.daemon.streams == 1)
        stream.close()
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive())
        until(lambda: self.daemon.streams == 0)
        self.assertEqual(list(stream), [])

    def test_close_ends_a_reader_that_cannot_connect(self):
        self.daemon.rule("GET", "/events$", answer=(503, {"code": "overloaded", "retry_after_ms": 3_600_000}))
        stream = self.client.follow("g")
        thread = threading.Thread(target=list, args=(stream,), daemon=True)
        self.daemon.refuse_streams = True
        thread.start()
        until(lambda: self.daemon.count("GET", "/events$"))
        stream.close()
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive())


class Ends(Base):
    def test_interpreter_ends_while_others_call_wait_and_read(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ends.py")
        for how in ("threads", "asyncio"):
            with self.subTest(how):
                command = [sys.executable, script, self.daemon.url, how]
                done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"ends\n", b""))


if __name__ == "__main__":
    unittest.main()
