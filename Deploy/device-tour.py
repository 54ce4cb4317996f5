#!/usr/bin/env python3
"""A tour of what a device does with pushes, against a running simulator. Prints each step, and why it happened.

  sluice simulator --devices --apps Deploy/device-tour.yaml --directory /tmp/tour --sandbox-port 8444
  Deploy/device-tour.py --ca /tmp/tour/ca.pem          # all rows; look at http://127.0.0.1:8080 meanwhile
  Deploy/device-tour.py --ca /tmp/tour/ca.pem 14 19    # rows of Deploy/devices.md

Needs Python 3 and curl with HTTP/2. Each row takes a new device. Ends with status 1 when the device did something else.
"""

import argparse
import base64
import http.server
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

NEWS, SLOW, ASKS, DEVELOPMENT = (f"com.example.{name}" for name in ("news", "slow", "asks", "development"))
# {"title": "Ada", "body": "The meeting is at noon"}, with the key of Deploy/device-tour.yaml.
SECRET = ("AAECAwQFBgcICQoLbTrBXzQlqJTzG029VbRGA04XxRGffVmlGQAVpEHCR1KHsNwEhc+4"
          "VLo3kqGC1MmtPXAZFO4Zwl2BYav9i1MKJISR")
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


class Wrong(Exception):
    """The device did something else."""


class Simulator:
    def __init__(self, options):
        self.api, self.apns, self.sandbox, self.ca = options.api, options.apns, options.sandbox, options.ca

    def request(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=70) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Wrong(f"{method} {path}: {error.code} {error.read().decode()}")

    @staticmethod
    def provider_token():
        """Well-formed; without a known key the simulator checks no signature."""
        def part(value):
            return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

        return ".".join([part(b'{"alg":"ES256","kid":"ABC123DEFG"}'),
                         part(json.dumps({"iss": "DEF123GHIJ", "iat": int(time.time())}).encode()),
                         part(bytes(range(1, 65)))])

    def push(self, token, topic, payload, sandbox=False, **headers):
        fields = {"apns-topic": topic, "apns-push-type": "alert", "authorization": "bearer " + self.provider_token()}
        fields.update({name.replace("_", "-"): str(value) for name, value in headers.items()})
        command = ["curl", "--silent", "--show-error", "--http2", "--cacert", self.ca, "--include", "--data", json.dumps(payload)]
        for name, value in fields.items():
            command += ["--header", f"{name}: {value}"]
        base = self.sandbox if sandbox else self.apns
        answer = subprocess.run(command + [f"{base}/3/device/{token}"], capture_output=True, text=True, timeout=60)
        if answer.returncode != 0:
            raise Wrong(f"curl: {answer.stderr.strip()}")
        head, _, content = answer.stdout.replace("\r\n", "\n").partition("\n\n")
        lines = head.split("\n")
        status = int(lines[0].split()[1])
        identifier = next((line.split(": ")[1] for line in lines if line.startswith("apns-id")), "")
        shown = {name: value for name, value in fields.items() if name not in ("authorization", "apns-topic")}
        print(f"    push {topic} {json.dumps(shown)} {json.dumps(payload, ensure_ascii=False)} → {status} {content}")
        return status, json.loads(content).get("reason") if content else None, identifier


