#!/usr/bin/env python3
"""First figures of Sluice: the connection layer beside h2load, and the whole gateway from Kafka to outcome.

Everything runs on 127.0.0.1 and ends by itself. Servers are pinned to one core, clients to another, and ours and
h2load take turns, so that the ratio holds on a machine whose speed drifts. Needs a release build, h2load (Debian:
nghttp2-client), taskset and openssl. Writes .build/benchmarks/first.json.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, ".build", "release")
SERVER_CORE, CLIENT_CORE = "0", "1"

# What a sender with a provider token sends; the values that differ per push differ in ours and are fixed in
# h2load, which makes h2load's work lighter, not heavier.
HEADERS = [
    "authorization: bearer " + "eyJhbGciOiJFUzI1NiIs" * 9,
    "apns-topic: com.example.app0",
    "apns-push-type: alert",
    "apns-priority: 10",
    "apns-expiration: 1900000000",
    "apns-collapse-id: score-update-123",
    "apns-id: 123e4567-e89b-42d3-a456-426655440000",
]


def pinned(core, *command):
    return ["taskset", "-c", core, *command]


class Process:
    """A server of ours that says in a file where it listens; stopped at the end."""

    def __init__(self, directory, name, *arguments):
        ready = os.path.join(directory, name + ".ready")
        self.child = subprocess.Popen(
            pinned(SERVER_CORE, os.path.join(BUILD, "sluice"), *arguments, "--ready-file", ready, "--stop-with-input"),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not os.path.exists(ready):
            if self.child.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{name} did not start")
            time.sleep(0.01)
        with open(ready) as file:
            self.address = file.readline().strip()
        self.port = self.address.rsplit(":", 1)[1]

    def cpu_seconds(self):
        with open(f"/proc/{self.child.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.child.stdin.close()
        self.child.wait(timeout=20)


def run(*command):
    """Runs a client; returns its output and the CPU seconds it used."""
    child = subprocess.Popen(pinned(CLIENT_CORE, *command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{output}")
    return output, usage.ru_utime + usage.ru_stime


def h2load(directory, port, connections, count):
    uris = os.path.join(directory, "uris")
    with open(uris, "w") as file:
        for number in range(10_000):
            token = hashlib.sha256(str(number).encode()).hexdigest()
            file.write(f"https://localhost:{port}/3/device/{token}\n")
    body = os.path.join(directory, "body")
    with open(body, "wb") as file:
        file.write(b"x" * 250)
    headers = [part for header in HEADERS for part in ("-H", header)]
    output, cpu = run(
        "h2load", "-n", str(count), "-c", str(connections), "-m", str(max(1, 1000 // connections)), "-d", body,
        "-i", uris, *headers)
    done = int(re.search(r"(\d+) succeeded", output).group(1))
    if done != count:
        sys.exit(f"h2load: only {done} of {count} succeeded\n{output}")
    rate = float(re.search(r"finished in [\d.]+m?s, ([\d.]+) req/s", output).group(1))
    return {"rate": rate, "cpu_us": cpu * 1e6 / count}


def ours(directory, port, connections, count):
    output, _ = run(
        os.path.join(BUILD, "sluice-bench"), "connection", "--port", port, "--ca-file",
        os.path.join(directory, "ca.pem"), "--connections", str(connections), "--in-flight",
        str(max(1, 1000 // connections)), "--pushes", str(count))
    result = json.loads(output)
    if result["other"] or result["unanswered"]:
        sys.exit(f"ours: not every push was accepted: {output}")
    return {"rate": result["pushes_per_second"], "cpu_us": result["cpu_us_per_push"]}


def compare_connections(directory, rounds, count, figures):
    simulator = Process(directory, "simulator", "simulator", "--null", "--port", "0", "--directory", directory)
    try:
        for connections in (1, 4):
            mine, theirs = [], []
            for _ in range(rounds):
                mine.append(ours(directory, simulator.port, connections, count))
                theirs.append(h2load(directory, simulator.port, connections, count))
            suffix = "" if connections == 1 else f"_{connections}"
            for key, name in (("rate", "pushes_per_second"), ("cpu_us", "cpu_us_per_push")):
                unit = "1/s" if key == "rate" else "µs"
                figures[name + suffix] = entry([r[key] for r in mine], unit)
                figures["h2load_" + name + suffix] = entry([r[key] for r in theirs], unit)
                figures[("push_rate_ratio" if key == "rate" else "push_cpu_ratio") + suffix] = entry(
                    [a[key] / b[key] for a, b in zip(mine, theirs)], "ratio")
    finally:
        simulator.stop()


def measure_gateway(directory, rounds, jobs, figures):
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out",
         os.path.join(directory, "key.p8")], check=True, stderr=subprocess.DEVNULL)
    results = []
    for number in range(rounds):
        simulator = Process(directory, f"simulator{number}", "simulator", "--null", "--port", "0", "--directory", directory)
        # A partition of the embedded cluster keeps 5 MB: enough partitions for the backlog and its outcomes.
        kafka = Process(
            directory, f"kafka{number}", "kafka", "--port", "0", "--topic", "sluice.jobs:24", "--topic",
            "sluice.outcomes:24", "--topic", "sluice.dead-letters:1")
        try:
            output, _ = run(
                os.path.join(BUILD, "sluice-bench"), "gateway", "--bootstrap-servers", kafka.address, "--port",
                simulator.port, "--ca-file", os.path.join(directory, "ca.pem"), "--key-file",
                os.path.join(directory, "key.p8"), "--jobs", str(jobs))
            results.append(json.loads(output))
        finally:
            kafka.stop()
            simulator.stop()
    figures["gateway_jobs_per_second"] = entry([r["jobs_per_second"] for r in results], "1/s")
    figures["gateway_cpu_us_per_job"] = entry([r["cpu_us_per_job"] for r in results], "µs")
    figures["gateway_max_resident_mb"] = entry([r["max_resident_mb"] for r in results], "MB")


def entry(runs, unit):
    return {"value": statistics.median(runs), "unit": unit, "runs": runs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument("--pushes", type=int, default=300_000, help="pushes of a connection run")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of a gateway run")
    options = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        compare_connections(directory, options.rounds, options.pushes, figures)
        measure_gateway(directory, max(1, options.rounds // 2 + 1), options.jobs, figures)
    for name, figure in figures.items():
        runs = figure["runs"]
        print(f"{name:34} {figure['value']:>12,.2f} {figure['unit']:6} ({min(runs):,.2f} … {max(runs):,.2f})")
    target = os.path.join(ROOT, ".build", "benchmarks", "first.json")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w") as file:
        json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
