"""Drives the page of the device simulator in Chromium. Prints a line for each check; exit status 1 when one fails.

Usage: page_test.py BASE-URL SCREENSHOT-DIRECTORY [CHECK...]

The simulator must be empty and take any well-formed provider token. It is reset between checks. Needs Playwright,
axe and Chromium; `Deploy/install-dependencies.sh --test` installs them. CHROMIUM names another browser.
"""

import base64
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
import zlib
from urllib.parse import urlparse

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

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


def check_hint(browser, simulator):
    """An empty simulator shows how to push, and the copied command pushes."""
    page = browser.open()
    expect(page.get_by_role("heading", name="No devices yet")).to_be_visible()
    browser.inspect(page, "hint")
    page.get_by_role("button", name="Copy: With curl").click()
    command = page.evaluate("() => navigator.clipboard.readText()")
    status = simulator.call("GET", "/api/status")
    ports = [status[f"{name}Port"] for name in status["environments"]]
    assert any(f"https://127.0.0.1:{port}/" in command for port in ports), command
    servers = status["hints"].get("bootstrapServers")
    produce = page.get_by_label("Through Sluice, from Kafka", exact=True)
    expect(produce).to_contain_text(f"sluice produce --bootstrap-servers {servers} " if servers else "sluice produce --device-token")
    done = subprocess.run(["bash", "-c", f"{command} --silent --max-time 20"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The push has made a device, without a reload.
    expect(page.get_by_role("grid", name="Devices")).to_be_visible()
    expect(page.get_by_text("Hello", exact=False).first).to_be_visible()


def check_new_device(browser, simulator):
    """The dialog makes a device by keyboard alone, and leads to it."""
    simulator.call("PUT", f"/api/apps/{BUNDLE}", APP)
    page = browser.open()
    page.get_by_role("button", name="New device").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    browser.inspect(page, "new-device")
    dialog.get_by_label("Name").fill("Ada’s phone")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Ada’s phone", level=1)).to_be_visible()
    expect(page.get_by_label("Screen of Ada’s phone")).to_be_visible()


def check_banner(browser, simulator):
    """A push shows as banner, on the icon's badge and in the history with its steps; payloads are text."""
    device = simulator.device()
    page = browser.open(f"/#/devices/{device}")
    expect(page.get_by_text("No push has reached this device yet.")).to_be_visible()
    hostile = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
    simulator.push(simulator.token(device), alert("Storm warning", hostile, badge=3), collapse_id="storm")
    banner = page.get_by_role("group", name="Banner")
    expect(banner.get_by_text(hostile)).to_be_visible()
    expect(page.get_by_role("button", name="Page test, badge 3")).to_be_attached()
    assert page.evaluate("() => window.hurt") is None
    history = page.get_by_role("list", name="What happened")
    expect(history.get_by_text("Shown to the user")).to_be_visible()
    expect(history.get_by_text("A banner appeared, because the device is unlocked.")).to_be_visible()
    expect(history.get_by_text("documented").first).to_be_visible()
    expect(history.locator("pre").get_by_text('"Storm warning"')).to_be_visible()
    browser.inspect(page, "banner")
    # A push with the same identifier replaces the notification in place.
    simulator.push(simulator.token(device), alert("Storm over", "All clear"), collapse_id="storm")
    expect(banner.get_by_text("Storm over")).to_be_visible()
    page.get_by_role("button", name="Notification centre").first.click()
    centre = page.get_by_role("region", name="Notification centre")
    expect(centre.get_by_text("Storm over")).to_be_visible()
    expect(centre.get_by_text("Storm warning")).to_have_count(0)
    browser.inspect(page, "centre")
    centre.get_by_role("button", name="Expand").click()
    expect(page.get_by_role("dialog", name="Storm over").get_by_text("1 earlier one replaced")).to_be_visible()


def check_lock_screen(browser, simulator):
    """Lock screen, groups and right-to-left text; clearing a group leaves nothing."""
    device = simulator.device()
    simulator.act(device, "lock", on=True)
    page = browser.open(f"/#/devices/{device}")
    token = simulator.token(device)
    for number in range(3):
        simulator.push(token, alert("Ada", f"Message {number}", **{"thread-id": "ada"}))
    simulator.push(token, alert("خبر عاجل", "وصل القطار الأول إلى المحطة"))
    locked = page.get_by_role("list", name="Lock screen")
    # Previews are hidden while the device is locked, until the user's setting allows them.
    expect(locked.get_by_role("listitem")).to_have_count(4)
    expect(locked.get_by_text("Message 2")).to_have_count(0)
    settings = simulator.view(device)["apps"][0]["settings"]
    simulator.act(device, "settings", app=BUNDLE, settings={**settings, "previews": "always"})
    arabic = locked.get_by_text("وصل القطار")
    expect(arabic).to_be_visible()
    assert arabic.evaluate("(element) => getComputedStyle(element).direction") == "rtl"
    browser.inspect(page, "lock-screen")
    page.get_by_role("button", name="Unlock").click()
    page.get_by_role("button", name="Notification centre").first.click()
    centre = page.get_by_role("region", name="Notification centre")
    centre.get_by_role("button", name="Show all 3").click()
    expect(centre.get_by_text("Message 0")).to_be_visible()
    centre.get_by_role("button", name="Clear group").click()
    expect(centre.get_by_text("Message 2")).to_have_count(0)
    expect(arabic.or_(centre.get_by_text("وصل القطار"))).to_be_visible()
    centre.get_by_role("button", name="Clear all").click()
    expect(centre.get_by_text("No notifications")).to_be_visible()


def check_actions(browser, simulator):
    """A text reply becomes a response; a content extension shows its fields and what an action changes."""
    device = simulator.device()
    page = browser.open(f"/#/devices/{device}")
    token = simulator.token(device)
    simulator.push(token, alert("Grace", "Lunch?", category="message"), collapse_id="lunch")
    banner = page.get_by_role("group", name="Banner")
    banner.get_by_role("button", name="Expand").click()
    dialog = page.get_by_role("dialog", name="Grace")
    expect(dialog).to_be_focused()
    browser.inspect(page, "expanded")
    dialog.get_by_label("Reply").fill("Coming!")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("tab", name="Responses").click()
    expect(page.get_by_role("tabpanel").locator("pre").get_by_text('"userText": "Coming!"')).to_be_visible()
    browser.inspect(page, "responses")
    simulator.push(token, {**alert("Party", "Saturday", category="invitation"), "place": "Garden", "seats": 0.5}, collapse_id="party")
    page.get_by_role("group", name="Banner").get_by_role("button", name="Expand").click()
    dialog = page.get_by_role("dialog", name="Party")
    expect(dialog.get_by_text("Garden")).to_be_visible()
    expect(dialog.get_by_text("Saturday")).to_have_count(0)
    dialog.get_by_role("button", name="Going").click()
    expect(dialog.get_by_text("Going!")).to_be_visible()
    browser.inspect(page, "content-extension")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    # A button of the view sends what is typed in the view; the view says so before it closes.
    page.get_by_role("button", name="Notification centre").first.click()
    page.get_by_role("region", name="Notification centre").get_by_role("button", name="Expand").click()
    dialog.get_by_label("Remark").fill("With cake")
    dialog.get_by_role("button", name="Send remark").click()
    expect(dialog.get_by_text("Noted: With cake")).to_be_visible()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("tabpanel").locator("pre").get_by_text('"userText": "With cake"')).to_be_visible()


def check_service_extension(browser, simulator):
    """Text before and after the service extension, and a picture that it has fetched: small, then full."""
    device = simulator.device()
    with Pictures() as pictures:
        simulator.push(simulator.token(device), {
            **alert("Plain", "Text", **{"mutable-content": 1}), "picture": f"http://127.0.0.1:{pictures.port}/picture.png"})
        page = browser.open(f"/#/devices/{device}")
        result = page.get_by_role("region", name="Result on the device")
        expect(result.get_by_text("Before the service extension")).to_be_visible()
        expect(result.get_by_text("Changed: Plain")).to_be_visible()
        page.get_by_role("button", name="Notification centre").first.click()
        centre = page.get_by_role("region", name="Notification centre")
        thumbnail = centre.get_by_role("img", name="Attachment")
        expect(thumbnail).to_be_visible()
        assert thumbnail.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 2
        browser.inspect(page, "attachment")
        centre.get_by_role("button", name="Expand").click()
        expect(page.get_by_role("dialog").get_by_role("img", name="Attachment: image/png", exact=False)).to_be_visible()


def check_quiet_apps(browser, simulator):
    """Provisional permission asks later; the scheduled summary waits; the app's code sets badges and removes."""
    provisional = {"bundle": "com.example.quiet", "name": "Quiet", "environment": "sandbox", "permission": {"options": ["alert", "provisional"]}}
    simulator.call("PUT", f"/api/apps/{provisional['bundle']}", provisional)
    device = simulator.device(apps=(BUNDLE, provisional["bundle"]))
    quiet = next(app for app in simulator.view(device)["apps"] if app["bundle"] == provisional["bundle"])
    simulator.push(quiet["tokens"][0]["token"], alert("Trial", "Quietly"), bundle=provisional["bundle"])
    page = browser.open(f"/#/devices/{device}")
    expect(page.locator(".verdict").get_by_text("Provisional permission", exact=False)).to_be_visible()
    page.get_by_role("button", name="Notification centre").first.click()
    centre = page.get_by_role("region", name="Notification centre")
    browser.inspect(page, "provisional")
    centre.get_by_role("button", name="Keep").click()
    expect(centre.get_by_role("button", name="Keep")).to_have_count(0)
    settings = simulator.view(device)["apps"][0]["settings"]
    simulator.act(device, "settings", app=BUNDLE, settings={**settings, "scheduledSummary": True})
    simulator.push(simulator.token(device), alert("Later", "in the summary"))
    expect(centre.get_by_text("Scheduled summary")).to_be_visible()
    expect(centre.get_by_text("in the summary")).to_have_count(0)
    page.get_by_role("tab", name="Waiting").click()
    expect(page.get_by_role("region", name="Waiting for the summary").get_by_text("Page test")).to_be_visible()
    page.get_by_role("tab", name="Apps").click()
    panel = page.get_by_role("region", name="Page test")
    panel.get_by_role("button", name="The app’s code").click()
    panel.get_by_label("Badge").fill("7")
    panel.get_by_role("button", name="Set", exact=True).click()
    expect(panel.get_by_text("badge 7")).to_be_visible()
    panel.get_by_label("Attributes").fill('{"number": 7}')
    panel.get_by_label("Content state").fill('{"stops": 2, "minutes": 5, "share": 0.5}')
    panel.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("button", name="Expand Dynamic Island")).to_be_attached()
    browser.inspect(page, "code")


