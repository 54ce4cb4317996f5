// Switches of a device and settings of its apps.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { appIcon, chooser, copyButton, toggle } from "./parts.js";
import { t } from "./words.js";
import { codeForm } from "./code.js";

function languageOptions(device, page) {
  const list = new Set(["en", "de", "fr", "es", "ar", "he", "ja", "zh-Hans", device.state.language]);
  for (const app of page.apps.values()) for (const language of Object.keys(app.strings ?? {})) list.add(language);
  return [...list].map((language) => [language, language]);
}

export function deviceTab(device, page, ui, hooks) {
  const state = device.state;
  const turn = (action) => (on) => hooks.act({ action, on });
  return h("div", { class: "controls" },
    h("section", { class: "panel", "aria-label": t("switches") }, h("h2", {}, t("switches")),
      toggle(t("power"), state.isPoweredOn, turn("power")), toggle(t("network"), state.hasNetwork, turn("network")),
      toggle(t("airplane"), state.isInAirplaneMode, turn("airplane")),
        toggle(t("lockSwitch"), state.isLocked, turn("lock")),
      toggle(t("screenSwitch"), state.isScreenOn, turn("screen")), toggle(t("mute"), state.isMuted, turn("mute")),
      toggle(t("lowPower"), state.isInLowPowerMode, turn("low-power")),
        toggle(t("charging"), state.isCharging, turn("charging")),
      toggle(t("backgroundRefresh"), state.refreshesInBackground, turn("background-refresh"))),
    h("section", { class: "panel", "aria-label": t("focus") }, h("h2", {}, t("focus")), focusForm(device, ui, hooks)),
    h("section", { class: "panel", "aria-label": t("surroundings") }, h("h2", {}, t("surroundings")),
      chooser(t("deviceLanguage"), state.language, languageOptions(device, page),
        (text) => hooks.act({ action: "language", text })),
      h("form", { class: "inline-form", on: { submit: (event) => {
        event.preventDefault();
        const text = event.target.elements.region.value.trim();
        if (text !== "") hooks.act({ action: "location", text });
      } } },
      h("label", { class: "field" }, t("location"),
        h("input", { name: "region", dir: "auto", placeholder: t("locationHint"), autocomplete: "off" })),
      h("button", { type: "submit" }, icon("place"), t("enter")),
      h("button", { type: "button", disabled: state.region === undefined,
        on: { click: () => hooks.act({ action: "location" }) } }, t("leave"))),
      h("p", { class: "quiet" }, state.region === undefined ? t("nowhere")
        : h("span", { dir: "auto" }, `${t("location")}: ${state.region}`)),
      h("div", { class: "buttons start" },
        h("button", { on: { click: () => hooks.act({ action: "reboot" }) } }, icon("refresh"), t("reboot")),
        h("button", { title: t("restoreHint"), on: { click: () => hooks.act({ action: "restore" }) } }, icon("cloud"),
          t("restore")),
        ui.form.removes
          ? [h("span", { key: "ask", role: "alert" }, t("removeAsk")),
            h("button", { key: "yes", class: "danger", on: { click: hooks.remove } }, t("yes")),
            h("button", { key: "no", on: { click: () => { ui.form.removes = false; hooks.draw(); } } }, t("no"))]
          : h("button", { key: "remove", class: "danger",
            on: { click: () => { ui.form.removes = true; hooks.draw(); } } }, icon("trash"), t("remove")))));
}

function focusForm(device, ui, hooks) {
  const focus = device.state.focus;
  return h("form", { on: { submit: (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const filter = form.get("filter").trim();
    hooks.act({ action: "focus", focus: {
      name: form.get("name").trim() || t("focus"), allowedApps: form.getAll("app"),
        allowsTimeSensitive: form.get("time") !== null,
      ...(filter === "" ? {} : { filter }),
    } });
  } } },
  h("p", { class: "quiet" }, focus ? h("strong", { dir: "auto" }, focus.name) : t("focusOff")),
  h("label", { class: "field" }, t("focusName"),
    h("input", { name: "name", dir: "auto", value: focus?.name ?? "", autocomplete: "off" })),
  h("fieldset", {}, h("legend", {}, t("focusApps")), device.apps.map((app) =>
    h("label", { key: app.bundle, class: "check" },
      h("input", { type: "checkbox", name: "app", value: app.bundle,
      checked: focus?.allowedApps.includes(app.bundle) ?? false }),
      h("span", { dir: "auto" }, app.name)))),
  h("label", { class: "check" },
    h("input", { type: "checkbox", name: "time", checked: focus?.allowsTimeSensitive ?? true }), t("focusTime")),
  h("label", { class: "field" }, `${t("focusFilter")} (${t("optional")})`,
    h("input", { name: "filter", dir: "auto", value: focus?.filter ?? "", autocomplete: "off" })),
  h("div", { class: "buttons start" }, h("button", { type: "submit" }, icon("focus"),
    focus ? t("set") : t("startFocus")),
    focus && h("button", { type: "button", on: { click: () => hooks.act({ action: "focus" }) } }, t("endFocus"))));
}

