"""A process whose main thread ends while others call, wait and read: `ends.py URL threads|asyncio|fork`."""

import asyncio
import os
import sys
import threading
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
import contextlib

from tenure_client import LeaseHeld, Tenure, aio

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)


def busy(client):
    members = [client.join("g", name, ttl=2.0) for name in ("a", "b", "c")]
    members[0].acquire("l")
    for member in members[1:]:
        threading.Thread(target=wait, args=(member,), daemon=True).start()
    threading.Thread(target=read, args=(client,), daemon=True).start()
    for _ in range(50):
        members[0].claim("r", "k")
    return members


def wait(member):
    with contextlib.suppress(LeaseHeld):
        member.acquire("l", wait=3600)


def read(client):
    for _ in client.follow("g"):
        pass


def fork(client):
    members = busy(client)
    child = os.fork()
    if child == 0:
        assert members[0].verdict() == "lost"
        client.join("g", "child", ttl=2.0).leave()
        print("child ends", flush=True)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    assert members[0].verdict() == "held"
    print("parent ends", flush=True)


async def tasks(url):
    client = aio.Tenure(url)
    members = [await client.join("g", name, ttl=2.0) for name in ("a", "b")]
    await members[0].acquire("l")
    waiting = asyncio.ensure_future(members[1].acquire("l", wait=3600))
    following = asyncio.ensure_future(follow(client))
    await asyncio.sleep(0)
    for _ in range(20):
        await members[0].claim("r", "k")
    print("ends", flush=True)
    return waiting, following


async def follow(client):
    async for _ in client.follow("g"):
        pass


if __name__ == "__main__":
    url, how = sys.argv[1:]
    if how == "asyncio":
        asyncio.run(tasks(url))
    elif how == "fork":
        fork(Tenure(url))
    else:
        held = busy(Tenure(url))
        print("ends", flush=True)
