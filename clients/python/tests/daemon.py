"""A daemon in memory whose answers a test can hold, lose or replace."""

import contextlib
import json
import re
import select
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

PATIENCE = 30


def until(condition, what="the condition"):
    """Waits for what another thread or process does."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.005)
    return found


class Rule:
    """What happens to some requests. Each wait of the daemon for `go` is announced by `arrived`."""

    def __init__(self, method, pattern, *, answer=None, hold=False, lose=False, times=None):
        self.method, self.pattern, self.answer, self.lose, self.times = method, re.compile(pattern), answer, lose, times
        self.arrived, self.go, self.acted = threading.Semaphore(0), threading.Event(), threading.Event()
        if not hold:
            self.go.set()

    def arrives(self):
        if not self.arrived.acquire(timeout=PATIENCE):
            raise AssertionError(f"no {self.method} {self.pattern.pattern}")


class Daemon:
    def __init__(self, port=0):
        self.changed = threading.Condition()
        self.requests, self.rules = [], []  # Requests: (method, path, connection).
        self.tenures, self.leases, self.claims, self.connections = {}, {}, {}, {}
        self.last, self.opened, self.waiting = 0, 0, 0
        self.listening, self.refuse_streams = set(), False
        self.dead = (
            0  # Connections up to this number break at their next request, as behind a balancer that forgot them.
        )
        self.scripts = []  # What the next streams send.
        daemon = self

        class Handler(_Handler):
            state = daemon

        class Server(ThreadingHTTPServer):
            request_queue_size = 1024
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        self.sockets = set()
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def rule(self, *args, **options):
        rule = Rule(*args, **options)
        self.rules.insert(0, rule)
        return rule

    def count(self, method, pattern):
        return sum(made == method and bool(re.search(pattern, path)) for made, path, _ in list(self.requests))

    def cut(self):
        """Ends all connections, as a balancer or a restart does."""
        for sock in list(self.sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    @property
    def streams(self):
        return len(self.listening)

    def send(self, text):
        """To all streams."""
        for sock in list(self.listening):
            sock.sendall(text)

    def beats(self, count=2):
        """Waits for the next beats."""
        before = self.count("PUT", "/beat$")
        until(lambda: self.count("PUT", "/beat$") >= before + count, "the next beats")

    def next(self):
        self.last += 1
        return self.last

    # What it does. Returns a status and a body.

    def act(self, method, path, query, body, is_gone):
        for pattern, name in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and name.startswith(method):
                with self.changed:
                    found = getattr(self, name)(*map(unquote, match.groups()), query=query, body=body, is_gone=is_gone)
                    self.changed.notify_all()
                    return found
        return 404, {"code": "not_found"}

    def over(self, tenure):
        if tenure in self.tenures:
            return None
        return 410, {"code": "tenure_ended", "reason": "unknown"}

    def POST_members(self, _, body, **__):  # noqa: N802
        for old in [tenure for tenure, name in self.tenures.items() if name == body["member"]]:
            self.DELETE_tenure(_, old)
        tenure = f"{body['member']}@{self.next()}"
        self.tenures[tenure] = body["member"]
        return 201, {"tenure": tenure}

    def GET_member(self, _, name, **__):  # noqa: N802
        for tenure, member in self.tenures.items():
            if member == name:
                return 200, {"member": name, "tenure": tenure, "alive": True}
        return 404, {"code": "not_found"}

    def PUT_beat(self, _, tenure, **__):  # noqa: N802
        return self.over(tenure) or (200, {"expires_in_ms": 1000, "revision": self.revision(tenure)})

    def revision(self, tenure):
        return max([0, *(token for holder, token in self.leases.values() if holder == tenure)])

    def DELETE_tenure(self, _, tenure, **__):  # noqa: N802
        self.tenures.pop(tenure, None)
        self.leases = {name: held for name, held in self.leases.items() if held[0] != tenure}
        return 204, None

    def POST_acquire(self, _, name, body, is_gone, **__):  # noqa: N802
        end = time.monotonic() + body.get("wait_ms", 0) / 1000
        if body.get("wait_ms", 0) > 60_000:
            return 400, {"code": "invalid", "detail": "wait_ms is at most 60000"}
        self.waiting += 1
        try:
            while True:
                if is_gone():
                    return 0, None
                if ended := self.over(body["tenure"]):
                    return ended
                if name not in self.leases:
                    self.leases[name] = (body["tenure"], self.next())
                    return 200, {"outcome": "granted", "token": self.last, "revision": self.last}
                if self.leases[name][0] == body["tenure"]:
                    return 200, {"outcome": "kept", "token": self.leases[name][1], "revision": self.leases[name][1]}
                if time.monotonic() >= end:
                    return 409, {"code": "lease_held", "outcome": "unchanged"}
                self.changed.wait(0.02)
        finally:
            self.waiting -= 1

    def POST_release(self, _, name, body, **__):  # noqa: N802
        if self.leases.get(name) != (body["tenure"], body["token"]):
            return 409, {"code": "not_holder"}
        del self.leases[name]
        return 200, {}

    def GET_leases(self, _, query, **__):  # noqa: N802
        tenure = query["tenure"][0]
        mine = [{"lease": name, "token": held[1]} for name, held in self.leases.items() if held[0] == tenure]
        return 200, {"leases": mine, "revision": self.revision(tenure)}

    def PUT_claim(self, _, registry, key, body, **__):  # noqa: N802
        if ended := self.over(body["tenure"]):
            return ended
        self.claims[registry, key] = body["tenure"]
        return 200, {"outcome": "new"}

    def POST_claims(self, _, registry, body, **__):  # noqa: N802
        results = []
        for key in body["keys"]:
            owner = self.claims.get((registry, key), body["tenure"])
            is_held = owner != body["tenure"] and owner in self.tenures
            self.claims[registry, key] = owner if is_held else body["tenure"]
            results.append(
                {"key": key, "outcome": "held", "tenure": owner} if is_held else {"key": key, "outcome": "new"}
            )
        return 200, {"results": results}

    def GET_claims(self, _, registry, query, **__):  # noqa: N802
        owned = [
            {"key": key, "owner": self.tenures.get(tenure, "?"), "tenure": tenure}
            for (name, key), tenure in self.claims.items()
            if name == registry and self.tenures.get(tenure) == query["owner"][0]
        ]
        return 200, {"claims": owned}

    def GET_claim(self, _, registry, key, **__):  # noqa: N802
        owner = self.claims.get((registry, key))
        if owner is None:
            return 404, {"code": "not_found"}
        return 200, {"key": key, "owner": owner.rpartition("@")[0], "tenure": owner, "alive": owner in self.tenures}

    def DELETE_claim(self, _, registry, key, query, **__):  # noqa: N802
        if self.claims.get((registry, key)) == query["tenure"][0]:
            del self.claims[registry, key]
        return 204, None

    def PUT_session(self, _, session, body, **__):  # noqa: N802
        if ended := self.over(body["tenure"]):
            return ended
        epoch = self.next()
        self.connections[session, body["connection"]] = epoch
        shown = {"session": session, "state": "active", "connections": 1, "epoch": epoch, "outcome": "created"}
        return 200, shown

    def DELETE_connection(self, _, session, connection, query, **__):  # noqa: N802
        epoch = self.connections.get((session, connection))
        if epoch is not None and query.get("epoch", [str(epoch)])[0] == str(epoch):
            del self.connections[session, connection]
        return 204, None

    def GET_now(self, **_):  # noqa: N802
        return 200, {}


GROUP = "/v1/groups/([^/]+)"
ROUTES = (
    (f"{GROUP}/members", "POST_members"),
    (f"{GROUP}/members/([^/]+)", "GET_member"),
    (f"{GROUP}/tenures/([^/]+)/beat", "PUT_beat"),
    (f"{GROUP}/tenures/([^/]+)", "DELETE_tenure"),
    (f"{GROUP}/leases/([^/]+)/acquire", "POST_acquire"),
    (f"{GROUP}/leases/([^/]+)/release", "POST_release"),
    (f"{GROUP}/leases", "GET_leases"),
    (f"{GROUP}/registries/([^/]+)/claims/([^/]+)", "PUT_claim"),
    (f"{GROUP}/registries/([^/]+)/claims/([^/]+)", "GET_claim"),
    (f"{GROUP}/registries/([^/]+)/claims/([^/]+)", "DELETE_claim"),
    (f"{GROUP}/registries/([^/]+)/claims", "POST_claims"),
    (f"{GROUP}/registries/([^/]+)/claims", "GET_claims"),
    (f"{GROUP}/sessions/([^/]+)", "PUT_session"),
    (f"{GROUP}/sessions/([^/]+)/connections/([^/]+)", "DELETE_connection"),
    ("/v1/now", "GET_now"),
)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state = None

    def setup(self):
        super().setup()
        self.state.sockets.add(self.connection)
        self.state.opened += 1
        self.number = self.state.opened

    def finish(self):
        self.state.sockets.discard(self.connection)
        super().finish()

    def is_gone(self):
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def serve(self):
        state, parts = self.state, urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        if self.number <= state.dead:
            self.close_connection = True
            return
        state.requests.append((self.command, parts.path, self.number))
        if self.headers.get("Accept") == "text/event-stream" and not state.refuse_streams:
            self.stream()
            return
        rule = None
        for rule in state.rules:
            if rule.method == self.command and rule.pattern.search(parts.path) and rule.times != 0:
                rule.times = rule.times and rule.times - 1
                rule.arrived.release()
                rule.go.wait(PATIENCE)
                break
        else:
            rule = None
        if rule and rule.answer is not None:
            status, answer = rule.answer
        else:
            status, answer = state.act(self.command, parts.path, parse_qs(parts.query), body, self.is_gone)
        if rule:
            rule.acted.set()
        if status == 0 or (rule and rule.lose):
            self.close_connection = True
            return
        raw = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.state.scripts.pop(0) if self.state.scripts else b": hello\n\n")
        self.close_connection = True
        self.state.listening.add(self.connection)
        try:
            while self.connection.recv(1024):
                pass
        except OSError:
            pass
        self.state.listening.discard(self.connection)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = serve  # noqa: N815

    def log_message(self, *_):
        pass
