"""One copy of the package that has many deliberate mistakes; SLUICE_MUTATION names the active one.

Shared by mutations.py and mechanical.py.
"""

import glob
import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = os.path.join(ROOT, "Sources")
# Modules that may have mistakes. The simulation builds all of them, the last three over simulated effects.
MODULES = ("StreamScheduling", "DeliveryCore", "HTTP2", "Kafka", "Gateway")
# Tests that judge a mistake of a module. Of the Gateway's, which run whole workers, a part that takes a minute.
TESTS = {
    "StreamScheduling": "(StreamScheduling|DeliveryCore)Tests", "DeliveryCore": "(StreamScheduling|DeliveryCore)Tests",
    "HTTP2": "HTTP2Tests", "Kafka": "KafkaTests",
    "Gateway": r"GatewayTests\.(Delivery|Retry|CredentialGenerations|CutRecord|ReadPositions|PushAllowance|TokenHash)Tests",
}
EFFECTS = os.path.join("Tests", "Simulation", "Effects")
MODES = ("transactions", "local", "changelog", "none")
# Bytes of address space of a program with a mistake.
MEMORY = 8 << 30

ACTIVE = """import Glibc

/// The mutation that is active; 0 = none.
enum Mutation {
    static let active: Int = getenv("SLUICE_MUTATION").flatMap { Int(String(cString: $0)) } ?? 0
}
"""


def fail(text):
    sys.exit(f"{os.path.basename(sys.argv[0]).removesuffix('.py')}: {text}")


def short(text):
    text = re.sub(r"\s+", " ", re.sub(r"//.*", "", text)).strip()
    return text if len(text) <= 90 else text[:87] + "..."


def read_sources():
    """The modules' files by their names below Sources."""
    files = {}
    for module in MODULES:
        for directory, _, names in os.walk(os.path.join(SOURCES, module)):
            for name in names:
                path = os.path.join(directory, name)
                if not name.endswith(".swift"):
                    continue
                with open(path) as file:
                    files[os.path.relpath(path, SOURCES)] = file.read()
    return files


def expression(number, original, mutated):
    return f"(Mutation.active == {number} ? ({mutated}) : ({original}))"


def statement(number, original, mutated):
    return f"if Mutation.active == {number} {{ {mutated} }} else {{ {original} }}"


