// Grid of all devices. Only visible cards have elements, and only visible windows are fetched.
import { announce, h, patch } from "./dom.js";
import { api } from "./api.js";
import { createCard, fillCard, pulse } from "./card.js";
import { icon } from "./icons.js";
import { Refresher } from "./live.js";
import { Rows } from "./rows.js";
import { number, t } from "./words.js";
import { hint } from "./hint.js";
import { askForDevices } from "./new-device.js";

/** Devices of a window, and windows that are kept. */
const windowSize = 100;
const mostWindows = 60;
const cardWidth = 248;
const rowHeight = 124;

/** Choices that last while the page is open. */
const choice = { query: "", filter: "", app: "", sort: "id", active: 0 };

export function openDevices(root, page) {
  let total = null;
  let columns = 1;
  let windows = new Map();
  let shown = new Map();
  let abort = null;
  let rows = null;
  let viewport = null;
  let isClosed = false;
  let round = 0;
  let announceResult = false;
  // The reader returns to the device that was chosen last.
  let mustReveal = choice.active > 0;

  const refresher = new Refresher(fetchVisible, 300);
  const ages = setInterval(() => rows?.draw(true), 10_000);
  let searchTimer;
  let pulses = new Set();

  draw();
  refresher.ask();

  function draw() {
    const isEmpty = total === 0 && !choice.query && !choice.filter && !choice.app;
    patch(root, h("div", { key: "devices", class: "devices" },
      h("h1", { class: "unseen" }, t("devices")),
      !isEmpty && h("div", { key: "tools", class: "tools", role: "search" },
        h("label", { class: "search" }, icon("search"), h("span", { class: "unseen" }, t("searchDevices")),
          h("input", { type: "search", id: "search", placeholder: t("searchDevicesHint"), value: choice.query,
            autocomplete: "off",
            spellcheck: "false", on: { input: search, keydown: leaveSearch } })),
        select("filter", t("filter"), choice.filter,
          ["", "online", "offline", "unread", "activity"].map((name) => [name, t(`filter-${name || "all"}`)])),
        select("app", t("app"), choice.app,
          [["", t("allApps")], ...[...page.apps.values()].map((app) => [app.bundle, app.name ?? app.bundle])]),
        select("sort", t("order"), choice.sort, ["id", "recent"].map((name) => [name, t(`order-${name}`)])),
        h("p", { class: "summary" }, total === null ? t("loading") : summary()),
        h("button", { class: "main-button", on: { click: add } }, icon("plus"), t("newDevice"))),
      isEmpty
        ? h("div", { key: "hint", class: "hint-holder" }, hint(page, add))
        : h("div", { key: "grid", class: "grid", role: "grid", tabindex: "0", id: "grid", "aria-label": t("devices"),
          "aria-describedby": "grid-help", "aria-rowcount": total === null ? "-1" : Math.ceil(total / columns),
          "aria-colcount": columns, on: { keydown: move, focus: showActive, blur: showActive }, ready: attach }),
      !isEmpty && total === 0 && h("p", { key: "none", class: "none" }, t("noMatch")),
      !isEmpty && h("p", { key: "help", id: "grid-help", class: "unseen" }, t("gridHelp"))));
    if (isEmpty && rows) detach();
  }

  function summary() {
    const world = page.status?.world;
    const isAll = !choice.query && !choice.filter && !choice.app;
    if (!isAll || !world) return t("deviceCount", total);
    const parts = [t("deviceCount", total), t("onlineCount", number(world.online))];
    if (world.stored > 0) parts.push(t("storedCount", world.stored));
    return parts.join(" · ");
  }

  function select(name, label, value, options) {
    return h("label", { key: name, class: "pick" }, h("span", {}, label),
      h("select", { on: { change: (event) => choose(name, event.target.value) } },
        options.map(([option, text]) => h("option", { key: option, value: option, selected: option === value },
          text))));
  }

  function choose(name, value) {
    choice[name] = value;
    restart();
  }

  function search(event) {
    choice.query = event.target.value.trim();
    clearTimeout(searchTimer);
    searchTimer = setTimeout(restart, 200);
  }

  function leaveSearch(event) {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      viewport?.focus();
    }
  }

  function restart() {
    windows = new Map();
    total = null;
    choice.active = 0;
    round += 1;
    if (viewport) viewport.scrollTop = 0;
    abort?.abort();
    draw();
    rows?.draw(true);
    refresher.ask();
    announceResult = true;
  }

  function attach(element) {
    viewport = element;
    rows = new Rows(element, { height: rowHeight, create: createRow, show: showRow, moved });
    const observer = new ResizeObserver(fit);
    observer.observe(element);
    rows.also = observer;
    fit();
  }

  function detach() {
    rows.also.disconnect();
    rows.close();
    rows = null;
    viewport = null;
  }

  function fit() {
    if (!rows) return;
    const wanted = Math.max(1, Math.floor((viewport.clientWidth - 24) / cardWidth));
    if (wanted === columns && rows.pool.length > 0) return;
    columns = wanted;
    viewport.style.setProperty("--columns", columns);
    rows.rebuild();
    update();
  }

  function update() {
    rows?.setCount(Math.ceil((total ?? 0) / columns));
    draw();
    if (rows && total !== null && mustReveal) {
      mustReveal = false;
      choice.active = Math.min(choice.active, Math.max(0, total - 1));
      rows.reveal(Math.floor(choice.active / columns));
    }
    rows?.draw(true);
  }

  function createRow() {
    const row = document.createElement("div");
    row.setAttribute("role", "row");
    row.className = "card-row";
    row.cards = [];
    for (let column = 0; column < columns; column += 1) {
      const card = createCard(column, (position) => { choice.active = position; });
      row.append(card.cell);
      row.cards.push(card);
    }
    return row;
  }

  function showRow(row, index) {
    row.setAttribute("aria-rowindex", index + 1);
    for (let column = 0; column < row.cards.length; column += 1) {
      const card = row.cards[column];
      const position = index * columns + column;
      const isThere = position < (total ?? 0);
      card.cell.hidden = !isThere;
      if (card.id !== undefined && shown.get(card.id) === card) shown.delete(card.id);
      card.id = undefined;
      if (!isThere) continue;
      if (card.position !== position) card.cell.classList.remove("pulse", "pulse-again");
      card.position = position;
      const isActive = position === choice.active;
      card.cell.id = `card-${position}`;
      card.cell.classList.toggle("active", isActive);
      const item = windows.get(Math.floor(position / windowSize))?.items[position % windowSize];
      fillCard(card, item);
      if (item) {
        card.id = item.id;
        shown.set(item.id, card);
      }
    }
  }

  function moved() {
    showActive();
    const missing = visibleWindows().some((number) => !windows.has(number) || windows.get(number).isOld);
    if (missing) refresher.ask();
  }

  function visibleWindows() {
    if (!rows || total === null) return [0];
    const first = Math.floor((rows.first * columns) / windowSize);
    const last = Math.floor(Math.max(0, rows.last * columns - 1) / windowSize);
    const list = [];
    for (let number = first; number <= Math.min(last,
      Math.floor(Math.max(0, total - 1) / windowSize)); number += 1) list.push(number);
    return list;
  }

  async function fetchVisible() {
    const mine = round;
    const wanted = visibleWindows().filter((number) => !windows.has(number) || windows.get(number).isOld);
    if (wanted.length === 0 && total === null) wanted.push(0);
    abort = new AbortController();
    for (const number of wanted) {
      try {
        const found = await api.devices({
          offset: number * windowSize, limit: windowSize, query: choice.query, filter: choice.filter,
          app: choice.app, sort: choice.sort,
        }, abort.signal);
        if (isClosed || mine !== round) return;
        windows.delete(number);
        windows.set(number, { items: found.items, isOld: false });
        if (windows.size > mostWindows) windows.delete(windows.keys().next().value);
        const changed = total !== found.total;
        total = found.total;
        if (changed) update();
        else rows?.draw(true);
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status !== 0) page.fail(error);
        return;
      }
    }
    if (announceResult && total !== null) announce(t("results", t("deviceCount", total)));
    announceResult = false;
    for (const id of pulses) {
      const card = shown.get(id);
      if (card) pulse(card.cell);
    }
    pulses = new Set();
  }

  function showActive() {
    if (!viewport) return;
    const card = document.getElementById(`card-${choice.active}`);
    if (card && document.activeElement === viewport) viewport.setAttribute("aria-activedescendant", card.id);
    else viewport.removeAttribute("aria-activedescendant");
  }

  function move(event) {
    const page = Math.max(1, Math.floor(viewport.clientHeight / rowHeight)) * columns;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: page,
      PageUp: -page };
    let position = choice.active;
    if (event.key in steps) position += steps[event.key];
    else if (event.key === "Home") position = event.ctrlKey ? 0 : position - (position % columns);
    else if (event.key === "End") position = event.ctrlKey ? total - 1 : position - (position % columns) + columns - 1;
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const item = windows.get(Math.floor(choice.active / windowSize))?.items[choice.active % windowSize];
      if (item) location.hash = `#/devices/${item.id}`;
      return;
    } else return;
    event.preventDefault();
    const last = (total ?? 1) - 1;
    if (position > last) position = event.key === "ArrowDown"
      && Math.floor(choice.active / columns) === Math.floor(last / columns) ? choice.active : last;
    if (position < 0) position = event.key === "ArrowUp" ? choice.active : 0;
    document.getElementById(`card-${choice.active}`)?.classList.remove("active");
    choice.active = position;
    rows.reveal(Math.floor(position / columns));
    document.getElementById(`card-${position}`)?.classList.add("active");
    showActive();
  }

  async function add() {
    const made = await askForDevices(page);
    if (!made) return;
    if (made.length === 1) location.hash = `#/devices/${made[0]}`;
    else restart();
  }

  function age(all) {
    for (const window of windows.values()) window.isOld = true;
    if (all) refresher.ask();
  }

  return {
    events(list) {
      const isOrdered = choice.sort === "id" && !choice.query && !choice.filter && !choice.app;
      let isVisible = !isOrdered || total === 0;
      for (const event of list) {
        if (event.device === undefined) continue;
        if (shown.has(event.device)) {
          isVisible = true;
          if (event.kind === "push") pulses.add(event.device);
        } else if (event.device > (total ?? 0)) {
          isVisible = true;
        }
      }
      // Searching and sorting cost the simulator more than a window in the order of the numbers.
      refresher.pause = isOrdered ? 300 : 1_000;
      if (isVisible) age(true);
      else if (list.some((event) => event.kind === "device")) age(true);
    },
    status: () => {
      const known = page.status.world.devices;
      if (total !== null && !choice.query && !choice.filter && !choice.app && known !== total) age(true);
      draw();
    },
    resync: () => age(true),
    close() {
      isClosed = true;
      clearInterval(ages);
      clearTimeout(searchTimer);
      refresher.close();
      abort?.abort();
      if (rows) detach();
    },
  };
}
