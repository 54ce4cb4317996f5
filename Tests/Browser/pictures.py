"""Takes the pictures of the README: the grid of devices, and a device with what became of its pushes.

Usage: pictures.py BASE-URL DIRECTORY

The simulator must take any well-formed provider token; it is reset.
"""

import os
import sys
import time

from playwright.sync_api import expect, sync_playwright

from support import Browser, Simulator

APPS = [
    {"bundle": "com.example.news", "name": "News", "icon": "📰", "background-modes": ["remote-notification"]},
    {"bundle": "com.example.chat", "name": "Chat", "icon": "💬", "categories": [{"identifier": "message", "actions": [
        {"identifier": "reply", "title": "Reply", "input": {"button": "Send"}}]}]},
    {"bundle": "com.example.weather", "name": "Weather", "icon": "⛅️", "entitlements": ["time-sensitive"]},
    {"bundle": "com.example.parcels", "name": "Parcels", "icon": "📦", "purposes": ["alert", "activity-start"], "activities": [
        {"type": "Delivery", "title": "Arrives about {time}", "lines": ["{stops} stops before yours"], "leading": "🚚",
         "trailing": "{minutes} min", "progress": "share"}]},
    {"bundle": "com.example.bank", "name": "Bank", "icon": "🏦", "service-extension": {"set": {"body": "€48.20 at the bookshop"}}},
]
PEOPLE = ["Ada", "Grace", "Alan", "Hedy", "Edsger", "Radia", "Donald", "Margaret", "Tim", "Katherine", "Dennis", "Barbara"]
TEXTS = [
    ("com.example.news", "Bridge reopens", "The old bridge carries trams again from Monday."),
    ("com.example.chat", "Grace", "Are we still on for lunch?"),
    ("com.example.weather", "Rain soon", "Light rain from 14:10, for half an hour."),
    ("com.example.bank", "Card payment", "A payment was made."),
    ("com.example.news", "خبر عاجل", "وصل القطار الأول إلى المحطة الجديدة"),
    ("com.example.parcels", "Delivered", "Your parcel is with your neighbour."),
    ("com.example.chat", "Alan", "Send me the drawings when you can, please."),
]


class Scene(Simulator):
    """Simulator with devices that look used."""

    def reset(self):
        super().reset()
        for app in APPS:
            self.call("PUT", f"/api/apps/{app['bundle']}", {"environment": "sandbox", **app})

    def send(self, device, bundle, payload, kind="alert", purpose="alert", suffix="", **headers):
        token = next(entry["token"] for app in self.view(device)["apps"] if app["bundle"] == bundle
                     for entry in app["tokens"] if entry["purpose"] == purpose)
        self.push(token, payload, kind=kind, suffix=suffix, bundle=bundle, **headers)

    def alert(self, device, bundle, title, body, headers=None, **aps):
        self.send(device, bundle, {"aps": {"alert": {"title": title, "body": body}, "sound": "default", **aps}}, **(headers or {}))

    def start_delivery(self, device):
        self.send(device, "com.example.parcels", {"aps": {
            "timestamp": int(time.time()), "event": "start", "attributes-type": "Delivery", "attributes": {},
            "content-state": {"time": "14:20", "stops": 3, "minutes": 9, "share": 0.7},
            "alert": {"title": "On its way", "body": "Your parcel"}}},
            kind="liveactivity", purpose="activity-start", suffix=".push-type.liveactivity")

    def fill(self):
        """Devices for the grid."""
        bundles = [app["bundle"] for app in APPS]
        for number in range(42):
            name = f"{PEOPLE[number % len(PEOPLE)]}’s phone" + (f" {number // len(PEOPLE) + 1}" if number >= len(PEOPLE) else "")
            device = self.device(apps=bundles, name=name)
            if number % 5 == 2:
                self.act(device, "lock", on=True)
            if number % 9 == 4:
                self.act(device, "network", on=False)
            if number % 7 == 3:
                self.start_delivery(device)
            if number % 6 == 5:
                continue
            for step in range(1 + number % 3):
                bundle, title, body = TEXTS[(number * 3 + step) % len(TEXTS)]
                badge = {"badge": 1 + number % 4} if number % 2 == 0 else {}
                self.alert(device, bundle, title, body, **badge)


def grid(browser, scene, directory):
    scene.fill()
    page = browser.open("/#/devices", viewport={"width": 1280, "height": 760})
    expect(page.get_by_text("42 devices", exact=False)).to_be_visible()
    expect(page.locator(".card.empty:visible")).to_have_count(0)
    page.screenshot(path=os.path.join(directory, "page-devices.jpg"), type="jpeg", quality=88)


def device(browser, scene, directory):
    scene.reset()
    device = scene.device(apps=[app["bundle"] for app in APPS], name="Ada’s phone")
    settings = scene.view(device)["apps"][0]["settings"]
    for app in APPS:
        scene.act(device, "settings", app=app["bundle"], settings={**settings, "previews": "always"})
    scene.act(device, "lock", on=True)
    scene.act(device, "screen", on=True)
    scene.start_delivery(device)
    scene.alert(device, "com.example.chat", "Grace", "Are we still on for lunch?", category="message", badge=1)
    scene.alert(device, "com.example.bank", "Card payment", "(Encrypted)", **{"mutable-content": 1})
    scene.alert(device, "com.example.weather", "Storm warning", "Gusts up to 110 km/h from six.", badge=2,
                **{"interruption-level": "time-sensitive"})
    scene.act(device, "focus", focus={"name": "Work", "allowedApps": ["com.example.chat"], "allowsTimeSensitive": True})
    scene.alert(device, "com.example.news", "Bridge reopens", "The old bridge carries trams again from Monday.", badge=3)
    page = browser.open(f"/#/devices/{device}", viewport={"width": 1280, "height": 860})
    expect(page.locator(".verdict").get_by_text("The Focus silenced the notification")).to_be_visible()
    page.screenshot(path=os.path.join(directory, "page-device.jpg"), type="jpeg", quality=88)


def main():
    base, directory = sys.argv[1].rstrip("/"), sys.argv[2]
    os.makedirs(directory, exist_ok=True)
    scene = Scene(base)
    scene.reset()
    with sync_playwright() as playwright:
        browser = Browser(playwright, base, directory)
        grid(browser, scene, directory)
        device(browser, scene, directory)
        browser.close_pages()


if __name__ == "__main__":
    main()
