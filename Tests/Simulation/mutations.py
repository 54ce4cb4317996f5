#!/usr/bin/env python3
"""Shows that the simulation can fail: each deliberate mistake of mutations.json must break a promise within a bounded
number of seeds, and the unchanged core none.

All mutations are compiled into one copy of DeliveryCore, which takes the number of the active one from SLUICE_MUTATION.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = os.path.join(ROOT, "Sources", "DeliveryCore")
BUILD = os.path.join(ROOT, ".build", "mutations")
COPY = os.path.join(BUILD, "DeliveryCore")
SIMULATE = os.path.join(BUILD, "release", "sluice-simulate")

ACTIVE = """import Glibc

/// The mutation that is active; 0 = none.
enum Mutation {
    static let active: Int = getenv("SLUICE_MUTATION").flatMap { Int(String(cString: $0)) } ?? 0
}
"""


def fail(text):
    sys.exit(f"mutations: {text}")


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
        return f"(Mutation.active == {number} ? ({mutation['mutated']}) : ({site}))"
    if mutation["kind"] == "statement":
        return f"if Mutation.active == {number} {{ {mutation['mutated']} }} else {{ {site} }}"
    fail(f"\"{mutation['name']}\": its kind is neither expression nor statement")


def write_if_changed(path, text):
    if os.path.exists(path):
        with open(path) as file:
            if file.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def mutate(mutations):
    """Makes the copy with all mutations; files that stay as they are keep their time, for the build's sake."""
    files = {}
    for directory, _, names in os.walk(SOURCES):
        for name in names:
            path = os.path.join(directory, name)
            with open(path) as file:
                files[os.path.relpath(path, SOURCES)] = file.read()
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
    files["Mutation.swift"] = ACTIVE
    if os.path.isdir(COPY):
        for directory, _, names in os.walk(COPY):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.relpath(path, COPY) not in files:
                    os.remove(path)
    for name, text in files.items():
        write_if_changed(os.path.join(COPY, name), text)


def build(swift):
    environment = dict(os.environ, SLUICE_MUTATIONS="1")
    command = [swift, "build", "-c", "release", "--scratch-path", BUILD, "--product", "sluice-simulate"]
    if subprocess.run(command, cwd=ROOT, env=environment).returncode != 0:
        fail("the mutated core does not compile")


def run(number, seeds, events, seconds, fleet=None):
    """The broken promise, and after how many seeds; None when none was broken."""
    environment = dict(os.environ, SLUICE_MUTATION=str(number), SWIFT_BACKTRACE="enable=no")
    command = [SIMULATE, "--seeds", str(seeds), "--events", str(events)]
    if fleet:
        command += ["--fleet", fleet]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "it does not end", None
    if done.returncode == 0:
        return None, None
    found = re.search(r"^seed (\d+), (?:\w+, )?event \d+: (.*)$", done.stdout, re.MULTILINE)
    if found:
        return found.group(2), int(found.group(1))
    trap = [line for line in done.stderr.splitlines() if "Fatal error" in line]
    if trap:
        return "trap: " + trap[0].split("Fatal error: ", 1)[1], None
    fail(f"mutation {number}: exit status {done.returncode} without a reason:\n{done.stdout}{done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400, help="seeds within which a mutation must be caught")
    parser.add_argument("--events", type=int, default=5000, help="steps of each seed")
    parser.add_argument("--seconds", type=int, default=240, help="longest time for one mutation")
    parser.add_argument("--only", type=int, help="run this mutation alone")
    parser.add_argument("--first", type=int, default=1, help="the first mutation to run")
    parser.add_argument("--swift", default="swift")
    arguments = parser.parse_args()

    with open(os.path.join(ROOT, "Tests", "Simulation", "mutations.json")) as file:
        mutations = json.load(file)
    mutate(mutations)
    build(arguments.swift)

    if arguments.only is None and arguments.first == 1:
        what, _ = run(0, arguments.seeds, arguments.events, 4 * arguments.seconds)
        if what:
            fail(f"without a mutation: {what}")
        for mode in ("none", "local", "changelog", "transactions"):
            what, _ = run(0, arguments.seeds, arguments.events, 4 * arguments.seconds, mode)
            if what:
                fail(f"whole workers, {mode}, without a mutation: {what}")
        print(f"without a mutation: no promise broken in {arguments.seeds} seeds, nor by whole workers in four modes")
    missed = 0
    for number, mutation in enumerate(mutations, 1):
        if arguments.only not in (None, number) or number < arguments.first:
            continue
        start = time.monotonic()
        # A few need circumstances that are rare.
        seeds = max(arguments.seeds, mutation.get("seeds", 0))
        events = max(arguments.events, mutation.get("events", 0))
        # Mistakes of the worker's own machines need whole workers, in the mode that the list names.
        what, seed = run(number, seeds, events, arguments.seconds, mutation.get("fleet"))
        after = "" if seed is None else f" (seed {seed}, {time.monotonic() - start:.1f} s)"
        print(f"{number:3} {mutation['name']}: {what or 'NOT CAUGHT'}{after}", flush=True)
        missed += what is None
    if missed:
        fail(f"{missed} of {len(mutations)} mutations were not caught")
    print(f"{len(mutations) if arguments.only is None else 1} mutations caught")


main()