const flags = ["alerts", "lockScreen", "notificationCentre", "sounds", "badges", "timeSensitive", "critical",
  "scheduledSummary",
  "backgroundRefresh", "liveActivities", "frequentUpdates"];
const choices = { alertStyle: ["banner", "alert", "none"], previews: ["always", "when-unlocked", "never"],
  grouping: ["automatic", "by-app", "off"] };

export function appsTab(device, page, ui, hooks) {
  const missing = [...page.apps.values()].filter((app) =>
    !device.apps.some((installed) => installed.bundle === app.bundle));
  return h("div", { class: "app-list" }, device.apps.map((app) => appPanel(app, page, ui, hooks)),
    missing.length > 0 && h("section", { key: "missing", class: "panel", "aria-label": t("notInstalled") },
      h("h2", {}, t("notInstalled")),
      missing.map((app) => h("div", { key: app.bundle, class: "missing-app" },
        appIcon(app.name ?? app.bundle, app.icon, app.bundle, "small"),
        h("span", { dir: "auto" }, app.name ?? app.bundle),
        h("button", { "aria-label": `${t("install")}: ${app.name ?? app.bundle}`,
          on: { click: () => hooks.act({ action: "install", app: app.bundle }) } }, icon("plus"), t("install"))))));
}

function appPanel(app, page, ui, hooks) {
  const isOpen = ui.app === app.bundle;
  const isCoding = ui.code === app.bundle;
  const act = (action, more) => hooks.act({ action, app: app.bundle, ...more });
  return h("section", { key: app.bundle, class: "panel app-panel", "aria-label": app.name },
    h("div", { class: "app-head" }, appIcon(app.name, app.icon, app.bundle),
      h("div", {}, h("h2", { dir: "auto" }, app.name), h("p", { class: "quiet" }, h("code", {}, app.bundle))),
      h("div", { class: "chips" },
        h("span", { class: "chip" }, t(`environment-${app.environment}`)),
        h("span", { class: `chip authorization-${app.authorization}` }, t(`authorization-${app.authorization}`)),
        h("span", { class: "chip" }, app.wasLaunched ? t(`state-${app.state}`) : t("neverLaunched")),
        app.badge > 0 && h("span", { class: "chip badge-chip" }, t("badgeOf", app.badge)))),
    h("div", { class: "buttons start" },
      h("button", { disabled: app.state === "foreground", on: { click: () => act("launch") } }, icon("play"),
        t("launch")),
      h("button", { disabled: app.state !== "foreground", on: { click: () => act("home") } }, icon("home"),
        t("toHome")),
      h("button", { disabled: app.state === "force-quit" || app.state === "not-running",
        on: { click: () => act("force-quit") } }, icon("close"), t("forceQuit")),
      h("button", { on: { click: () => act("uninstall") } }, icon("trash"), t("uninstall")),
      h("button", { "aria-expanded": isOpen ? "true" : "false",
        on: { click: () => { ui.app = isOpen ? null : app.bundle; hooks.draw(); } } }, icon("more"), t("appSettings")),
      h("button", { "aria-expanded": isCoding ? "true" : "false",
        on: { click: () => { ui.code = isCoding ? null : app.bundle; hooks.draw(); } } }, icon("more"), t("appCode"))),
    isOpen && settingsForm(app, act),
    isCoding && codeForm(app, page, act),
    h("p", { class: "quiet" }, t("wakesLeft", app.wakesLeft), app.holdsSilentPush && ` ${t("holdsSilent")}`),
    app.extensionKey && h("p", { class: "key" }, h("span", { class: "quiet" }, t("extensionKey")), " ",
      h("span", { class: "with-copy" }, h("code", { class: "token" }, app.extensionKey),
        copyButton(app.extensionKey, t("extensionKey")))));
}

function settingsForm(app, act) {
  const set = (name, value) => act("settings", { settings: { ...app.settings, [name]: value } });
  const isAllowed = app.authorization !== "denied" && app.authorization !== "not-determined";
  return h("div", { class: "settings", role: "group", "aria-label": t("appSettings") },
    toggle(t("set-allowed"), isAllowed, (on) => act("settings", { on })),
    flags.map((name) => toggle(t(`set-${name}`), app.settings[name], (on) => set(name, on))),
    Object.keys(choices).map((name) => chooser(t(`set-${name}`), app.settings[name],
      choices[name].map((value) => [value, t(`${name}-${value}`)]), (value) => set(name, value))));
}