def check_not_shown(browser, simulator):
    """A denied app and a device without network: the page shows the reason, and the delivery afterwards."""
    device = simulator.device()
    token = simulator.token(device)
    page = browser.open(f"/#/devices/{device}")
    page.get_by_role("tab", name="Apps").click()
    page.get_by_role("button", name="Notification settings").click()
    page.get_by_role("switch", name="Allow notifications").click()
    expect(page.locator(".chip", has_text="denied")).to_be_visible()
    browser.inspect(page, "settings")
    simulator.push(token, alert("Never", "seen"))
    page.get_by_role("tab", name="What happened").click()
    expect(page.locator(".verdict").get_by_text("The user denied notifications, so nothing is shown.")).to_be_visible()
    page.get_by_role("tab", name="Apps").click()
    page.get_by_role("switch", name="Allow notifications").click()
    expect(page.locator(".chip", has_text="allowed")).to_be_visible()
    page.get_by_role("button", name="Network", exact=True).click()
    expect(page.get_by_text("Offline", exact=True).first).to_be_visible()
    for number in range(2):
        simulator.push(token, alert("Stored", f"number {number}"))
    cloud = page.get_by_role("button", name="APNs keeps 1 push for this device")
    expect(cloud).to_be_visible()
    cloud.click()
    panel = page.get_by_role("tabpanel")
    expect(panel.get_by_text("APNs stores the push, because the device has no network.")).to_be_visible()
    browser.inspect(page, "stored")
    page.get_by_role("button", name="Network", exact=True).click()
    expect(page.get_by_role("group", name="Banner").get_by_text("number 1")).to_be_visible()
    expect(cloud).to_have_count(0)
    page.get_by_role("tab", name="What happened").click()
    expect(page.get_by_text("A newer push took the place").first).to_be_visible()


