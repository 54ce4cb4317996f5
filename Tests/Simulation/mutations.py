#!/usr/bin/env python3
"""Shows that simulation and unit tests can fail: each deliberate mistake of mutations.json must break a promise within a
bounded number of seeds, or fail a unit test of its module. The unchanged workers must break no promise.

All mutations are compiled into one copy of the package, which takes the number of the active one from SLUICE_MUTATION.
"""

import argparse
import json
import os
import time

import schemata
from schemata import MODES, TESTS, fail, short


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
    schemata.add_arguments(parser, seeds=2000)
    parser.add_argument("--only", type=int, help="run this mutation alone")
    parser.add_argument("--first", type=int, default=1, help="the first mutation to run")
    arguments = parser.parse_args()

    with open(os.path.join(schemata.ROOT, "Tests", "Simulation", "mutations.json")) as file:
        mutations = json.load(file)
    copy = schemata.Copy("mutations", arguments.swift)
    copy.write(mutate(mutations))
    if copy.build_simulation().returncode != 0:
        fail("the mutated sources do not compile")

    def check(mode):
        return copy.simulate_modes(0, [mode], arguments)

    def judge(number):
        mutation = mutations[number - 1]
        start = time.monotonic()
        # The mode that the list names comes first.
        modes = sorted(MODES, key=lambda mode: mode != mutation.get("mode"))
        mode, what, seed = copy.simulate_modes(number, modes, arguments)
        after = ", ".join(
            ([mode] if mode else []) + ([f"seed {seed}"] if seed else []) + [f"{time.monotonic() - start:.0f} s"])
        print(f"{number:3} {mutation['name']}: {short(what or 'NOT CAUGHT')} ({after})", flush=True)
        return what is not None

    def tests(number):
        return TESTS.get(mutations[number - 1]["file"].split("/")[0])

    def judge_by_tests(number):
        what = copy.run_tests(number, tests(number), arguments.test_seconds) if tests(number) else None
        print(f"{number:3} {mutations[number - 1]['name']}: {what or 'NOT CAUGHT'} (unit tests)", flush=True)
        return what is not None

    with schemata.workers(arguments.jobs) as pool:
        if arguments.only is None and arguments.first == 1:
            for mode, what, seed in pool.map(check, MODES):
                if what:
                    fail(f"{mode}, seed {seed}, without a mutation: {what}")
            print("without a mutation: no promise broken, in any mode", flush=True)
        numbers = [
            number for number in range(arguments.first, len(mutations) + 1) if arguments.only in (None, number)]
        caught = dict(zip(numbers, pool.map(judge, numbers)))
        left = [number for number in numbers if not caught[number]]
        if left:
            copy.build_tests()
            for modules in {tests(number) for number in left} - {None}:
                what = copy.run_tests(0, modules, arguments.test_seconds)
                if what:
                    fail(f"the unit tests of {modules}, without a mutation: {what}")
            caught |= zip(left, pool.map(judge_by_tests, left))
    missed = [number for number in numbers if not caught[number]]
    if missed:
        fail(f"{len(missed)} of {len(caught)} mutations were not caught: {', '.join(map(str, missed))}")
    print(f"{len(caught)} mutations caught, {len(left)} of them only by the unit tests")


if __name__ == "__main__":
    main()
