// A device: its screen, its switches, and what became of its pushes.
import { announce, h, patch } from "./dom.js";
import { api } from "./api.js";
import { icon } from "./icons.js";
import { Refresher } from "./live.js";
import { setClock } from "./time.js";
import { t } from "./words.js";
import { phone, findNotification } from "./phone.js";
import { shownTexts } from "./notification.js";
import { pushItem } from "./history.js";
import { appsTab, deviceTab } from "./controls.js";
import { responsesTab, tokensTab, waitingTab } from "./lists.js";

const tabs = {
  history: "tabHistory", device: "tabDevice", apps: "tabApps", tokens: "tabTokens", waiting: "tabWaiting",
    responses: "tabResponses",
};
let lastTab = "history";

export function openDevice(root, page, id) {
  let device = null;
  let pushes = [];
  let fault = null;
  let isClosed = false;
  let announced = null;
  const ui = { centre: false, expanded: null, farewell: null, groups: new Set(), island: null, returnTo: null,
    open: undefined, tab: lastTab, app: null, form: {} };
  const refresher = new Refresher(load, 120);
  const clock = setInterval(() => device && draw(), 1_000);
  const hooks = { act, draw };

  draw();
  refresher.ask();

  async function load() {
    try {
      const found = await api.device(id);
      const list = await api.pushes({ device: found.id, limit: 60 });
      if (isClosed) return;
      accept(found);
      pushes = list;
      // The newest push is open at first, so that its steps are seen without a click.
      if (ui.open === undefined && list.length > 0) ui.open = list[0].number;
      fault = null;
    } catch (error) {
      if (isClosed || error.status === 0) return;
      fault = error.status === 404 ? t("notFound") : t("failed", error.message);
      device = null;
    }
    draw();
  }

  function accept(found) {
    const former = device;
    device = found;
    setClock(found.now);
    const entry = found.banner ?? found.lockScreen[0];
    const key = entry ? `${entry.app} ${entry.identifier} ${findNotification(found, entry)?.notification.at}` : "";
    if (announced !== null && entry && key !== announced) {
      const shown = findNotification(found, entry);
      if (shown) {
        const texts = shownTexts(shown.app, shown.notification);
        announce(t("announceNew", shown.app.name, [texts.title, texts.body].filter(Boolean).join(", ")));
      }
    }
    announced = key;
    if (ui.expanded && !findNotification(found, ui.expanded)) ui.expanded = null;
    if (!former) return;
    if (found.call && !former.call) announce(`${t("incomingCall")}: ${page.appName(found.call.app)}`);
    const asking = found.apps.find((app) => app.isAsking);
    if (asking && !former.apps.some((app) => app.isAsking)) announce(t("wouldLike", asking.name));
  }

  /** Sends an action. `done` runs before the new state is drawn. */
  async function act(action, done) {
    try {
      const found = await api.act(device.id, action);
      if (isClosed) return false;
      done?.();
      if (action.action === "lock") ui.centre = false;
      accept(found);
      draw();
      return true;
    } catch (error) {
      page.fail(error);
      return false;
    }
  }

  function draw() {
    if (isClosed) return;
    if (!device) {
      patch(root, h("div", { key: "device", class: "sheet" }, backLink(), h("h1", {}, t("device")),
        h("p", { role: fault ? "alert" : null }, fault ?? t("loading"))));
      return;
    }
    patch(root, h("div", { key: "device", class: "device" },
      h("div", { class: "device-side" },
        h("div", { class: "device-head" }, backLink(), h("h1", { dir: "auto" }, device.name),
          h("span", { class: `state-chip ${device.isOnline ? "on" : ""}` },
            device.isOnline ? t("online") : t("offline"))),
        cloud(), phone(device, ui, hooks), quickSwitches()),
      h("div", { class: "device-main" },
        h("div", { class: "tabs", role: "tablist", "aria-label": t("tabs"), on: { keydown: moveTab } },
          Object.keys(tabs).map((name) =>
            h("button", { key: name, id: `tab-${name}`, role: "tab",
              "aria-selected": ui.tab === name ? "true" : "false",
              "aria-controls": "tab-panel", tabindex: ui.tab === name ? "0" : "-1",
                on: { click: () => chooseTab(name) } },
            t(tabs[name]), tabCount(name)))),
        h("div", { id: "tab-panel", key: ui.tab, class: "tab-panel", role: "tabpanel",
          "aria-labelledby": `tab-${ui.tab}`, tabindex: "0" },
          panel()))));
  }

  function backLink() {
    return h("a", { class: "back", href: "#/devices", "aria-label": t("backToDevices"), title: t("backToDevices") },
      icon("back"));
  }

  function cloud() {
    const count = device.stored.length;
    if (count === 0) return null;
    return h("button", { key: "cloud", class: "cloud", on: { click: () => chooseTab("waiting") } }, icon("cloud"),
      t("cloud", t("pushCount", count)));
  }

  function tabCount(name) {
    const count = {
      waiting: device.stored.length + device.summary.length + device.apps.reduce((sum, app) => sum + app.pending.length,
        0),
      responses: device.apps.reduce((sum, app) => sum + app.responses.length, 0),
    }[name];
    return count > 0 && h("span", { class: "count" }, count);
  }

  function panel() {
    switch (ui.tab) {
      case "device": return deviceTab(device, page, ui, { ...hooks, remove });
      case "apps": return appsTab(device, page, ui, hooks);
      case "tokens": return tokensTab(device, page);
      case "waiting": return waitingTab(device, page, ui, hooks);
      case "responses": return responsesTab(device);
      default:
        return pushes.length === 0 ? h("p", { class: "none" }, t("noPushes"))
          : [h("h2", { key: "title", class: "unseen" }, t("tabHistory")),
            h("ul", { key: "list", class: "push-items", "aria-label": t("tabHistory") },
            pushes.map((push) => pushItem(push, device, page, ui, draw)))];
    }
  }

  function quickSwitches() {
    const state = device.state;
    const tile = (name, label, isOn, action) =>
      h("button", { key: label, class: "tile", "aria-pressed": isOn ? "true" : "false",
        on: { click: () => act(action) } }, icon(name), h("span", {}, label));
    return h("div", { class: "tiles", role: "group", "aria-label": t("switches") },
      tile("power", t("power"), state.isPoweredOn, { action: "power", on: !state.isPoweredOn }),
      tile("network", t("network"), state.hasNetwork, { action: "network", on: !state.hasNetwork }),
      tile("airplane", t("airplane"), state.isInAirplaneMode, { action: "airplane", on: !state.isInAirplaneMode }),
      tile("lock", t("lockSwitch"), state.isLocked, { action: "lock", on: !state.isLocked }),
      tile("screen", t("screenSwitch"), state.isScreenOn, { action: "screen", on: !state.isScreenOn }),
      tile("mute", t("mute"), state.isMuted, { action: "mute", on: !state.isMuted }),
      tile("battery", t("lowPower"), state.isInLowPowerMode, { action: "low-power", on: !state.isInLowPowerMode }),
      tile("focus", t("focus"), state.focus !== undefined, state.focus ? { action: "focus" }
        : { action: "focus", focus: { name: t("focus"), allowedApps: [], allowsTimeSensitive: true } }));
  }

  function chooseTab(name) {
    ui.tab = name;
    lastTab = name;
    draw();
  }

  function moveTab(event) {
    const names = Object.keys(tabs);
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    let index = names.indexOf(ui.tab);
    if (event.key in steps) index = (index + steps[event.key] + names.length) % names.length;
    else if (event.key === "Home") index = 0;
    else if (event.key === "End") index = names.length - 1;
    else return;
    event.preventDefault();
    chooseTab(names[index]);
    document.getElementById(`tab-${names[index]}`).focus();
  }

  async function remove() {
    // A load after the removal would find no device.
    refresher.close();
    try {
      await refresher.running;
      await api.removeDevice(id);
      location.hash = "#/devices";
    } catch (error) {
      refresher.open();
      page.fail(error);
    }
  }

  return {
    events(list) {
      if (list.some((event) => device && event.device === device.id)) refresher.ask();
    },
    resync: () => refresher.ask(),
    close() {
      isClosed = true;
      clearInterval(clock);
      refresher.close();
    },
  };
}
