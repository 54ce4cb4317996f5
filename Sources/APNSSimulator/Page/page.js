// Frame of the page: sections, connection, language and colours.
import { announce, h, patch } from "./dom.js";
import { api } from "./api.js";
import { icon } from "./icons.js";
import { Live } from "./live.js";
import { setClock } from "./time.js";
import { language, languages, number, preferredLanguage, setLanguage, t } from "./words.js";
import { openDevices } from "./devices.js";
import { openDevice } from "./device.js";
import { openPushes } from "./pushes.js";
import { openApps } from "./editor.js";
import { openFaults } from "./faults.js";
import { loadRules, openRules } from "./rules.js";

const sections = {
  devices: { open: (root, id) => (id === undefined ? openDevices(root, page) : openDevice(root, page, id)) },
  pushes: { open: (root, id) => openPushes(root, page, id) },
  apps: { open: (root, id) => openApps(root, page, id) },
  faults: { open: (root) => openFaults(root, page) },
  rules: { open: (root, id) => openRules(root, page, id) },
};
const themes = ["auto", "light", "dark"];

/** Choices that outlive the page; a browser that forbids storage forgets them. */
const memory = {
  get(name) {
    try {
      return localStorage.getItem(`sluice-${name}`);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`sluice-${name}`, value);
    } catch {
      // The choice lasts as long as the page.
    }
  },
};

/** Shared state that the sections read. */
const page = {
  status: null,
  apps: new Map(),
  rules: new Map(),
  state: "connecting",
  /** Reports a fault of an action. */
  fail(error) {
    showNotice(t("failed", error.message || t("noAnswer")));
  },
  appName: (bundle) => page.apps.get(bundle)?.name ?? bundle,
  async loadApps() {
    const list = await api.apps();
    page.apps = new Map(list.map((app) => [app.bundle, app]));
  },
  async loadStatus() {
    page.status = await api.status();
    setClock(page.status.world.now);
    drawTop();
  },
};

let view = null;
let route = [];
let theme = "auto";
let notice = null;
let noticeTimer;

function showNotice(text) {
  notice = text;
  drawTop();
  announce(text);
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => {
    notice = null;
    drawTop();
  }, 8_000);
}

function drawTop() {
  const world = page.status?.world;
  const stateText = { live: t("live"), gone: t("gone"), connecting: t("connecting") }[page.state];
  patch(document.getElementById("top"),
    h("a", { class: "skip", href: "#main", on: { click: skip } }, t("skip")),
    h("header", { class: "bar" },
      h("a", { class: "brand", href: "#/devices", "aria-label": t("title") },
        h("img", { src: "icon.svg", alt: "", width: 26, height: 26 }), h("span", { "aria-hidden": "true" }, "Sluice")),
      h("nav", { "aria-label": t("sections") },
        Object.keys(sections).map((name) =>
          h("a", { key: name, href: `#/${name}`, class: "section", "aria-current": route[0] === name ? "page" : null },
            t(name),
            world && name === "devices" && h("span", { class: "count" }, number(world.devices)),
            world && name === "pushes" && h("span", { class: "count" }, number(world.pushes))))),
      h("div", { class: "bar-end" },
        h("span", { class: `connection ${page.state}` }, h("span", { class: "dot", "aria-hidden": "true" }), stateText),
        h("label", { class: "pick" }, h("span", { class: "unseen" }, t("language")), icon("language"),
          h("select", { value: language(), on: { change: (event) => chooseLanguage(event.target.value) } },
            Object.entries(languages).map(([tag, name]) =>
              h("option", { key: tag, value: tag, lang: tag, selected: tag === language() }, name)))),
        h("label", { class: "pick" }, h("span", { class: "unseen" }, t("theme")), icon("sun"),
          h("select", { value: theme, on: { change: (event) => chooseTheme(event.target.value) } },
            themes.map((name) =>
              h("option", { key: name, value: name, selected: name === theme }, t(`theme-${name}`))))))),
    page.state === "gone" && h("div", { key: "gone", class: "gone", role: "alert" }, t("goneText")),
    notice && h("div", { key: "notice", class: "notice" }, h("span", {}, notice),
      h("button", { class: "plain", "aria-label": t("close"), on: { click: () => { notice = null; drawTop(); } } },
        icon("close"))));
  document.body.classList.toggle("is-gone", page.state === "gone");
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function chooseLanguage(tag) {
  memory.set("language", tag);
  setLanguage(tag);
  drawTop();
  show(false);
}

function chooseTheme(name) {
  memory.set("theme", name);
  theme = name;
  document.documentElement.dataset.theme = name;
  drawTop();
}

/** Opens the section that the address names. */
function show(moveFocus) {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  route = [name in sections ? name : "devices", ...rest.map(decodeURIComponent)];
  const main = document.getElementById("main");
  if (view?.accepts?.(route)) {
    view.go(route);
  } else {
    view?.close();
    main.textContent = "";
    main.sluiceNodes = [];
    view = sections[route[0]].open(main, route[1]);
    if (moveFocus) main.focus();
  }
  document.title = `${t(route[0])} – ${t("title")}`;
  drawTop();
}

let statusTimer = null;
function refreshStatus() {
  if (statusTimer !== null) return;
  statusTimer = setTimeout(async () => {
    statusTimer = null;
    try {
      await page.loadStatus();
      view?.status?.();
    } catch {
      // The event stream reports that the simulator is gone.
    }
  }, 2_000);
}

async function start() {
  // A token in the address has become a cookie by now.
  if (location.search !== "") history.replaceState(null, "", location.pathname + location.hash);
  setLanguage(memory.get("language") ?? preferredLanguage());
  theme = themes.includes(memory.get("theme")) ? memory.get("theme") : "auto";
  document.documentElement.dataset.theme = theme;
  drawTop();
  try {
    [, , page.rules] = await Promise.all([page.loadStatus(), page.loadApps(), loadRules()]);
  } catch {
    page.state = "gone";
  }
  addEventListener("hashchange", () => show(true));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog")) return;
    const search = document.getElementById("search");
    if (!search) return;
    event.preventDefault();
    search.focus();
  });
  show(false);
  new Live(
    (events) => {
      if (events.some((event) => event.kind === "app")) page.loadApps().catch(() => {});
      view?.events?.(events);
      refreshStatus();
    },
    async () => {
      try {
        await Promise.all([page.loadStatus(), page.loadApps()]);
      } catch {
        return;
      }
      view?.resync?.();
    },
    (state) => {
      page.state = state;
      drawTop();
    });
}

start();