def write_if_changed(path, content):
    """Files that stay as they are keep their time, for the build's sake."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            if file.read() == content:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def link_if_changed(path, target):
    if os.path.islink(path) and os.readlink(path) == target:
        return
    if os.path.lexists(path):
        os.remove(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(target, path)


def links_and_files(top):
    for directory, directories, names in os.walk(top):
        for name in names + [one for one in directories if os.path.islink(os.path.join(directory, one))]:
            yield os.path.join(directory, name)


class Copy:
    """A copy of the package in .build/NAME, and what is built from the copy."""

    def __init__(self, name, swift):
        self.swift = swift
        self.path = os.path.join(ROOT, ".build", name)
        self.simulate = os.path.join(self.path, ".build", "release", "sluice-simulate")
        self.tests = os.path.join(self.path, ".build", "release", "sluicePackageTests.xctest")

    def write(self, files):
        """Writes the package with these sources, which are named by their paths below Sources."""
        content = {os.path.join("Sources", name): text.encode() for name, text in files.items()}
        links = {}
        for module in MODULES:
            content[f"Sources/{module}/Mutation.swift"] = ACTIVE.encode()
            twin = os.path.join(EFFECTS, module)
            if os.path.isdir(os.path.join(ROOT, twin)):
                links[f"{twin}/Mutation.swift"] = f"../../../../Sources/{module}/Mutation.swift"
        for path in itertools.chain(
                glob.glob(os.path.join(ROOT, "Package.*")),
                *(links_and_files(os.path.join(ROOT, top)) for top in ("Sources", "Tests"))):
            name = os.path.relpath(path, ROOT)
            if os.path.islink(path):
                # Links of the twins lead to the copy's own sources, because they are relative.
                links[name] = os.readlink(path)
            elif name not in content:
                with open(path, "rb") as file:
                    content[name] = file.read()
        for top in ("Sources", "Tests"):
            for path in list(links_and_files(os.path.join(self.path, top))):
                name = os.path.relpath(path, self.path)
                if name not in (links if os.path.islink(path) else content):
                    os.remove(path)
        for name, text in content.items():
            write_if_changed(os.path.join(self.path, name), text)
        for name, target in links.items():
            link_if_changed(os.path.join(self.path, name), target)

    def source(self, path):
        """The name below Sources of a file that the compiler names."""
        return os.path.relpath(os.path.realpath(path), os.path.join(os.path.realpath(self.path), "Sources"))

    def build(self, *arguments, captures=False):
        """The finished compiler; its output, when that is captured, is text."""
        # A release build, in which the tests take a tenth of the time; with assertions, which notice mistakes of their own.
        # The simulation has the tests' options, so that both share what is compiled.
        return subprocess.run(
            [self.swift, "build", "--package-path", self.path, "-c", "release", "-Xswiftc", "-assert-config", "-Xswiftc",
             "Debug", "-Xswiftc", "-enable-testing", *arguments], cwd=ROOT,
            env=dict(os.environ, SLUICE_MUTATIONS="1"), text=captures or None,
            stdout=subprocess.PIPE if captures else None, stderr=subprocess.STDOUT if captures else None)

    def build_simulation(self, captures=False):
        return self.build("--product", "sluice-simulate", captures=captures)

    def run_simulation(self, number, mode, first, seeds, arguments):
        """The broken promise, and the seed; None when none was broken in the time."""
        status, output, errors = run([
            self.simulate, "--mode", mode, "--first", str(first), "--seeds", str(seeds), "--events", str(arguments.events),
            "--seconds-per-seed", str(arguments.seconds_per_seed)], number, arguments.seconds)
        if status is None or status == 0:
            return None, None
        found = re.search(r"^seed (\d+), \w+: (\"[^\"]*\" is broken: .*)$", output, re.MULTILINE)
        if found:
            return found.group(2), int(found.group(1))
        ended = re.search(r"^seed (\d+) (does not end|traps)$", output, re.MULTILINE)
        seed = int(ended.group(1)) if ended else None
        if ended and ended.group(2) == "does not end":
            return "it does not end", seed
        trap = [line for line in errors.splitlines() if "Fatal error" in line]
        if trap:
            return "trap: " + short(trap[0].split("Fatal error: ", 1)[-1]), seed
        if status < 0:
            return f"trap: {signal.Signals(-status).name}", seed
        fail(f"mutation {number}: exit status {status} without a reason:\n{output}{errors}")

    def simulate_modes(self, number, modes, arguments):
        """The mode, the broken promise, and the seed; all None when no mode broke a promise. A few seeds come first in each
        mode, because most mistakes break a promise soon."""
        few = min(arguments.seeds, max(1, arguments.seeds // 10))
        for first, seeds in ((1, few), (few + 1, arguments.seeds - few)):
            for mode in modes if seeds else ():
                what, seed = self.run_simulation(number, mode, first, seeds, arguments)
                if what:
                    return mode, what, seed
        return None, None, None

    def build_tests(self):
        done = self.build("--build-tests", captures=True)
        if done.returncode != 0:
            print(done.stdout[-4000:])
            fail("the unit tests do not compile")

    def run_tests(self, number, tests, seconds):
        """Tests as TESTS has them: what they report first; None when they pass."""
        status, output, errors = run(
            [self.tests, "--testing-library", "swift-testing", "--filter", f"^{tests}"], number, seconds)
        if status == 0:
            return None
        if status is None:
            return "they don't end"
        for line in (output + errors).splitlines():
            if "Fatal error" in line or "recorded an issue" in line:
                return short(line)
        return "they fail"


def run(command, number, seconds):
    """The exit status, the output and the errors of a process with this mutation. Status None: the process took longer."""
    with tempfile.TemporaryDirectory(prefix="sluice-mutation-") as directory:
        environment = dict(
            os.environ, SLUICE_MUTATION=str(number), SWIFT_BACKTRACE="enable=no", TMPDIR=directory)
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            output, errors = process.communicate(timeout=seconds)
            return process.returncode, output, errors
        except subprocess.TimeoutExpired:
            return None, "", ""
        finally:
            if process.poll() is None:
                # The process leads a group of its own.
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def workers(jobs):
    """Threads whose processes each have a processor of their own, because a simulation stays where it starts."""
    processors = itertools.cycle(sorted(os.sched_getaffinity(0)))
    return ThreadPoolExecutor(
        max(1, jobs), initializer=lambda: jobs > 1 and os.sched_setaffinity(0, {next(processors)}))


def add_arguments(parser, seeds):
    parser.add_argument("--seeds", type=int, default=seeds, help="seeds in each mode within which a mistake must be caught")
    parser.add_argument("--events", type=int, default=300, help="records of each seed")
    parser.add_argument("--seconds", type=int, default=600, help="longest time for one mistake in one mode")
    parser.add_argument("--seconds-per-seed", type=int, default=30, help="a seed that takes longer does not end")
    parser.add_argument("--test-seconds", type=int, default=180, help="longest time for the unit tests")
    parser.add_argument("--jobs", type=int, default=1, help="mistakes that are tried at once")
    parser.add_argument("--swift", default="swift")
