"""A worker with Kafka and an APNs simulator on this machine, for checks and recordings.

All processes listen on loopback, on free ports, and end with the stage.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEY_ID, TEAM_ID = "ABC123DEFG", "DEF123GHIJ"


def sluice():
    """Path of the executable: $SLUICE, or the release build, or the debug build. None without any."""
    candidates = [os.environ.get("SLUICE"), ROOT / ".build/release/sluice", ROOT / ".build/debug/sluice"]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, condition, timeout=60):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(f"waited {timeout} s until {what}")


class Worker:
    """A worker of a stage."""

    def __init__(self, stage, name, configuration):
        self.stage, self.name, self.port = stage, name, free_port()
        configuration = dict(configuration, admin={"listen": f"127.0.0.1:{self.port}"})
        self.file = stage.path / f"{name}.yaml"
        # JSON is YAML.
        self.file.write_text(json.dumps(configuration, indent=1))
        self.ready = stage.path / f"{name}.ready"
        self.process = stage.start(name, "run", "--config", self.file, "--ready-file", self.ready)

    def wait_until_ready(self):
        def is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.stage.log(self.name)}")
            return self.ready.exists()

        wait_for(f"{self.name} has partitions", is_ready)

    def metrics(self):
        """The text of /metrics; None when the worker doesn't answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as answer:
                return answer.read().decode()
        except (OSError, urllib.error.URLError):
            return None


class Stage:
    """Kafka, a simulator and workers. Use as a context, which ends them."""

    def __init__(self, simulator=(), partitions=4, connections=2):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="sluice-stage-"))
        self.processes, self.feeders, self.stopping = [], [], threading.Event()
        self.connections = connections
        self.key = self.path / "team.p8"
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.key],
            check=True, capture_output=True)
        try:
            topics = [("jobs", partitions), ("outcomes", partitions), ("dead-letters", 1), ("changelog", partitions)]
            arguments = [each for name, count in topics for each in ("--topic", f"sluice.{name}:{count}")]
            ready = self.path / "kafka.ready"
            self.kafka = self.start("kafka", "kafka", "--port", 0, "--ready-file", ready, "--stop-with-input", *arguments)
            self.servers = self.await_file(ready).strip()
            ready = self.path / "simulator.ready"
            self.simulator = self.start(
                "simulator", "simulator", "--port", 0, "--directory", self.path, "--ready-file", ready,
                "--stop-with-input", *simulator)
            self.apns_port = int(self.await_file(ready).split()[0].split(":")[1])
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def await_file(self, file):
        wait_for(f"{file.name} is written", lambda: file.exists() and file.read_text().strip())
        return file.read_text()

    def start(self, name, *arguments):
        with open(self.path / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [sluice(), *map(str, arguments)], stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self, name):
        return (self.path / f"{name}.log").read_text(errors="replace")[-4000:]

    def configuration(self, **sections):
        """A worker's configuration with short waits. `sections` replace sections of it, member by member."""
        base = {
            "kafka": {
                "bootstrap-servers": self.servers, "group-id": "sluice",
                "consumer-properties": {"fetch.wait.max.ms": 20}, "properties": {"statistics.interval.ms": 1000},
            },
            "apns": {
                "environment": "custom", "host": "localhost", "port": self.apns_port, "ca-file": "ca.pem",
                "connections": self.connections,
            },
            "credentials": {
                "team": {"type": "token", "key-file": "team.p8", "key-id": KEY_ID, "team-id": TEAM_ID},
            },
            "apps": [
                {"name": "news", "topics": ["com.example.news"], "credential": "team"},
                {"name": "sport", "topics": ["com.example.sport"], "credential": "team"},
            ],
            "delivery": {"retry": {"initial": "500ms", "maximum": "5s"}, "drain-deadline": "3s"},
            "log": {"level": "info"},
        }
        for name, section in sections.items():
            name = name.replace("_", "-")
            base[name] = {**base.get(name, {}), **section} if isinstance(section, dict) else section
        return base

    def worker(self, name="worker-0", wait=True, **sections):
        worker = Worker(self, name, self.configuration(**sections))
        if wait:
            worker.wait_until_ready()
        return worker

    def job(self, generator, **members):
        job = {
            "kind": "push", "device-token": f"{generator.getrandbits(256):064x}",
            "topic": generator.choice(["com.example.news", "com.example.sport"]), "push-type": "alert",
            "priority": generator.choice([10, 10, 5]), "payload": {"aps": {"alert": "Hello"}},
        }
        job.update(members)
        return {name: value for name, value in job.items() if value is not None}

    def feed(self, rate, seed=1, jobs=None, **members):
        """Produces jobs at a rate, in jobs a second, until the stage ends. `members` are added to each job.

        `jobs` makes a job of a random generator and a number, in place of pushes.
        """
        process = subprocess.Popen(
            [sluice(), "produce", "-b", self.servers, "--no-check", "--file", "-"], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        self.processes.append(process)
        generator, stop = random.Random(seed), threading.Event()

        def run():
            began, count = time.monotonic(), 0
            try:
                while not (self.stopping.is_set() or stop.is_set()):
                    due = int((time.monotonic() - began) * rate)
                    for number in range(count, due):
                        job = jobs(generator, number) if jobs else self.job(generator, **members)
                        process.stdin.write((job if isinstance(job, str) else json.dumps(job)) + "\n")
                    count = max(count, due)
                    process.stdin.flush()
                    time.sleep(0.05)
                process.stdin.close()
            except (BrokenPipeError, ValueError):
                pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.feeders.append(thread)
        return stop

    def end(self):
        self.stopping.set()
        for thread in self.feeders:
            thread.join(timeout=5)
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin:
                try:
                    process.stdin.close()
                except BrokenPipeError:
                    pass
        shutil.rmtree(self.path, ignore_errors=True)
