#!/usr/bin/env python3
"""Shows that the simulation can fail: each deliberate mistake of mutations.json must break a promise within a bounded
number of seeds, and the unchanged core none. The core's unit tests are to catch the mistakes that the list leaves to them
("by": "tests"), because the simulated worlds never need, or hardly ever reach, what the mistake breaks.

All mutations are compiled into one copy of the pure machines, which takes the number of the active one from SLUICE_MUTATION.
"""

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import schemata
from schemata import fail

MODES = ("none", "local", "changelog", "transactions")


def place(text, mutation):
    """Where the text to replace is: [begin, end)."""
    name, original = mutation["name"], mutation["original"]
    if text.count(original) != 1:
        fail(f"\"{name}\": its original text occurs {text.count(original)} times in {mutation['file']}, must be once")
    begin = text.index(original)
    site = mutation.get("site", original)
    if original.count(site) != 1:
        fail(f"\"{name}\": its site occurs {original.count(site)} times in its original text, must be once")
    begin += original.index(site)
    return begin, begin + len(site)


def replacement(number, site, mutation):
    if mutation["kind"] == "expression":
        return schemata.expression(number, site, mutation["mutated"])
    if mutation["kind"] == "statement":
        return schemata.statement(number, site, mutation["mutated"])
    fail(f"\"{mutation['name']}\": its kind is neither expression nor statement")


def mutate(mutations):
    """The files of a copy with all mutations."""
    files = schemata.read_sources()
    edits = {}
    for number, mutation in enumerate(mutations, 1):
        if mutation["file"] not in files:
            fail(f"\"{mutation['name']}\": there is no {mutation['file']}")
        begin, end = place(files[mutation["file"]], mutation)
        edits.setdefault(mutation["file"], []).append((begin, end, number, mutation))
    for name, places in edits.items():
        places.sort(key=lambda edit: edit[0])
        for one, other in zip(places, places[1:]):
            if one[1] > other[0]:
                fail(f"\"{one[3]['name']}\" and \"{other[3]['name']}\" overlap")
        for begin, end, number, mutation in reversed(places):
            text = files[name]
            files[name] = text[:begin] + replacement(number, text[begin:end], mutation) + text[end:]
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400, help="seeds within which a mutation must be caught")
    parser.add_argument("--events", type=int, default=5000, help="steps of each seed")
    parser.add_argument("--seconds", type=int, default=240, help="longest time for one mutation")
    parser.add_argument("--only", type=int, help="run this mutation alone")
    parser.add_argument("--first", type=int, default=1, help="the first mutation to run")
    parser.add_argument("--jobs", type=int, default=1, help="mutations that run at once")
    parser.add_argument("--swift", default="swift")
    arguments = parser.parse_args()

    with open(os.path.join(schemata.ROOT, "Tests", "Simulation", "mutations.json")) as file:
        mutations = json.load(file)
    copy = schemata.Copy("mutations", arguments.swift)
    copy.write(mutate(mutations))
    if copy.build_simulation().returncode != 0:
        fail("the mutated core does not compile")

    def check(mode):
        return copy.run_simulation(0, arguments.seeds, arguments.events, 4 * arguments.seconds, mode)[0]

    def judge(number):
        mutation = mutations[number - 1]
        start = time.monotonic()
        # A few need circumstances that are rare.
        seeds = max(arguments.seeds, mutation.get("seeds", 0))
        events = max(arguments.events, mutation.get("events", 0))
        # Mistakes of the worker's own machines need whole workers, in the mode that the list names.
        what, seed = copy.run_simulation(number, seeds, events, arguments.seconds, mutation.get("fleet"))
        after = ", ".join(([] if seed is None else [f"seed {seed}"]) + [f"{time.monotonic() - start:.1f} s"])
        print(f"{number:3} {mutation['name']}: {what or 'NOT CAUGHT'} ({after})", flush=True)
        return what is not None

    def judge_by_tests(number):
        what = copy.run_tests(number, arguments.seconds)
        print(f"{number:3} {mutations[number - 1]['name']}: {what or 'NOT CAUGHT'} (unit tests)", flush=True)
        return what is not None

    with ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        if arguments.only is None and arguments.first == 1:
            modes = (None, *MODES)
            for mode, what in zip(modes, pool.map(check, modes)):
                if what:
                    fail(f"{'whole workers, ' + mode if mode else 'one worker'}, without a mutation: {what}")
            print(
                f"without a mutation: no promise broken in {arguments.seeds} seeds, nor by whole workers in four modes",
                flush=True)
        numbers = [
            number for number in range(arguments.first, len(mutations) + 1) if arguments.only in (None, number)]
        left = [number for number in numbers if mutations[number - 1].get("by") == "tests"]
        caught = list(pool.map(judge, [number for number in numbers if number not in left]))
        if left:
            copy.build_tests()
            what = copy.run_tests(0, arguments.seconds)
            if what:
                fail(f"the unit tests, without a mutation: {what}")
            caught += pool.map(judge_by_tests, left)
    if not all(caught):
        fail(f"{caught.count(False)} of {len(caught)} mutations were not caught")
    print(f"{len(caught)} mutations caught, {len(left)} of them by the unit tests")


if __name__ == "__main__":
    main()