def check_permission_and_call(browser, simulator):
    """The permission prompt and an incoming call wait for the user."""
    simulator.call("PUT", f"/api/apps/{ASKING['bundle']}", ASKING)
    device = simulator.device(apps=(BUNDLE, ASKING["bundle"]))
    page = browser.open(f"/#/devices/{device}")
    prompt = page.get_by_role("alertdialog")
    expect(prompt.get_by_text("“Asking” would like to send you notifications")).to_be_visible()
    browser.inspect(page, "permission")
    prompt.get_by_role("button", name="Allow", exact=True).click()
    expect(prompt).to_have_count(0)
    simulator.push(simulator.token(device, "voip"), {"caller": "Grace Hopper"}, kind="voip", suffix=".voip")
    call = page.get_by_role("alertdialog")
    expect(call.get_by_text("Grace Hopper")).to_be_visible()
    browser.inspect(page, "call")
    call.get_by_role("button", name="Decline").click()
    expect(call).to_have_count(0)


def check_live_activity(browser, simulator):
    """A Live Activity shows in the Dynamic Island, expanded while it alerts, and on the lock screen."""
    device = simulator.device()
    page = browser.open(f"/#/devices/{device}")
    simulator.push(simulator.token(device, "activity-start"), {"aps": {
        "timestamp": int(time.time()), "event": "start", "attributes-type": "Delivery", "attributes": {"number": 7},
        "content-state": {"stops": 3, "minutes": 9, "share": 0.5}, "alert": {"title": "On its way", "body": "Your parcel"}}},
        kind="liveactivity", suffix=".push-type.liveactivity")
    island = page.get_by_role("group", name="Dynamic Island")
    expect(island.get_by_text("3 stops")).to_be_visible()
    browser.inspect(page, "island")
    compact = page.get_by_role("button", name="Expand Dynamic Island")
    expect(compact.get_by_text("9 min")).to_be_visible()
    compact.click()
    expect(island).to_be_visible()
    island.get_by_role("button", name="Collapse Dynamic Island").click()
    expect(compact).to_be_visible()
    page.get_by_role("button", name="Lock", exact=True).click()
    activity = page.get_by_role("article", name="Live Activity")
    expect(activity.get_by_text("3 stops")).to_be_visible()
    browser.inspect(page, "activity")
    activity.get_by_role("button", name="Dismiss").click()
    expect(activity).to_have_count(0)


