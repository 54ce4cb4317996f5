"""Parts of the browser tests: the simulator's interface, a relay, a web server, and pages of Chromium."""

import base64
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
import zlib
from urllib.parse import urlparse

from axe_playwright_python.sync_playwright import Axe

BUNDLE = "com.example.page"
APP = {
    "bundle": BUNDLE, "name": "Page test", "icon": "📮", "environment": "sandbox",
    "purposes": ["alert", "voip", "activity-start"], "background-modes": ["remote-notification", "voip"],
    "foreground": ["banner", "list", "sound", "badge"],
    "categories": [
        {"identifier": "message", "actions": [
            {"identifier": "reply", "title": "Reply", "input": {"button": "Send", "placeholder": "Message"}},
            {"identifier": "delete", "title": "Delete", "options": ["destructive"]}]},
        {"identifier": "invitation", "actions": [
            {"identifier": "going", "title": "Going", "shows": "Going!", "then": "stay"},
            {"identifier": "note", "title": "Note", "shows": "Noted: {text}", "input": {"button": "Send"}}]},
    ],
    "content-extensions": [{
        "categories": ["invitation"], "title": "Invitation", "size-ratio": 0.5, "hides-default-content": True,
        "interactive": True, "fields": [
            {"kind": "text", "label": "Place", "value": "{place}"}, {"kind": "progress", "label": "Seats", "value": "{seats}"},
            {"kind": "input", "label": "Remark"}, {"kind": "button", "label": "Send remark", "value": "note"}]}],
    "service-extension": {"set": {"title": "Changed: {title}"}, "attachment-member": "picture"},
    "activities": [{"type": "Delivery", "title": "Parcel {number}", "lines": ["{stops} stops"], "leading": "🚚",
                    "trailing": "{minutes} min", "progress": "share"}],
}
ASKING = {"bundle": "com.example.asking", "name": "Asking", "environment": "sandbox", "permission": {"answer": "wait"}}


class Skipped(Exception):
    """The simulator lacks what the check needs."""


class Simulator:
    """Interface of the simulator under test."""

    def __init__(self, base):
        self.base = base.rstrip("/")

    def call(self, method, path, value=None):
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method)
        if method != "GET":
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def reset(self):
        self.call("POST", "/api/reset", {})

    def device(self, apps=(BUNDLE,), name="Test phone"):
        return self.call("POST", "/api/devices", {"name": name, "apps": list(apps)})["devices"][0]

    def act(self, device, action, **members):
        return self.call("POST", f"/api/devices/{device}/actions", {"action": action, **members})

    def view(self, device):
        return self.call("GET", f"/api/devices/{device}")

    def token(self, device, purpose="alert"):
        for app in self.view(device)["apps"]:
            for token in app["tokens"]:
                if token["purpose"] == purpose and app["bundle"] == BUNDLE:
                    return token["token"]
        raise AssertionError(f"device {device} has no token for {purpose}")

    def push(self, token, payload, kind="alert", suffix="", bundle=BUNDLE, **headers):
        """Pushes as a provider does: over HTTP/2 and TLS, with curl."""
        port = self.call("GET", "/api/status")["sandboxPort"]
        command = ["curl", "--silent", "--show-error", "--insecure", "--http2", "--max-time", "20", "--write-out", "%{http_code}",
                   f"https://127.0.0.1:{port}/3/device/{token}", "--header", f"authorization: bearer {provider_token()}",
                   "--header", f"apns-topic: {bundle}{suffix}", "--header", f"apns-push-type: {kind}",
                   "--data-binary", json.dumps(payload)]
        for name, value in headers.items():
            command += ["--header", f"apns-{name.replace('_', '-')}: {value}"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert answer.endswith("200"), f"the push was answered with {answer}"


def provider_token():
    """Well-formed token of no real key."""
    def part(data):
        return base64.urlsafe_b64encode(data).decode().rstrip("=")
    head = part(json.dumps({"alg": "ES256", "kid": "ABCDE12345"}).encode())
    claims = part(json.dumps({"iss": "TEAMID1234", "iat": int(time.time())}).encode())
    return f"{head}.{claims}.{part(os.urandom(64))}"


def alert(title, body, **aps):
    return {"aps": {"alert": {"title": title, "body": body}, "sound": "default", **aps}}


class Pictures:
    """Web server with a picture of 2 × 1 pixels."""

    def __enter__(self):
        rows = b"\0\x12\x60\x5f\xd9\x53\x4a"
        def chunk(kind, data):
            return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        picture = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes([0, 0, 0, 2, 0, 0, 0, 1, 8, 2, 0, 0, 0]))
                   + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "image/png")
                self.send_header("Content-Length", str(len(picture)))
                self.end_headers()
                self.wfile.write(picture)

            def log_message(self, *values):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *values):
        self.server.shutdown()
        self.server.server_close()


class Relay:
    """Relays connections to the simulator until it is closed, as a simulator that stops."""

    def __init__(self, base):
        address = urlparse(base)
        self.target = (address.hostname, address.port)
        self.port = 0
        self.open()

    def open(self):
        self.sockets = []
        self.server = socket.create_server(("127.0.0.1", self.port))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.server,), daemon=True).start()

    def accept(self, server):
        while True:
            try:
                near, _ = server.accept()
                far = socket.create_connection(self.target)
            except OSError:
                return
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def copy(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for end in self.sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


class Browser:
    """Pages that fail the check on a script's error, a refused resource or a request to another origin."""

    def __init__(self, playwright, base, directory):
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
        self.browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        self.base = base
        self.directory = directory
        self.faults = []
        self.contexts = []

    def open(self, path="/", base=None, is_watched=True, **options):
        options = {"viewport": {"width": 1440, "height": 900}, "locale": "en-GB", **options}
        context = self.browser.new_context(**options)
        context.set_default_timeout(30_000)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=base or self.base)
        self.contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        if is_watched:
            page.on("console", lambda message: self.faults.append(f"console: {message.text}") if message.type == "error" else None)
        origin = base or self.base
        page.on("request", lambda request: None if request.url.startswith((origin, "data:")) else self.faults.append(f"request: {request.url}"))
        page.goto((base or self.base) + path)
        return page

    def close_pages(self):
        for context in self.contexts:
            context.close()
        self.contexts = []

    def shot(self, page, name):
        page.screenshot(path=os.path.join(self.directory, f"{name}.png"))

    def inspect(self, page, name):
        """Runs axe in both colour schemes, and takes pictures."""
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            # A frame later the colours are those of the scheme.
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            self.shot(page, f"{name}-{scheme}")
            found = Axe().run(page).response["violations"]
            texts = [f"{fault['id']} at {node['target']}: {node.get('failureSummary', '')[:300]}" for fault in found for node in fault["nodes"]]
            assert not texts, f"axe finds faults on {name} ({scheme}): " + "; ".join(texts[:5])
        page.emulate_media(color_scheme="light", reduced_motion="no-preference")


def wait_for(read, holds, seconds=30):
    """Reads until a condition holds."""
    limit = time.monotonic() + seconds
    while True:
        value = read()
        if holds(value):
            return value
        assert time.monotonic() < limit, f"still {value} after {seconds} s"
        time.sleep(0.05)