class Tour:
    """A new device, and what the rows need to know of it."""

    def __init__(self, simulator, row):
        self.simulator = simulator
        self.device = simulator.request("POST", "/api/devices", {"name": f"Row {row}"})["devices"][0]
        self.identifiers = []

    def view(self):
        return self.simulator.request("GET", f"/api/devices/{self.device}")

    def app(self, bundle=NEWS):
        return next(app for app in self.view()["apps"] if app["bundle"] == bundle)

    def act(self, action, app=None, **more):
        body = {"action": action, **({"app": app} if app else {}), **more}
        print(f"    act  {json.dumps(body, ensure_ascii=False)}")
        return self.simulator.request("POST", f"/api/devices/{self.device}/actions", body)

    def token(self, bundle=NEWS, purpose="alert"):
        return next(token["token"] for token in self.app(bundle)["tokens"] if token["purpose"] == purpose and token["isValid"])

    def push(self, payload, bundle=NEWS, **headers):
        """Pushes, and returns the push with its fate."""
        status, reason, identifier = self.simulator.push(self.token(bundle), bundle, payload, **headers)
        if status != 200:
            raise Wrong(f"the push was answered with {status} {reason}")
        return self.fate(identifier)

    def fate(self, identifier, *fates):
        """Waits until the push's extension is done, and prints the rules that decided its fate."""
        push = {}
        for _ in range(600):
            push = self.simulator.request("GET", f"/api/pushes/{identifier}")
            if push["fate"] in fates or (not fates and push["fate"] not in ("accepted", "running")):
                break
            time.sleep(0.05)
        for step in push["steps"]:
            print(f"         {step['basis']:<10}  {step['text']}")
        return push

    def wait(self, **condition):
        condition["device"] = self.device
        query = urllib.parse.urlencode(condition)
        print(f"    wait {query}")
        return self.simulator.request("GET", f"/api/wait?{query}&timeout=10")


def check(condition, text):
    if not condition:
        raise Wrong(text)
    print(f"      ✓ {text}")


def rules(push):
    return [step["rule"] for step in push["steps"]]


def alert(body, **more):
    return {"aps": {"alert": {"title": "News", "body": body}, **more}}


def row_1(tour):
    """Banner, sound and badge"""
    push = tour.push(alert("Hello", sound="default", badge=3))
    check({"banner", "sound", "badge"} <= set(rules(push)), "banner, sound and badge")
    check(tour.app()["badge"] == 3 and tour.view()["banner"]["app"] == NEWS, "the icon has the badge, the screen the banner")


def row_2(tour):
    """Unlocked: banner; locked: lock screen; missed: notification centre"""
    tour.act("lock", on=True)
    push = tour.push(alert("While locked"))
    check("lock-screen" in rules(push) and tour.view()["lockScreen"], "the lock screen has the notification")
    tour.act("lock", on=False)
    check(not tour.view()["lockScreen"] and tour.app()["delivered"], "after unlocking it is in the notification centre")


def row_3(tour):
    """Local and remote notifications, distinguished by their trigger"""
    tour.act("schedule", NEWS, request={"identifier": "local", "payload": alert("Local")})
    tour.push(alert("Remote"))
    tour.wait(text="Local")
    triggers = {entry["body"]: entry["trigger"] for entry in tour.app()["delivered"]}
    check(triggers == {"Local": "none", "Remote": "push"}, f"triggers: {triggers}")


def row_4(tour):
    """Permission is asked for once; the user changes settings later"""
    check(tour.app(ASKS)["isAsking"], "the prompt waits for the user")
    push = tour.push(alert("Too early"), ASKS)
    check("not-authorized" in rules(push), "nothing is shown before the answer")
    tour.act("answer", ASKS, on=True)
    check(tour.app(ASKS)["authorization"] == "authorized", "authorized")
    check(tour.push(alert("Allowed"), ASKS)["fate"] == "shown", "shown")
    settings = tour.app(ASKS)["settings"]
    tour.act("settings", ASKS, settings={**settings, "sounds": False, "badges": False})
    push = tour.push(alert("Quiet", sound="default", badge=1), ASKS)
    check({"no-sound", "no-badge"} <= set(rules(push)), "sound and badge are off")
    tour.act("settings", ASKS, on=False)
    check("denied" in rules(tour.push(alert("Denied"), ASKS)), "denied: nothing is shown")


def row_5(tour):
    """Background mode remote-notification"""
    silent = {"aps": {"content-available": 1}}
    push = tour.push(silent, apns_push_type="background", apns_priority=5)
    check(push["fate"] == "woken", "the app with the mode is woken")
    push = tour.push(silent, SLOW, apns_push_type="background", apns_priority=5)
    check("no-background-mode" in rules(push), "the app without it is not")


