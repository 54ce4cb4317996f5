"""Shared by the measurements: servers and clients on their cores, h2load, and figures with their runs."""

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, ".build", "release")
SERVER_CORE, CLIENT_CORE = "0", "1"
BOTH_CORES = f"{SERVER_CORE},{CLIENT_CORE}"
CLIENT_TIMEOUT = 120

# Headers of a sender with a provider token. Values that differ per push differ in our client and are fixed in
# h2load. Fixed values make h2load's work lighter, not heavier.
HEADERS = [
    "authorization: bearer " + "eyJhbGciOiJFUzI1NiIs" * 9,
    "apns-topic: com.example.app0",
    "apns-push-type: alert",
    "apns-priority: 10",
    "apns-expiration: 1900000000",
    "apns-collapse-id: score-update-123",
    "apns-id: 123e4567-e89b-42d3-a456-426655440000",
]
PAYLOAD_BYTES = 250
DEVICE_TOKENS = 10_000
WARM_UP = 20_000


def pinned(core, *command):
    return ["taskset", "-c", core, *command]


class Server:
    """A process of ours that writes a file when it is ready, a server its address; ends with the `with` block."""

    def __init__(self, directory, name, *arguments, core=SERVER_CORE):
        ready = os.path.join(directory, name + ".ready")
        self.child = subprocess.Popen(
            pinned(core, os.path.join(BUILD, "sluice"), *arguments, "--ready-file", ready, "--stop-with-input"),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not os.path.exists(ready):
            if self.child.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{name} did not start")
            time.sleep(0.01)
        with open(ready) as file:
            self.address = file.readline().strip()
        self.port = self.address.rpartition(":")[2]

    def stop(self):
        if self.child.poll() is None:
            self.child.stdin.close()
            self.child.wait(timeout=20)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()


def run(*command, timeout=CLIENT_TIMEOUT, core=CLIENT_CORE):
    """Runs a client; returns its output and the CPU seconds it used."""
    child = subprocess.Popen(
        pinned(core, *command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)
    timer = threading.Timer(timeout, child.kill)
    timer.start()
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({child.returncode}):\n{output}")
    return output, usage.ru_utime + usage.ru_stime


def bench(subcommand, *arguments, timeout=CLIENT_TIMEOUT, core=CLIENT_CORE, build=BUILD):
    """Runs a measurement of ours; returns the JSON of its last line."""
    output, _ = run(os.path.join(build, "sluice-bench"), subcommand, *map(str, arguments), timeout=timeout, core=core)
    return json.loads(output.splitlines()[-1])


def store(subcommand, directory, *arguments):
    """A measurement of the store, on all cores: its figures by name, with their units."""
    command = [os.path.join(BUILD, "sluice-bench"), "store", subcommand, "--directory", directory, *map(str, arguments)]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({child.returncode})")
    lines = map(json.loads, child.stdout.splitlines())
    return {line["figure"]: (line["value"], line["unit"]) for line in lines}


def load(subcommand, directory, server, *arguments):
    """Runs a measurement of ours against a server."""
    return bench(
        subcommand, "--port", server.port, "--ca-file", os.path.join(directory, "ca.pem"), "--payload", PAYLOAD_BYTES,
        *arguments)


def push(directory, server, connections, count, in_flight=None, warm_up=WARM_UP):
    """Pushes through our connection layer as fast as the server answers; 1,000 in flight in all by default."""
    result = load(
        "connection", directory, server, "--connections", connections, "--in-flight",
        in_flight or max(1, 1000 // connections), "--pushes", count, "--warm-up", warm_up)
    return {"rate": result["pushes_per_second"], "cpu_us": result["cpu_us_per_push"],
            "resident_mb": result["max_resident_mb"]}


def h2load(directory, server, connections, count):
    """Pushes with h2load. The difference of a long and a short run excludes start and warm-up, as ours does."""
    short, long = (h2load_run(directory, server, connections, requests) for requests in (WARM_UP, WARM_UP + count))
    return {"rate": count / (long["seconds"] - short["seconds"]),
            "cpu_us": (long["cpu"] - short["cpu"]) * 1e6 / count}


def h2load_run(directory, server, connections, count, *more, under=()):
    """A run of h2load. `under`: command and options of a program that runs it."""
    uris = os.path.join(directory, "uris")
    with open(uris, "w") as file:
        for number in range(DEVICE_TOKENS):
            token = hashlib.sha256(str(number).encode()).hexdigest()
            file.write(f"https://localhost:{server.port}/3/device/{token}\n")
    body = os.path.join(directory, "body")
    with open(body, "wb") as file:
        file.write(b"x" * PAYLOAD_BYTES)
    headers = [part for header in HEADERS for part in ("-H", header)]
    output, cpu = run(
        *under, "h2load", "-n", str(count), "-c", str(connections), "-m", str(max(1, 1000 // connections)), "-d", body,
        "-i", uris, *headers, *more, timeout=600 if under else CLIENT_TIMEOUT)
    if f" {count} succeeded" not in output or f"{count} 2xx" not in output:
        sys.exit(f"h2load: not all of {count} requests succeeded\n{output}")
    if "TLSv1.3" not in output or "TLS_AES_128_GCM_SHA256" not in output:
        sys.exit(f"h2load did not use TLS 1.3 with AES-128-GCM\n{output}")
    number, unit = re.search(r"finished in ([\d.]+)(us|ms|s),", output).groups()
    return {"cpu": cpu, "seconds": float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]}


@contextlib.contextmanager
def surroundings(directory, name, partitions, *topics, simulator=("--null",), core=SERVER_CORE):
    """A simulator and an embedded Kafka for one worker; gives the options that name them."""
    topics = [f"sluice.jobs:{partitions}", f"sluice.outcomes:{partitions}", "sluice.dead-letters:1", *topics]
    with (Server(directory, f"simulator{name}", "simulator", *simulator, "--port", "0", "--directory", directory,
                 core=core) as apns,
          Server(directory, f"kafka{name}", "kafka", "--port", "0",
                 *(option for topic in topics for option in ("--topic", topic)), core=core) as kafka):
        yield ["--bootstrap-servers", kafka.address, "--port", apns.port, "--ca-file",
               os.path.join(directory, "ca.pem"), "--key-file", os.path.join(directory, "key.p8")]


@contextlib.contextmanager
def worker_directory():
    """With the signing key that a worker needs; its servers put the rest there."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out",
             os.path.join(directory, "key.p8")], check=True, stderr=subprocess.DEVNULL)
        yield directory


def stripped(directory, program, build=BUILD):
    """A copy of a program for valgrind, which can't read all debugging data of the compiler."""
    path = os.path.join(directory, program)
    subprocess.run(["strip", "--strip-debug", "-o", path, os.path.join(build, program)], check=True)
    return path


def callgrind(profile):
    """Command and options of callgrind, which counts the instructions of another program."""
    return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}"]


def instructions(profile):
    """Instructions that callgrind has counted, by the object that they are in. The bodies of malloc and its kin that count
    allocations in sluice-bench are left out, because `sluice` doesn't have them."""
    annotated = subprocess.run(
        ["callgrind_annotate", "--threshold=100", profile], stdout=subprocess.PIPE, text=True, check=True).stdout
    counts = {}
    for line in annotated.splitlines():
        found = re.match(r" *([\d,]+) \( *[\d.]+%\) +\S*?:(.*?)(?: \[(.*)\])?$", line)
        if not found:
            continue
        count, function, file = found.groups()
        name = os.path.basename(file or "?").split(".so")[0]
        if name != "sluice-bench" or not re.fullmatch(r"malloc|calloc|realloc|memalign|aligned_alloc|posix_memalign", function):
            counts[name] = counts.get(name, 0) + int(count.replace(",", ""))
    if not counts:
        sys.exit(f"callgrind_annotate names no functions:\n{annotated[:2000]}")
    return counts


def named(callers):
    """Callers of an allocation with the names of sluice-bench's functions, where addr2line is there."""
    if not shutil.which("addr2line"):
        return callers

    def name(found):
        answer = subprocess.run(
            ["addr2line", "-f", "-e", os.path.join(BUILD, "sluice-bench"), found.group(1)], stdout=subprocess.PIPE, text=True)
        return answer.stdout.split("\n", 1)[0] or found.group(0)

    text = re.sub(r"sluice-bench\+(0x[0-9a-f]+)", name, callers)
    demangle = shutil.which("swift-demangle") or shutil.which("swift")
    if not demangle:
        return text
    command = [demangle, *([] if demangle.endswith("demangle") else ["demangle"]), "--simplified"]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True).stdout or text


def h2load_latency(directory, server, rate, seconds):
    """Latency of h2load at a fixed rate on one connection, by its own log. The first second is its
    warm-up."""
    log = os.path.join(directory, "h2load.log")
    h2load_run(directory, server, 1, rate * (seconds + 1), "--rps", str(rate), "--log-file", log)
    with open(log) as file:
        rows = [line.split() for line in file]
    os.remove(log)
    begin = int(rows[0][0])
    # Columns: start in microseconds since 1970, status, microseconds until the answer.
    times = sorted(int(row[2]) for row in rows if int(row[0]) >= begin + 1_000_000)
    return {"p50_ms": times[len(times) // 2] / 1000, "p99_ms": times[len(times) * 99 // 100] / 1000}


def provider_token():
    """A well-formed provider token. The simulator checks signatures of known keys only, and there are none."""
    def part(value):
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    header = part(json.dumps({"alg": "ES256", "kid": "ABC123DEFG"}).encode())
    claims = part(json.dumps({"iss": "DEF123GHIJ", "iat": int(time.time())}).encode())
    return f"{header}.{claims}.{part(bytes(range(1, 65)))}"


def percentile(histogram, percent):
    """Milliseconds of a histogram of a result of `sluice bench`."""
    rank, seen = percent / 100 * histogram["count"], 0
    for microseconds, count in histogram["buckets"]:
        seen += count
        if seen >= rank:
            return min(microseconds, histogram["max_us"]) / 1e3
    return 0


def entry(runs, unit):
    return {"value": statistics.median(runs), "unit": unit, "runs": runs}


def unmeasured(unit, reason):
    """The entry of a figure that can't be measured here."""
    return {"value": None, "unit": unit, "runs": [], "reason": reason}


def number(value):
    """Formats a number with three significant digits."""
    if 0 < abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3}f}"


def print_row(*columns):
    print(f"{columns[0]:34} {columns[1]:>11} {columns[2]:8} {columns[3]:>8} {columns[4]:4} {columns[5]}".rstrip())


def print_figures(figures, bounds=None):
    """Prints a table. `bounds`: (comparison, limit) of each figure that has a bound."""
    bounds = bounds or {}
    print_row("figure", "value", "unit", "bound" if bounds else "", "met" if bounds else "", "runs")
    for name, figure in figures.items():
        if figure["value"] is None:
            print_row(name, "–", figure["unit"], "", "", figure["reason"])
            continue
        comparison, limit = bounds.get(name, ("", None))
        met = "" if limit is None else "yes" if is_met(figure["value"], comparison, limit) else "NO"
        bound = "" if limit is None else f"{comparison} {limit:g}"
        runs = figure["runs"]
        print_row(
            name, number(figure["value"]), figure["unit"], bound, met,
            f"{number(min(runs))} … {number(max(runs))}" if len(runs) > 1 else "")


def is_met(value, comparison, limit):
    return {"<=": value <= limit, ">=": value >= limit, "==": value == limit}[comparison]


def write(figures, name):
    target = os.path.join(ROOT, ".build", "benchmarks", name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w") as file:
        json.dump(figures, file, indent=2)
    return os.path.relpath(target, ROOT)
