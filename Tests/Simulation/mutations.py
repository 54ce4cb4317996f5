#!/usr/bin/env python3
"""Shows that the simulation can fail: each deliberate mistake of mutations.json must break a promise within a bounded
number of seeds, and the unchanged core none. The core's unit tests are to catch the mistakes that the list leaves to them
("by": "tests"), because the simulated worlds never need, or hardly ever reach, what the mistake breaks.

The worlds are those of the core and its fleets. With --workers they are those of whole workers, in every mode, and the unit
tests judge what these leave. They don't catch all of the list yet.

All mutations are compiled into one copy of the package, which takes the number of the active one from SLUICE_MUTATION.
"""

import argparse
import json
import os
import time

import schemata
from schemata import MODES, TESTS, fail, short

# Seeds of the core's worlds, and steps of each, for mistakes that name no others.
CORE_SEEDS, CORE_EVENTS = 400, 5000


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
    schemata.add_arguments(parser, seeds=300)
    parser.add_argument("--workers", action="store_true", help="judge by worlds of whole workers")
    parser.add_argument("--only", type=int, help="run this mutation alone")
    parser.add_argument("--first", type=int, default=1, help="the first mutation to run")
    arguments = parser.parse_args()

    with open(os.path.join(schemata.ROOT, "Tests", "Simulation", "mutations.json")) as file:
        mutations = json.load(file)
    copy = schemata.Copy("mutations", arguments.swift)
    copy.write(mutate(mutations))
    if copy.build_simulation("sluice-simulate-workers" if arguments.workers else "sluice-simulate").returncode != 0:
        fail("the mutated sources do not compile")

    def check(mode):
        if arguments.workers:
            return copy.simulate_modes(0, [mode], arguments) if mode else (None, None, None)
        return mode, *copy.run_core_simulation(0, mode, CORE_SEEDS, CORE_EVENTS, arguments.seconds)

    def judge(number):
        mutation = mutations[number - 1]
        start = time.monotonic()
        if arguments.workers:
            # The mode that the list names comes first.
            modes = sorted(MODES, key=lambda mode: mode != mutation.get("fleet"))
            mode, what, seed = copy.simulate_modes(number, modes, arguments)
        else:
            mode = mutation.get("fleet")
            what, seed = copy.run_core_simulation(
                number, mode, max(CORE_SEEDS, mutation.get("seeds", 0)),
                max(CORE_EVENTS, mutation.get("events", 0)), arguments.seconds)
        after = ", ".join(
            ([mode] if mode else []) + ([f"seed {seed}"] if seed else []) + [f"{time.monotonic() - start:.0f} s"])
        print(f"{number:3} {mutation['name']}: {short(what or 'NOT CAUGHT')} ({after})", flush=True)
        return what is not None

    def judge_by_tests(number):
        what = copy.run_tests(number, TESTS["DeliveryCore"], arguments.test_seconds)
        print(f"{number:3} {mutations[number - 1]['name']}: {what or 'NOT CAUGHT'} (unit tests)", flush=True)
        return what is not None

    with schemata.workers(arguments.jobs) as pool:
        if arguments.only is None and arguments.first == 1:
            for mode, what, seed in pool.map(check, (None, *MODES)):
                if what:
                    fail(f"{mode or 'the core'}, seed {seed}, without a mutation: {what}")
            print("without a mutation: no promise broken, in any mode", flush=True)
        numbers = [
            number for number in range(arguments.first, len(mutations) + 1) if arguments.only in (None, number)]
        by_tests = [number for number in numbers if mutations[number - 1].get("by") == "tests"]
        simulated = [number for number in numbers if arguments.workers or number not in by_tests]
        caught = dict(zip(simulated, pool.map(judge, simulated)))
        left = [number for number in by_tests if not caught.get(number)]
        if left:
            copy.build_tests()
            what = copy.run_tests(0, TESTS["DeliveryCore"], arguments.test_seconds)
            if what:
                fail(f"the unit tests, without a mutation: {what}")
            caught |= zip(left, pool.map(judge_by_tests, left))
    missed = [number for number in numbers if not caught[number]]
    if missed:
        fail(f"{len(missed)} of {len(caught)} mutations were not caught: {', '.join(map(str, missed))}")
    print(f"{len(caught)} mutations caught, {len(left)} of them by the unit tests")


if __name__ == "__main__":
    main()