def row_6(tour):
    """Environments: aps-environment decides the token's"""
    token = tour.token(DEVELOPMENT)
    status, reason, _ = tour.simulator.push(token, DEVELOPMENT, alert("Wrong environment"))
    check((status, reason) == (400, "BadDeviceToken"), "production refuses a sandbox token")
    status, _, identifier = tour.simulator.push(token, DEVELOPMENT, alert("Right environment"), sandbox=True)
    check(status == 200 and tour.fate(identifier)["fate"] == "shown", "sandbox accepts the token")


def row_7(tour):
    """Registration needs the network"""
    tour.act("uninstall", SLOW)
    tour.act("airplane", on=True)
    tour.act("install", SLOW)
    tour.act("launch", SLOW)
    check(not tour.app(SLOW)["tokens"], "no token without network")
    tour.act("airplane", on=False)
    check(len(tour.app(SLOW)["tokens"]) == 1, "the token is there once the network is")


def row_8(tour):
    """Tokens change at a restore; an app must have been launched once"""
    former = tour.token()
    tour.act("restore")
    check(tour.token() != former, "a new token")
    answers = [tour.simulator.push(former, NEWS, alert("To the former token"))[:2] for _ in range(2)]
    check(answers == [(200, None), (410, "Unregistered")], "the former token loses a push, then answers 410")
    tour.act("uninstall", SLOW)
    tour.act("install", SLOW)
    check(not tour.app(SLOW)["wasLaunched"] and not tour.app(SLOW)["tokens"], "never launched: no token")


def row_9(tour):
    """Title, subtitle, body, badge, and localised texts"""
    tour.push({"aps": {"alert": {"title": "T", "subtitle": "S", "body": "B"}, "badge": 1}})
    entry = tour.app()["delivered"][0]
    check((entry["title"], entry["subtitle"], entry["body"]) == ("T", "S", "B"), "three lines of text")
    tour.act("language", text="de")
    tour.push({"aps": {"alert": {"loc-key": "GOAL", "loc-args": ["Rot", "Blau"]}}})
    check(tour.app()["delivered"][0]["body"] == "Tor! Rot gegen Blau", "text of the device's language")


def row_10(tour):
    """Triggers: interval, calendar, location"""
    for identifier, trigger in (("interval", {"interval": 0.2}), ("calendar", {"minute-of-day": 500, "repeats": True}),
                                ("location", {"region": "office"})):
        tour.act("schedule", NEWS, request={"identifier": identifier, "payload": alert(identifier), "trigger": trigger})
    check({entry["trigger"] for entry in tour.app()["pending"]} >= {"calendar", "location"}, "the pending list")
    tour.wait(identifier="interval")
    tour.act("location", text="office")
    tour.wait(identifier="location")
    check([entry["identifier"] for entry in tour.app()["pending"]] == ["calendar"], "the repeating one stays pending")


def row_11(tour):
    """The app in front decides"""
    tour.act("launch", NEWS)
    check("foreground-shown" in rules(tour.push(alert("In front"))), "an app that chooses to present")
    tour.act("answer", ASKS, on=True)
    tour.act("launch", ASKS)
    push = tour.push(alert("In front"), ASKS)
    check("foreground-silent" in rules(push) and not tour.app(ASKS)["delivered"], "an app that chooses nothing")
    tour.act("launch", DEVELOPMENT)
    identifier = tour.simulator.push(tour.token(DEVELOPMENT), DEVELOPMENT, alert("In front"), sandbox=True)[2]
    check("foreground-no-delegate" in rules(tour.fate(identifier)), "an app without delegate")


def row_12(tour):
    """The identifier is the collapse identifier"""
    tour.push(alert("One"), apns_collapse_id="score")
    check(tour.app()["delivered"][0]["identifier"] == "score", "identifier score")
    tour.push(alert("Other"))
    check(len(tour.app()["delivered"][0]["identifier"]) == 36, "a generated one without the header")


def row_13(tour):
    """The app removes by identifier, also after a silent push"""
    tour.act("schedule", NEWS, request={"identifier": "later", "payload": alert("Later"), "trigger": {"interval": 3600}})
    tour.push(alert("One"), apns_collapse_id="one")
    tour.push(alert("Two"), apns_collapse_id="two")
    tour.act("remove-delivered", NEWS, identifier="one")
    check([entry["identifier"] for entry in tour.app()["delivered"]] == ["two"], "one is gone")
    tour.push({"aps": {"content-available": 1}, "remove": ["two", "later"]}, apns_push_type="background", apns_priority=5)
    check(not tour.app()["delivered"] and not tour.app()["pending"], "the silent push removed the other, and the pending one")


