#!/usr/bin/env python3
"""Runs the conformance cases against a client library: see README.md and PROTOCOL.md.

    python3 clients/conformance/run.py --tenure target/debug/tenure [--case NAME]... [-j 4] -- DRIVER ARGV...

Exit codes: 0 all cases passed, 1 a case failed or could not be run, 2 wrong usage.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402,F401
from suite.driver import Refused  # noqa: E402
from suite.world import CASES, World  # noqa: E402

# A limit for what no case may take, however busy the machine is.
LIMIT = 240


def arguments():
    own, driver = sys.argv[1:], []
    if "--" in own:
        cut = own.index("--")
        own, driver = own[:cut], own[cut + 1:]
    parser = argparse.ArgumentParser(usage="run.py --tenure PATH [options] -- DRIVER ARGV...")
    parser.add_argument("--tenure", default="tenure", help="the daemon's binary")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this case; may be repeated")
    parser.add_argument("-j", type=int, default=4, metavar="N", help="cases at a time (4)")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--older-daemon", action="store_true", help="do not fail for cases that the daemon is too old for")
    parser.add_argument("--except", action="append", default=[], dest="exceptions", metavar="NAME=REASON",
                        help="do not run this case, and say why; may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep the directories of failed cases")
    parsed = parser.parse_args(own)
    if not parsed.list and not driver:
        parser.error("name the driver after --")
    names = {case.name for case in CASES}
    for name in parsed.case or []:
        if name not in names:
            parser.error(f"no case {name!r}; see --list")
    parsed.exceptions = dict(exception.split("=", 1) for exception in parsed.exceptions)
    for name in parsed.exceptions:
        if name not in names:
            parser.error(f"no case {name!r}, which --except names")
    parsed.driver = driver
    return parsed


class Result:
    def __init__(self, case):
        self.case, self.error, self.missing, self.seconds, self.details = case, None, set(), 0.0, ""
        self.notes = []


async def run_case(case, options):
    result, began = Result(case), time.monotonic()
    directory = tempfile.mkdtemp(prefix=f"tenure-{case.name}-")
    world = World(options.tenure, options.driver, directory, case)
    try:
        await world.start()
        result.missing = set(case.needs) - await world.daemon.capabilities()
        if not result.missing:
            await asyncio.wait_for(case.run(world), LIMIT)
    except asyncio.TimeoutError:
        result.error = f"it took longer than {LIMIT} s"
    except (AssertionError, Refused) as error:
        result.error = f"{error}\n{where(error)}"
    except Exception:
        result.error = traceback.format_exc()
    try:
        await world.close()
    except AssertionError as error:
        result.error = result.error or str(error)
    result.notes, result.seconds = world.notes, time.monotonic() - began
    if result.error:
        result.details = details(world, directory)
    if result.error and options.keep:
        result.details += f"\n  kept: {directory}"
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return result


def where(error):
    """The lines of the case that failed."""
    frames = traceback.extract_tb(error.__traceback__)
    return "\n".join(f"  at {os.path.basename(f.filename)}:{f.lineno}: {f.line}" for f in frames if "cases" in f.filename)


def details(world, directory):
    """The last lines of each driver's conversation and of all logs."""
    lines = []
    for driver in world.drivers:
        lines.append(f"  {driver.name}:")
        lines += [f"    {line[:400]}" for line in driver.transcript[-25:]]
    for name in sorted(os.listdir(directory)):
        if name.endswith(".log"):
            with open(os.path.join(directory, name), errors="replace") as file:
                tail = file.read().splitlines()[-15:]
            lines += [f"  {name}:"] * bool(tail) + [f"    {line[:400]}" for line in tail]
    return "\n".join(lines)


def report(result, options):
    case = result.case
    if result.missing:
        state = "TOO OLD"
    else:
        state = "FAILED" if result.error else "ok"
    notes = "".join(f"  ({note})" for note in result.notes)
    print(f"{state:8}{result.seconds:6.1f} s  {case.section}.{case.name}{notes}", flush=True)
    if result.missing:
        print(f"  not run: the daemon {options.tenure} has no {', '.join(sorted(result.missing))}", flush=True)
    if result.error:
        print(f"  proves: {case.proves}\n  {result.error}\n{result.details}", flush=True)


async def run(chosen, options):
    room, results = asyncio.Semaphore(max(1, options.j)), []

    async def one(case):
        async with room:
            results.append(await run_case(case, options))
            report(results[-1], options)

    await asyncio.gather(*(one(case) for case in sorted(chosen, key=lambda case: not case.long)))
    return results


def main():
    options = arguments()
    chosen = [case for case in CASES if not options.case or case.name in options.case]
    chosen = [case for case in chosen if case.name not in options.exceptions]
    for name, reason in options.exceptions.items():
        print(f"NOT RUN           {name}: {reason}")
    if options.list:
        for case in chosen:
            print(f"{case.section}.{case.name}: {case.proves}")
        return 0
    began = time.monotonic()
    results = asyncio.run(run(chosen, options))
    failed = [r for r in results if r.error]
    missing = [r for r in results if r.missing]
    passed = len(results) - len(failed) - len(missing)
    print(f"{passed} of {len(results)} cases passed in {time.monotonic() - began:.0f} s"
          + (f", {len(failed)} FAILED" if failed else "")
          + (f", {len(missing)} NOT RUN: the daemon is too old" if missing else ""))
    return 1 if failed or (missing and not options.older_daemon) else 0


if __name__ == "__main__":
    sys.exit(main())
