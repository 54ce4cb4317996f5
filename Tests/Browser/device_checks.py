"""Checks of a device: its screen, its switches, and what became of its pushes."""

import time

from playwright.sync_api import expect

from support import alert, APP, ASKING, BUNDLE, Pictures, wait_for


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
    # A button of the view sends what is typed in the view; the view shows the answer before it closes.
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