def check_switches(browser, simulator):
    """Each tab works by keyboard; switches, Focus and local notifications reach the simulator."""
    device = simulator.device()
    page = browser.open(f"/#/devices/{device}")
    page.get_by_role("tab", name="What happened").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Device")).to_be_focused()
    panel = page.get_by_role("tabpanel")
    panel.get_by_role("switch", name="Mute").click()
    panel.get_by_label("Region").fill("office")
    panel.get_by_role("button", name="Enter").click()
    expect(panel.get_by_text("Region: office")).to_be_visible()
    panel.get_by_label("Name").fill("Work")
    panel.get_by_role("button", name="Start Focus").click()
    expect(panel.get_by_role("button", name="End Focus")).to_be_visible()
    panel.get_by_label("Device language").select_option("de")
    browser.inspect(page, "device")
    state = wait_for(lambda: simulator.view(device)["state"], lambda state: state["language"] == "de")
    assert state["isMuted"] and state["region"] == "office" and state["focus"]["name"] == "Work", state
    simulator.push(simulator.token(device), alert("Quiet", "please"))
    page.get_by_role("tab", name="What happened").click()
    expect(page.locator(".verdict").get_by_text("The Focus silenced the notification; it is in the list.")).to_be_visible()
    page.get_by_role("tab", name="Tokens").click()
    token = simulator.token(device)
    page.get_by_role("button", name="Copy: Token").first.click()
    expect(page.get_by_text("Copied")).to_be_attached()
    assert page.evaluate("() => navigator.clipboard.readText()") in {entry["token"] for app in simulator.view(device)["apps"] for entry in app["tokens"]}
    browser.inspect(page, "tokens")
    page.get_by_role("tab", name="Waiting").click()
    form = page.get_by_role("region", name="New local notification")
    form.get_by_label("Title").fill("Morning")
    form.get_by_label("Seconds").fill("3600")
    form.get_by_role("button", name="Schedule").click()
    pending = page.get_by_role("region", name="Pending on the device")
    expect(pending.get_by_text("Morning")).to_be_visible()
    browser.inspect(page, "waiting")
    pending.get_by_role("button", name="Cancel").click()
    expect(pending).to_have_count(0)
    # A restored backup changes the tokens.
    page.get_by_role("tab", name="Device").click()
    panel.get_by_role("button", name="Restore backup").click()
    wait_for(lambda: simulator.token(device), lambda fresh: fresh != token)
    panel.get_by_role("button", name="Remove device").click()
    panel.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("heading", name="No devices yet")).to_be_visible()


