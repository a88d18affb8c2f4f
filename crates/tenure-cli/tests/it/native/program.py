"""A program that moves from hand-written keys to Tenure: old, dual or native.

Arguments: what it keeps (registry, sessions or leases), the mode, its name, the port of the server, the URL of the daemon.
It is told to stop by SIGTERM, and started again in the next mode, as a deployment does.
"""

import json
import signal
import socket
import sys
import time
import urllib.error
import urllib.request

KIND, MODE, NAME, PORT, DAEMON = sys.argv[1:6]
IS_OLD, IS_NATIVE = MODE in ("old", "dual"), MODE in ("dual", "native")
GROUP = "/v1/groups/moving"


class Redis:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", int(PORT)))
        self.lines = self.socket.makefile("rb")

    def call(self, *args):
        parts = [str(arg).encode() for arg in args]
        frame = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(frame)
        line = self.lines.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self.lines.read(length + 2)[:-2].decode()
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        raise RuntimeError(line.decode())


def call(method, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(DAEMON + GROUP + path, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


redis = Redis()
stopping, tenure, held = [], None, set()
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))


def beat():
    global tenure
    if tenure is None or call("PUT", f"/tenures/{tenure}/beat")[0] != 200:
        tenure = call("POST", "/members", {"member": NAME, "ttl_ms": 60_000})[1]["tenure"]


def registry():
    if IS_OLD:
        redis.call("SET", f"instance:heartbeat:{NAME}", 1, "PX", 3_000)
    for n in range(20):
        key = f"{NAME}-device-{n}"
        # The new place first: what is in the hash is in the registry as well.
        if IS_NATIVE:
            call("PUT", f"/registries/connections/claims/{key}", {"tenure": tenure})
        if IS_OLD:
            redis.call("HSET", "connections:registry", key, NAME)


def sessions():
    for n in range(10):
        session, is_away = f"{NAME}-session-{n}", n % 2 == 1
        connection = f"/sessions/{session}/connections/{NAME}-{n}"
        if IS_NATIVE:
            body = {"tenure": tenure, "connection": f"{NAME}-{n}", "grace_ms": 600_000, "data": {"room": "lobby"}}
            call("PUT", f"/sessions/{session}", body)
            if is_away:
                call("DELETE", f"{connection}?tenure={tenure}")
        if IS_OLD:
            redis.call("HSET", f"session:{session}", "room", "lobby", "last_disconnect", int(time.time()) if is_away else 0)


def leases():
    for target in (f"target-{n}" for n in range(6)):
        key = f"poll:lease:{target}"
        if IS_NATIVE and call("POST", f"/leases/{target}/acquire", {"tenure": tenure})[0] not in (200, 201):
            continue
        if IS_OLD:
            if redis.call("GET", key) == NAME:
                redis.call("PEXPIRE", key, 10_000)
            elif redis.call("SET", key, NAME, "NX", "PX", 10_000) != "OK":
                continue
        held.add(target)
        # The endpoint notices whether two poll it at the same time.
        if redis.call("SET", f"at:{target}", NAME, "NX") == "OK":
            redis.call("HINCRBY", "polls", f"{target} {NAME} {MODE}", 1)
            redis.call("DEL", f"at:{target}")
        else:
            redis.call("INCR", "overlaps")


while not stopping:
    if IS_NATIVE:
        beat()
    {"registry": registry, "sessions": sessions, "leases": leases}[KIND]()
    print("round", flush=True)
    time.sleep(0.02)
for target in held if IS_OLD else ():
    if redis.call("GET", f"poll:lease:{target}") == NAME:
        redis.call("DEL", f"poll:lease:{target}")
if IS_NATIVE:
    call("DELETE", f"/tenures/{tenure}")
