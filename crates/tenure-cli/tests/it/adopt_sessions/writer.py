"""A program that keeps sessions by hand in Valkey or Redis and knows nothing of Tenure.

A session is a hash `session:<id>` whose field `last_disconnect` is 0 while somebody is connected, a count
`session:<id>:refs`, and an alias `alias:<broadcaster>`. It connects, checks and disconnects sessions in random order. An
active session that is not there any more is an error. Told to stop, it disconnects all of them and says how often it found
a session gone when it came back to it. Arguments: port, number of sessions, seed, milliseconds or seconds (`ms`, `s`).
"""

import random
import signal
import socket
import sys
import time

PORT, SESSIONS, SEED, UNIT = sys.argv[1:5]


class Redis:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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


class Session:
    def __init__(self, redis, name):
        self.redis, self.name = redis, name
        self.key, self.refs, self.alias = "session:" + name, "session:%s:refs" % name, "alias:b-" + name
        self.active, self.known = False, False

    def connect(self):
        """Answers whether the session was gone although it had been there."""
        made = self.redis.call("HSET", self.key, "last_disconnect", 0)
        gone = made == 1 and self.known
        self.redis.call("INCR", self.refs)
        self.redis.call("HSET", self.key, "name", self.name, "broadcaster_id", "b-" + self.name)
        self.redis.call("SET", self.alias, self.name)
        self.active = self.known = True
        return gone

    def check(self):
        found = [self.redis.call("HGET", self.key, field) for field in ("name", "last_disconnect")]
        found += [self.redis.call("GET", self.refs), self.redis.call("GET", self.alias)]
        if found != [self.name, "0", "1", self.name]:
            print("VIOLATION: active", self.name, found, flush=True)
            sys.exit(1)

    def disconnect(self, age):
        self.redis.call("DECR", self.refs)
        now = time.time() - age
        since = int(now * 1000) if UNIT == "ms" else int(now)
        self.redis.call("HSET", self.key, "last_disconnect", since)
        self.active = False


def main():
    redis, chance = Redis(int(PORT)), random.Random(int(SEED))
    sessions = [Session(redis, "s-%d" % n) for n in range(int(SESSIONS))]
    stopping, gone, checks = [], 0, 0
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    while not stopping:
        session = chance.choice(sessions)
        if not session.active:
            if session.connect():
                gone += 1
                if gone % 50 == 0:
                    print("gone", gone, flush=True)
        elif chance.random() < 0.5:
            session.check()
            checks += 1
        else:
            # Some are orphans at once, some have time to come back.
            session.disconnect(3600 if chance.random() < 0.7 else 0)
    for session in sessions:
        if session.active:
            session.check()
            session.disconnect(3600)
    known = sum(session.known for session in sessions)
    print("DONE gone=%d known=%d checks=%d" % (gone, known, checks), flush=True)


main()
