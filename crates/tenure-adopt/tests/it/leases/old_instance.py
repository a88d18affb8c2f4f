"""One instance of a fleet that was written by hand and knows nothing of Tenure.

It takes `poll:lease:<target>` with SET NX PX, renews with GET and PEXPIRE, polls what it holds, and deletes its keys when
it is told to stop. Arguments: port, instance id, ttl in ms, number of targets, how many it takes at most, the script by
which the polled endpoint records a poll.
"""

import signal
import socket
import sys
import time

PORT, INSTANCE, TTL_MS, TARGETS, MOST, RECORD = sys.argv[1:7]
TTL = int(TTL_MS) / 1000
CYCLE = 0.1


class Redis:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = self.socket.makefile("rb")

    def call(self, *args):
        parts = [str(arg).encode() for arg in args]
        frame = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(frame)
        return self.read()

    def read(self):
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


def main():
    redis = Redis(int(PORT))
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    held = {}
    targets = ["t-%02d" % n for n in range(int(TARGETS))]
    while not stopping:
        begun = time.monotonic()
        for target in targets:
            if stopping:
                break
            key, now = "poll:lease:" + target, time.monotonic()
            if target not in held:
                if len(held) < int(MOST) and redis.call("SET", key, INSTANCE, "NX", "PX", TTL_MS) == "OK":
                    held[target] = now
            elif now - held[target] > TTL / 3:
                if now - held[target] < TTL * 0.9 and redis.call("GET", key) == INSTANCE:
                    redis.call("PEXPIRE", key, TTL_MS)
                    held[target] = now
                else:
                    del held[target]
            if target in held:
                for step in ("begin", "end"):
                    redis.call("EVAL", RECORD, 2, key, "polls", target, INSTANCE, 0, step)
        time.sleep(max(0, CYCLE - (time.monotonic() - begun)))
    for target in held:
        if redis.call("GET", "poll:lease:" + target) == INSTANCE:
            redis.call("DEL", "poll:lease:" + target)


main()
