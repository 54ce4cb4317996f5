"""One copy of the pure machines that has many deliberate mistakes; SLUICE_MUTATION names the active one.

Shared by mutations.py and mechanical.py.
"""

import os
import re
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = os.path.join(ROOT, "Sources")
# The modules that are copied: `SLUICE_MUTATIONS` in Package.swift names the same.
MODULES = ("StreamScheduling", "DeliveryCore")

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


def write_if_changed(path, text):
    if os.path.exists(path):
        with open(path) as file:
            if file.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


class Copy:
    """A copy of the modules in .build/NAME/Sources, and what is built from the copy."""

    def __init__(self, name, swift):
        self.name = name
        self.swift = swift
        self.build_path = os.path.join(ROOT, ".build", name)
        self.path = os.path.join(self.build_path, "Sources")
        self.simulate = os.path.join(self.build_path, "release", "sluice-simulate")
        self.tests = os.path.join(self.build_path, "release", "sluicePackageTests.xctest")

    def write(self, files):
        """Files that stay as they are keep their time, for the build's sake."""
        files = dict(files, **{f"{module}/Mutation.swift": ACTIVE for module in MODULES})
        for directory, _, names in os.walk(self.path):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.relpath(path, self.path) not in files:
                    os.remove(path)
        for name, text in files.items():
            write_if_changed(os.path.join(self.path, name), text)

    def build(self, *arguments, captures=False):
        """The finished compiler; its output, when that is captured, is text."""
        return subprocess.run(
            [self.swift, "build", "--scratch-path", self.build_path, *arguments], cwd=ROOT,
            env=dict(os.environ, SLUICE_MUTATIONS=self.name), text=captures or None,
            stdout=subprocess.PIPE if captures else None, stderr=subprocess.STDOUT if captures else None)

    def build_simulation(self, captures=False):
        return self.build("-c", "release", "--product", "sluice-simulate", captures=captures)

    def run_simulation(self, number, seeds, events, seconds, fleet=None):
        """The broken promise, and the seed; None when none was broken."""
        command = [self.simulate, "--seeds", str(seeds), "--events", str(events)]
        if fleet:
            command += ["--fleet", fleet]
        status, output, errors = run(command, number, seconds)
        if status is None:
            return "it does not end", None
        if status == 0:
            return None, None
        found = re.search(r"^seed (\d+), (?:\w+, )?event \d+: (.*)$", output, re.MULTILINE)
        if found:
            return found.group(2), int(found.group(1))
        endless = re.search(r"^seed (\d+) does not end$", output, re.MULTILINE)
        if endless:
            return "it does not end", int(endless.group(1))
        trap = [line for line in errors.splitlines() if "Fatal error" in line]
        if trap:
            return "trap: " + trap[0].split("Fatal error: ", 1)[1], None
        if status < 0:
            return f"trap: {signal.Signals(-status).name}", None
        fail(f"mutation {number}: exit status {status} without a reason:\n{output}{errors}")

    def build_tests(self):
        # `@testable` in a release build, in which the tests take a tenth of the time.
        done = self.build("-c", "release", "--build-tests", "-Xswiftc", "-enable-testing", captures=True)
        if done.returncode != 0:
            print(done.stdout[-4000:])
            fail("the unit tests do not compile")

    def run_tests(self, number, seconds):
        """The modules' unit tests: what they report first; None when they pass."""
        status, output, errors = run(
            [self.tests, "--testing-library", "swift-testing", "--filter", "^(StreamScheduling|DeliveryCore)Tests"], number, seconds)
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
    environment = dict(os.environ, SLUICE_MUTATION=str(number), SWIFT_BACKTRACE="enable=no")
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True)
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