def check_grid(browser, simulator):
    """The grid shows any of many devices, by scrolling, by keyboard and by search."""
    simulator.call("POST", "/api/devices", {"count": 3000, "apps": [BUNDLE]})
    device = simulator.device(name="Needle")
    simulator.push(simulator.token(device), alert("Rare words", "in a haystack"))
    page = browser.open()
    grid = page.get_by_role("grid", name="Devices")
    expect(grid.get_by_role("gridcell").first).to_be_visible()
    expect(page.get_by_text("3,001 devices", exact=False)).to_be_visible()
    browser.inspect(page, "grid")
    cells = grid.get_by_role("gridcell").count()
    assert cells < 150, f"{cells} cells are in the document"
    grid.focus()
    page.keyboard.press("Control+End")
    expect(grid.get_by_text("Needle")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Needle", level=1)).to_be_visible()
    page.go_back()
    # The grid is where the reader has left it.
    expect(grid.get_by_text("Needle")).to_be_visible()
    search = page.get_by_role("searchbox", name="Search devices")
    page.keyboard.press("/")
    expect(search).to_be_focused()
    for query in ("needle", "haystack", simulator.token(device)[:20]):
        search.fill(query)
        expect(page.get_by_text("1 device", exact=True)).to_be_visible()
        expect(grid.get_by_text("Needle")).to_be_visible()
    search.fill("nothing like this")
    expect(page.get_by_text("No device matches.")).to_be_visible()
    search.fill("")
    page.get_by_label("Show").select_option("unread")
    expect(page.get_by_text("1 device", exact=True)).to_be_visible()
    # The grid is live: another push changes the card without a reload.
    simulator.push(simulator.token(device), alert("Second", "just now"))
    expect(grid.get_by_text("just now", exact=False)).to_be_visible()


def check_pushes(browser, simulator):
    """The list of pushes is live and searched; a push opens with its details."""
    device = simulator.device()
    token = simulator.token(device)
    page = browser.open("/#/pushes")
    expect(page.get_by_text("No pushes yet.")).to_be_visible()
    for number in range(5):
        simulator.push(token, alert(f"Number {number}", "of five"))
    grid = page.get_by_role("grid", name="Pushes")
    expect(grid.get_by_role("row").nth(1).get_by_text("Number 4", exact=False).or_(grid.get_by_text("Number 4", exact=False))).to_be_visible()
    expect(grid.get_by_text("Number 0", exact=False)).to_be_visible()
    grid.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    detail = page.locator(".pushes-detail")
    expect(detail.get_by_text("Shown to the user")).to_be_visible()
    expect(detail.get_by_text("Acceptance is not delivery.", exact=False)).to_be_visible()
    browser.inspect(page, "pushes")
    search = page.get_by_role("searchbox", name="Search pushes")
    search.fill("number 2")
    expect(page.locator(".push-row[data-push]:visible")).to_have_count(1)
    push = simulator.call("GET", "/api/pushes?limit=1")[0]
    search.fill(push["apnsID"])
    expect(page.locator(".push-row[data-push]:visible")).to_have_count(1)
    search.fill("")
    page.get_by_label("Outcome").select_option("rejected")
    expect(page.get_by_text("No push matches.")).to_be_visible()
    page.get_by_label("Outcome").select_option("")
    # A chosen push that changes is drawn anew.
    page.goto(f"{browser.base}/#/pushes/{push['number']}")
    identifier = simulator.view(device)["apps"][0]["delivered"][0]["identifier"]
    simulator.act(device, "dismiss", app=BUNDLE, identifier=identifier)
    expect(detail.get_by_text("The notification is no longer on the device.")).to_be_visible()


def check_faults(browser, simulator):
    """Faults are shown as JSON; a mistake is reported beside the text; a preset that is saved is in force."""
    if not simulator.call("GET", "/api/status")["faults"]:
        raise Skipped("the simulator serves no faults")
    page = browser.open("/#/faults", is_watched=False)
    editor = page.get_by_role("textbox", name="Faults as JSON")
    force = page.get_by_role("region", name="In force now")
    save = page.get_by_role("button", name="Save")
    expect(editor).not_to_have_value("")
    former = editor.input_value()
    try:
        browser.inspect(page, "faults")
        editor.fill("{ not json")
        save.click()
        expect(page.get_by_role("alert").get_by_text("This is not JSON", exact=False)).to_be_visible()
        editor.fill('{"nonsense": 1}')
        save.click()
        expect(page.get_by_role("alert").get_by_text("nonsense", exact=False)).to_be_visible()
        browser.inspect(page, "faults-mistake")
        editor.fill(former)
        presets = page.get_by_label("Preset").locator("option").all_text_contents()
        for name in presets:
            page.get_by_label("Preset").select_option(name)
            page.get_by_role("button", name="Add to the text").click()
        save.click()
        expect(page.get_by_text("Saved.")).to_be_visible()
        expect(force.get_by_text("stream-limit")).to_be_visible()
        browser.inspect(page, "faults-in-force")
        kept = simulator.call("GET", "/api/faults")["timeline"]["faults"]
        assert len(kept) == len(json.loads(former)["faults"]) + len(presets), kept
    finally:
        editor.fill(former)
        save.click()
    expect(force.get_by_text("No fault is in force.")).to_be_visible()


def check_apps_and_rules(browser, simulator):
    """Apps are edited as JSON; each rule has a mark, and a German sentence."""
    page = browser.open(f"/#/apps/{BUNDLE}")
    editor = page.get_by_role("textbox", name="Declaration as JSON")
    expect(editor).not_to_have_value("")
    browser.inspect(page, "apps")
    changed = json.loads(editor.input_value())
    changed["name"] = "Renamed"
    editor.fill(json.dumps(changed))
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("link", name="Renamed", exact=False)).to_be_visible()
    simulator.call("PUT", f"/api/apps/{BUNDLE}", APP)
    page.goto(f"{browser.base}/#/rules/accepted")
    expect(page.get_by_role("row", name="accepted", exact=False).first).to_be_visible()
    browser.inspect(page, "rules")
    rules = [rule["rule"] for rule in simulator.call("GET", "/api/rules")]
    assert page.locator("tbody tr").count() == len(rules)
    translated = page.evaluate("async () => Object.keys((await import('/rules-de.js')).default)")
    assert set(rules) == set(translated), f"German sentences differ: {set(rules) ^ set(translated)}"
    tables = page.evaluate("async () => [Object.keys((await import('/words-en.js')).default), Object.keys((await import('/words-de.js')).default)]")
    assert set(tables[0]) == set(tables[1]), f"texts differ: {set(tables[0]) ^ set(tables[1])}"


