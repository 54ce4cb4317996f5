"""Checks of the lists, the editors and the frame of the page."""

import json
import subprocess

from playwright.sync_api import expect

from support import alert, APP, BUNDLE, Relay, Skipped


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
    expect(grid.get_by_text("Number 4", exact=False)).to_be_visible()
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
    widest = page.evaluate("""() => {
        const out = (one) => one.getBoundingClientRect().right > 391;
        return [...document.querySelectorAll("body *")]
            .filter((one) => out(one) && ![...one.children].some(out) && !one.closest("nav,.tabs"))
            .map((one) => `${one.tagName}.${one.className} ${Math.round(one.getBoundingClientRect().right)} ${one.textContent.trim().slice(0, 40)}`);
    }""")[:12]
    assert wide <= 390, f"the page is {wide} pixels wide, because of {widest}"
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
