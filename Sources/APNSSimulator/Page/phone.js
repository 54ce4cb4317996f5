// A device as its user sees it.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { appIcon, hueOf } from "./parts.js";
import { activityCard, byRelevance, island } from "./activity.js";
import { banner, card, centre, expandedView, summaryCard } from "./notification.js";
import { deviceDate, deviceTime, simulatorNow } from "./time.js";
import { t } from "./words.js";

/** Finds the app and the notification of an entry on a surface. */
export function findNotification(device, entry) {
  const app = device.apps.find((candidate) => candidate.bundle === entry.app);
  const notification = app?.delivered.find((candidate) => candidate.identifier === entry.identifier);
  return notification ? { app, notification } : null;
}

/**
 * @param {object} device as `GET /api/devices/{id}` describes it.
 * @param {object} ui state of the page: `centre`, `expanded`, `groups`, `island`.
 * @param {{act: (action: object) => void, draw: () => void}} hooks
 */
export function phone(device, ui, hooks) {
  const state = device.state;
  const isDark = !state.isPoweredOn || (!state.isScreenOn && !state.isLocked);
  return h("section", { class: "phone", "aria-label": t("screenOf", device.name), vars: { "--hue": hueOf(device.id) } },
    h("div", { class: "phone-key", "aria-hidden": "true" }),
    h("div", { class: `screen ${state.isPoweredOn && !state.isScreenOn ? "dim" : ""} ${isDark ? "dark" : ""}` },
      state.isPoweredOn ? lit(device, ui, hooks) : off(hooks)));
}

function off(hooks) {
  return h("div", { key: "off", class: "off" }, h("p", {}, t("off")),
    h("button", { class: "pill", on: { click: () => hooks.act({ action: "power", on: true }) } }, icon("power"),
      t("switchOn")));
}

function lit(device, ui, hooks) {
  const state = device.state;
  const front = state.isLocked ? undefined : device.apps.find((app) => app.state === "foreground");
  const asking = state.isLocked ? undefined : device.apps.find((app) => app.isAsking);
  const shown = device.banner && !state.isLocked && (device.banner.until ?? Infinity) > simulatorNow()
    ? findNotification(device, device.banner) : null;
  const expanded = ui.expanded ? findNotification(device, ui.expanded) : ui.farewell;
  const covered = Boolean(device.call || asking || expanded);
  return [
    statusBar(device, ui, hooks),
    h("div", { key: "surface", class: "surface", inert: covered || ui.centre },
      state.isLocked ? lockScreen(device, ui, hooks) : front ? inFront(device, front, hooks)
        : homeScreen(device, hooks)),
    !state.isLocked && !ui.centre && shown && h("div", { key: "banner", class: "banner-place", inert: covered },
      banner(device, shown.app, shown.notification, ui, hooks)),
    ui.centre && h("div", { key: "centre", class: "centre-place", inert: covered }, centre(device, ui, hooks)),
    expanded && h("div", { key: "expanded", class: "cover" },
      expandedView(device, expanded.app, expanded.notification, ui, hooks)),
    asking && h("div", { key: "asking", class: "cover middle" }, prompt(asking, hooks)),
    device.call && h("div", { key: "call", class: "cover call" }, call(device, hooks)),
  ];
}

function statusBar(device, ui, hooks) {
  const state = device.state;
  return h("div", { key: "status", class: "status" },
    h("button", { class: "status-time", "aria-label": t("notificationCentre"),
      "aria-expanded": ui.centre ? "true" : "false",
      title: t("notificationCentre"), on: { click: () => { ui.centre = !ui.centre; hooks.draw(); } } },
    h("span", {}, deviceTime(simulatorNow(), state.timeZoneMinutes)), icon("more")),
    state.hasDynamicIsland ? island(device, ui, hooks) : h("span", { class: "no-island" }),
    h("span", { class: "status-icons", role: "img", "aria-label": statusText(device) },
      state.focus && icon("focus"), state.isMuted && icon("mute"),
      state.isInAirplaneMode ? icon("airplane") : state.hasNetwork && icon("network"),
      icon(state.isCharging ? "charging" : "battery", { class: `icon ${state.isInLowPowerMode ? "low" : ""}` })));
}

function statusText(device) {
  const state = device.state;
  const list = [device.isOnline ? t("online") : t("offline")];
  if (state.focus) list.push(`${t("focus")}: ${state.focus.name}`);
  if (state.isMuted) list.push(t("mute"));
  if (state.isInAirplaneMode) list.push(t("airplane"));
  if (state.isInLowPowerMode) list.push(t("lowPower"));
  if (state.isCharging) list.push(t("charging"));
  return list.join(", ");
}