def check_language_and_colours(browser, simulator):
    """German follows the browser; language and colours are chosen on the page and last."""
    device = simulator.device()
    page = browser.open(f"/#/devices/{device}", locale="de-DE")
    expect(page.get_by_role("tab", name="Was geschah")).to_be_visible()
    assert page.evaluate("() => document.documentElement.lang") == "de"
    browser.inspect(page, "german")
    page.get_by_label("Sprache").select_option("en")
    expect(page.get_by_role("tab", name="What happened")).to_be_visible()
    page.get_by_label("Colours").select_option("dark")
    dark = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Colours").select_option("light")
    light = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    expect(page.get_by_role("tab", name="What happened")).to_be_visible()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "light"
    # A narrow window shows the same without scrolling sideways.
    page.set_viewport_size({"width": 390, "height": 844})
    browser.inspect(page, "narrow")
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 390, f"the page is {wide} pixels wide"
    page.emulate_media(reduced_motion="reduce")
    duration = page.evaluate("() => parseFloat(getComputedStyle(document.querySelector('button')).transitionDuration)")
    assert duration <= 0.001, f"transitions take {duration} s with reduced motion"


def check_connection(browser, simulator):
    """A simulator that stops is reported; when it is back the page resumes, and shows what it has missed."""
    device = simulator.device()
    relay = Relay(simulator.base)
    page = browser.open(f"/#/devices/{device}", base=f"http://127.0.0.1:{relay.port}", is_watched=False)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    relay.close()
    expect(page.get_by_role("alert")).to_contain_text("The simulator does not answer")
    browser.inspect(page, "gone")
    simulator.push(simulator.token(device), alert("Missed", "while away"))
    relay.open()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_role("list", name="What happened").get_by_text("Missed", exact=False).first).to_be_visible()
    simulator.reset()
    expect(page.get_by_text("Not found")).to_be_visible()
    relay.close()