def row_14(tour):
    """The same identifier replaces, and moves up"""
    tour.push(alert("1:0"), apns_collapse_id="score")
    tour.push(alert("Something else"))
    tour.push(alert("2:0"), apns_collapse_id="score")
    entries = tour.app()["delivered"]
    check([entry["body"] for entry in entries] == ["2:0", "Something else"], "replaced, at the top")
    check(entries[0]["replaced"] == 1, "one was replaced")


def row_15(tour):
    """Actions: tap, buttons, text, dismissal"""
    for name in ("a", "b", "c", "d"):
        tour.push(alert(name, category="story"), apns_collapse_id=name)
    tour.act("act", NEWS, identifier="a", choice="later")
    tour.act("act", NEWS, identifier="b", choice="comment", text="Well done")
    tour.act("dismiss", NEWS, identifier="c")
    tour.act("tap", NEWS, identifier="d")
    actions = {response["identifier"]: response["action"] for response in tour.app()["responses"]}
    check(actions == {"a": "later", "b": "comment", "c": "com.apple.UNNotificationDismissActionIdentifier",
                      "d": "com.apple.UNNotificationDefaultActionIdentifier"}, "the app has received four responses")
    check(tour.app()["state"] == "foreground" and not tour.app()["delivered"], "the app is in front, the list is empty")
    tour.push(alert("e", category="invitation"), apns_collapse_id="e")
    tour.act("home", NEWS)
    tour.act("dismiss", NEWS, identifier="e")
    check(len(tour.app()["responses"]) == 4, "a dismissal without the option is not reported")


def row_16(tour):
    """Categories have actions; unknown ones have none"""
    tour.push(alert("Story", category="story"))
    check(len(tour.app()["delivered"][0]["actions"]) == 4, "four actions")
    push = tour.push(alert("Unknown", category="Story"))
    check("unknown-category" in rules(push) and not tour.app()["delivered"][0]["actions"], "names are case-sensitive")


def row_17(tour):
    """The response: identifier, text, state of the app"""
    tour.push(alert("Story", category="story"), apns_collapse_id="x")
    tour.act("act", NEWS, identifier="x", choice="comment", text="Grüße")
    response = tour.app()["responses"][0]
    check((response["userText"], response["appState"]) == ("Grüße", "background"), f"{response}")


def row_18(tour):
    """The service extension changes the text, or runs out of time"""
    push = tour.push({"aps": {"alert": {"title": "T", "body": "B"}, "mutable-content": 1}, "sender": "Ada"})
    entry = tour.app()["delivered"][0]
    check("extension-ran" in rules(push) and entry["subtitle"] == "from Ada", "the changed text")
    check(entry["original"]["subtitle"] == "", "the text before is known")
    push = tour.push(alert("Original", **{"mutable-content": 1}), SLOW)
    check("extension-timed-out" in rules(push) and tour.app(SLOW)["delivered"][0]["title"] == "News", "the original after the time")


def row_19(tour):
    """End-to-end encryption"""
    payload = {"aps": {"alert": "(Encrypted)", "mutable-content": 1}, "encrypted-content": SECRET, "sender": "Ada"}
    push = tour.push(payload)
    entry = tour.app()["delivered"][0]
    check("decrypted" in rules(push) and entry["body"] == "The meeting is at noon", "the cipher became text on the device")
    payload["encrypted-content"] = SECRET[:-8] + "AAAAAAAA"
    push = tour.push(payload)
    check("decryption-failed" in rules(push) and tour.app()["delivered"][0]["body"] == "(Encrypted)", "a wrong cipher: the original")


def row_20(tour):
    """No alert, no service extension"""
    for payload in ({"sound": "default"}, {"badge": 2}):
        push = tour.push({"aps": {**payload, "mutable-content": 1}})
        check("extension-skipped-no-alert" in rules(push), f"skipped for {payload}")