function lockScreen(device, ui, hooks) {
  const state = device.state;
  const entries = device.lockScreen.map((entry) => findNotification(device, entry)).filter(Boolean);
  const activities = device.apps.flatMap((app) => app.activities.filter((activity) => activity.state !== "dismissed")
    .map((activity) => ({ app, activity })))
    .sort((a, b) => byRelevance(a.activity, b.activity));
  return h("div", { key: "lock", class: "lock-screen" },
    h("div", { class: "lock-clock" }, icon("lock"),
      h("div", { class: "lock-date" }, deviceDate(simulatorNow(), state.timeZoneMinutes)),
      h("div", { class: "lock-time" }, deviceTime(simulatorNow(), state.timeZoneMinutes))),
    h("div", { class: "lock-list", role: "list", tabindex: "0", "aria-label": t("lockScreen") },
      activities.map(({ app, activity }) =>
        h("div", { key: `activity ${activity.id}`, role: "listitem" }, activityCard(app, activity, hooks))),
      entries.map(({ app, notification }) =>
        h("div", { key: `${app.bundle} ${notification.identifier}`, role: "listitem" },
          card(device, app, notification, ui, hooks))),
      device.summary.length > 0 && h("div", { key: "summary", role: "listitem" }, summaryCard(device))),
    h("div", { class: "lock-foot" },
      !state.isScreenOn && h("button",
        { key: "wake", class: "pill", on: { click: () => hooks.act({ action: "screen", on: true }) } },
        icon("screen"), t("wake")),
      h("button", { key: "unlock", class: "pill", on: { click: () => hooks.act({ action: "lock", on: false }) } },
        icon("unlock"), t("unlock"))));
}

function homeScreen(device, hooks) {
  return h("div", { key: "home", class: "home-screen" },
    h("ul", { class: "icons", "aria-label": t("homeScreen") },
      device.apps.map((app) => h("li", { key: app.bundle },
        h("button", { class: "home-icon", "aria-label": iconLabel(app), title: app.bundle,
          on: { click: () => hooks.act({ action: "launch", app: app.bundle }) } },
        h("span", { class: "icon-holder" }, appIcon(app.name, app.icon, app.bundle),
          app.badge > 0 && h("span", { class: "badge", "aria-hidden": "true" },
            app.badge > 9_999 ? "9999+" : app.badge)),
        h("span", { class: "icon-name", dir: "auto" }, app.name))))),
    !device.state.isScreenOn && h("button", { key: "wake", class: "pill wake",
      on: { click: () => hooks.act({ action: "screen", on: true }) } },
      icon("screen"), t("wake")));
}

function iconLabel(app) {
  const parts = [app.name];
  if (app.badge > 0) parts.push(t("badgeOf", app.badge));
  parts.push(t(`state-${app.state}`));
  return parts.join(", ");
}

function inFront(device, app, hooks) {
  const response = app.responses[0];
  return h("div", { key: `app ${app.bundle}`, class: "app-screen" },
    h("div", { class: "app-body" },
      appIcon(app.name, app.icon, app.bundle, "large"),
      h("p", { class: "app-title", dir: "auto" }, app.name),
      h("p", { class: "app-note" }, t("appInFront", app.name)),
      response && h("div", { class: "card-note" }, h("strong", {}, t("lastResponse")),
        h("code", {}, response.action.replace("com.apple.", "")),
          response.userText && h("q", { dir: "auto" }, response.userText))),
    h("button", { class: "home-bar", "aria-label": t("goHome"), title: t("goHome"),
      on: { click: () => hooks.act({ action: "home", app: app.bundle }) } }, h("span", { "aria-hidden": "true" })));
}

function prompt(app, hooks) {
  return h("div", { class: "prompt", role: "alertdialog", "aria-labelledby": "prompt-title",
    "aria-describedby": "prompt-text" },
    h("h2", { id: "prompt-title", dir: "auto" }, t("wouldLike", app.name)),
      h("p", { id: "prompt-text" }, t("promptText")),
    h("div", { class: "prompt-buttons" },
      h("button", { on: { click: () => hooks.act({ action: "answer", app: app.bundle, on: false }) } }, t("dontAllow")),
      h("button", { class: "strong", on: { click: () => hooks.act({ action: "answer", app: app.bundle, on: true }) } },
        t("allow"))));
}

/** Caller's name: the payload's own members, as apps name them. */
function caller(payload) {
  for (const name of ["caller", "callerName", "caller-name", "handle", "from", "name", "title"]) {
    if (typeof payload?.[name] === "string") return payload[name];
  }
  return null;
}

function call(device, hooks) {
  const app = device.apps.find((candidate) => candidate.bundle === device.call.app);
  const name = app?.name ?? device.call.app;
  return h("div", { class: "call-view", role: "alertdialog", "aria-labelledby": "call-title" },
    appIcon(name, app?.icon, device.call.app, "large"),
    h("h2", { id: "call-title" }, h("span", { class: "call-kind" }, t("incomingCall")),
      h("span", { dir: "auto" }, caller(device.call.payload) ?? name)),
    h("p", { dir: "auto" }, name),
    h("div", { class: "call-buttons" },
      h("button", { class: "decline", on: { click: () => hooks.act({ action: "call", on: false }) } }, icon("phone"),
        t("decline")),
      h("button", { class: "accept", on: { click: () => hooks.act({ action: "call", on: true }) } }, icon("phone"),
        t("accept"))));
}