def wait_for(read, holds, seconds=30):
    """Reads until a condition holds."""
    limit = time.monotonic() + seconds
    while True:
        value = read()
        if holds(value):
            return value
        assert time.monotonic() < limit, f"still {value} after {seconds} s"
        time.sleep(0.05)


def main():
    base, directory, *names = sys.argv[1:]
    base = base.rstrip("/")
    os.makedirs(directory, exist_ok=True)
    checks = {name.removeprefix("check_"): value for name, value in globals().items() if name.startswith("check_")}
    unknown = [name for name in names if name not in checks]
    if unknown:
        sys.exit(f"no such checks: {', '.join(unknown)}; known: {', '.join(checks)}")
    failed = 0
    simulator = Simulator(base)
    # Long enough for a busy machine; conditions that hold cost no time.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = Browser(playwright, base, directory)
        for name, check in checks.items():
            if names and name not in names:
                continue
            browser.faults = []
            started = time.monotonic()
            try:
                simulator.reset()
                if name not in ("hint", "new_device"):
                    simulator.call("PUT", f"/api/apps/{BUNDLE}", APP)
                check(browser, simulator)
                assert not browser.faults, "; ".join(browser.faults[:5])
                print(f"ok   {name} ({time.monotonic() - started:.1f} s)", flush=True)
            except Skipped as reason:
                print(f"skip {name}: {reason}", flush=True)
            except Exception as error:
                failed += 1
                if browser.contexts and browser.contexts[-1].pages:
                    browser.shot(browser.contexts[-1].pages[0], f"failed-{name}")
                if isinstance(error, urllib.error.HTTPError):
                    error.msg += f": {error.read().decode(errors='replace')}"
                place = traceback.extract_tb(error.__traceback__)
                line = next((frame.lineno for frame in reversed(place) if frame.name.startswith("check_")), place[-1].lineno)
                text = str(error).split("Aria snapshot")[0].strip()
                print(f"FAIL {name}, line {line}: {text}", flush=True)
            browser.close_pages()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