def row_21(tour):
    """A picture by URL"""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            content = PICTURE if self.path == "/picture.png" else b"no picture"
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    try:
        push = tour.push({**alert("Picture", **{"mutable-content": 1}), "attachment-url": base + "/picture.png"})
        attachment = tour.app()["delivered"][0]["attachments"][0]
        check("attachment-added" in rules(push) and attachment["type"] == "image/png", f"{attachment}")
        with urllib.request.urlopen(f"{tour.simulator.api}/api/attachments/{attachment['id']}", timeout=10) as answer:
            check(answer.read() == PICTURE, "the page shows the picture")
        push = tour.push({**alert("Text", **{"mutable-content": 1}), "attachment-url": base + "/text"})
        check("attachment-refused" in rules(push), "a file of another type is refused")
    finally:
        server.shutdown()


def invite(tour):
    tour.push({**alert("You are invited", category="invitation"), "when": "noon", "seats": 0.5}, apns_collapse_id="party")
    tour.act("expand", NEWS, identifier="party")
    return tour.app()["delivered"][0]["custom"]


def row_22(tour):
    """A content extension draws a category"""
    fields = invite(tour)["fields"]
    check(fields[0]["value"] == "noon" and [field["kind"] for field in fields] == ["text", "progress", "input", "button"],
          "its fields have the payload's values")


def row_23(tour):
    """Hidden default content, size ratio, title"""
    view = invite(tour)
    check((view["hidesDefaultContent"], view["sizeRatio"], view["title"]) == (True, 0.5, "Invitation"), f"{view['title']}")


def row_24(tour):
    """An action changes the view, then dismisses or forwards"""
    invite(tour)
    tour.act("act", NEWS, identifier="party", choice="going")
    check(tour.app()["delivered"][0]["custom"]["status"] == "Going!", "Going! (the view stays)")
    tour.act("act", NEWS, identifier="party", choice="not-going")
    check(not tour.app()["delivered"] and not tour.app()["responses"], "the view closes, the app learns nothing")


def row_25(tour):
    """Text input in the view"""
    invite(tour)
    tour.act("act", NEWS, identifier="party", choice="answer", text="I will be late")
    check(tour.app()["responses"][0]["userText"] == "I will be late", "forwarded to the app with the text")


def row_26(tour):
    """Controls inside the view"""
    check(invite(tour)["isInteractive"], "the view takes touches")


def row_27(tour):
    """APNs stores for a device that is off"""
    tour.act("power", on=False)
    pushes = [tour.push(alert(text))["apnsID"] for text in ("First", "Second", "Third")]
    check(len(tour.view()["stored"]) == 1, "one push is stored")
    check("not-stored" in rules(tour.push(alert("Now or never"), apns_expiration=0)), "expiration 0 is not stored")
    tour.act("power", on=True)
    check([entry["body"] for entry in tour.app()["delivered"]] == ["Third"], "the newest arrives at power-on")
    check(tour.fate(pushes[0])["fate"] == "replaced", "the page knows what became of the others")


ROWS = {int(name[4:]): function for name, function in list(globals().items()) if name.startswith("row_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", default="http://127.0.0.1:8080")
    parser.add_argument("--apns", default="https://localhost:8443")
    parser.add_argument("--sandbox", default="https://localhost:8444")
    parser.add_argument("--ca", default="ca.pem", help="the simulator's authority")
    parser.add_argument("rows", nargs="*", type=int, help="rows; all without any")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no row {min(unknown)}; there are 1 to {max(ROWS)}")
    simulator, failed = Simulator(options), []
    rows = options.rows or sorted(ROWS)
    for row in rows:
        print(f"{row}. {ROWS[row].__doc__}")
        try:
            ROWS[row](Tour(simulator, row))
        except (Wrong, KeyError, IndexError, StopIteration, TypeError) as problem:
            print(f"      ✗ {problem!r}")
            failed.append(row)
    print(f"{len(rows) - len(failed)} of {len(rows)} rows as described")
    if failed:
        sys.exit(f"rows that differ: {', '.join(map(str, failed))}")


if __name__ == "__main__":
    main()
