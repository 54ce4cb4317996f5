// All pushes, newest first, live; and the details of a chosen push.
import { announce, h, patch } from "./dom.js";
import { api } from "./api.js";
import { icon } from "./icons.js";
import { Refresher } from "./live.js";
import { Rows } from "./rows.js";
import { exact } from "./time.js";
import { number, t } from "./words.js";
import { pushDetails } from "./history.js";

const rowHeight = 46;
const headHeight = 34;
const columns = ["time", "fate", "text", "app", "device"];
const pageSize = 200;
/** Pushes that the list keeps; older ones are fetched again when they are scrolled to. */
const mostRows = 5_000;
const fates = ["shown", "silent", "stored", "held", "running", "woken", "updated", "opened", "dismissed", "replaced",
  "removed", "dropped", "expired", "rejected"];
const choice = { query: "", fate: "", app: "" };

export function openPushes(root, page, chosen) {
  let list = [];
  let known = new Map();
  let isEnd = false;
  let isLoaded = false;
  let waiting = [];
  let selected = chosen;
  let detail = null;
  let detailDevice = null;
  let rows = null;
  let viewport = null;
  let isClosed = false;
  let round = 0;
  let active = 0;
  let searchTimer;
  const filler = new Refresher(fill, 400);
  const reloader = new Refresher(reload, 250);
  const older = new Refresher(loadOlder, 0);
  const detailer = new Refresher(loadDetail, 200);

  draw();
  reloader.ask();
  if (selected !== undefined) detailer.ask();

  function isFiltered() { return choice.query !== "" || choice.fate !== "" || choice.app !== ""; }

  function isAtTop() { return !viewport || viewport.scrollTop < rowHeight / 2; }

  function accept(push) {
    const former = known.get(push.number);
    if (former) {
      Object.assign(former, push);
      return former;
    }
    const row = { ...push };
    known.set(push.number, row);
    return row;
  }

  async function reload() {
    const mine = round;
    try {
      const found = await api.pushes({ ...choice, limit: pageSize });
      if (isClosed || mine !== round) return;
      const wasLoaded = isLoaded;
      known = new Map();
      list = found.map(accept);
      waiting = [];
      isEnd = found.length < pageSize;
      isLoaded = true;
      show();
      if (!wasLoaded && isFiltered()) announce(t("results", `${t("pushCount", list.length)}${isEnd ? "" : "+"}`));
    } catch (error) {
      if (error.status !== 0) page.fail(error);
    }
  }

  async function loadOlder() {
    if (isEnd || list.length === 0 || list.length >= mostRows) return;
    const mine = round;
    try {
      const found = await api.pushes({ ...choice, limit: pageSize, before: list.at(-1).number });
      if (isClosed || mine !== round) return;
      list.push(...found.filter((push) => !known.has(push.number)).map(accept));
      isEnd = found.length < pageSize;
      show();
    } catch (error) {
      if (error.status !== 0) page.fail(error);
    }
  }

  /** Fetches texts and types of rows that events have brought. */
  async function fill() {
    const missing = visible().filter((row) => row.type === undefined);
    if (missing.length === 0) return;
    try {
      const found = await api.pushes({ before: missing[0].number + 1,
        limit: Math.min(100, missing[0].number - missing.at(-1).number + 1) });
      if (isClosed) return;
      for (const push of found) if (known.has(push.number)) accept(push);
      rows?.draw(true);
    } catch {
      // The next events ask again.
    }
  }

  function visible() { return rows ? list.slice(rows.first, rows.last) : []; }

  function show() {
    rows?.setCount(list.length);
    draw();
    rows?.draw(true);
  }

  function draw() {
    const isNone = isLoaded && list.length === 0;
    patch(root, h("div", { key: "pushes", class: `pushes ${selected === undefined ? "" : "with-detail"}` },
      h("div", { class: "pushes-main" },
        h("h1", { class: "unseen" }, t("pushes")),
        h("div", { class: "tools", role: "search" },
          h("label", { class: "search" }, icon("search"), h("span", { class: "unseen" }, t("searchPushes")),
            h("input", { type: "search", id: "search", placeholder: t("searchPushesHint"), value: choice.query,
              autocomplete: "off", spellcheck: "false", on: { input: search } })),
          select("fate", t("fate"), [["", t("allFates")], ...fates.map((fate) => [fate, t(`fate-${fate}`)])]),
          select("app", t("app"), [["", t("allApps")],
            ...[...page.apps.values()].map((app) => [app.bundle, app.name ?? app.bundle])]),
          h("p", { class: "summary" }, isFiltered() ? `${t("pushCount", list.length)}${isEnd ? "" : "+"}` : page.status
            ? t("pushCount", page.status.world.pushes) : ""),
          h("a", { class: "button", href: "api/export", download: "simulator.jsonl", title: t("exportText") },
            t("exportAll"))),
        h("div", { key: "grid", class: "push-grid", role: "grid", "aria-label": t("pushes"), tabindex: "0",
          "aria-rowcount": isEnd ? list.length + 1 : "-1",
          "aria-colcount": "5", on: { keydown: move, focus: showActive, blur: showActive }, ready: attach },
        h("div", { class: "push-row push-head", role: "row", "aria-rowindex": "1" },
          columns.map((name) => h("span", { key: name, role: "columnheader", class: `cell-${name}` }, t(name))))),
        isNone && h("p", { key: "none", class: "none" }, isFiltered() ? t("noPushMatch") : t("noPushesAtAll")),
        waiting.length > 0 && h("button", { key: "new", class: "new-pushes", on: { click: toTop } },
          t("newPushes", waiting.length))),
      h("section", { class: "pushes-detail", "aria-label": selected === undefined ? t("pushes") : t("push", selected) },
        detailView())));
  }

  function detailView() {
    if (selected === undefined) return h("p", { key: "choose", class: "none" }, t("choosePush"));
    return [
      h("div", { key: "head", class: "detail-head" }, h("h2", {}, t("push", selected)),
        detail?.device !== undefined && h("a", { class: "button", href: `#/devices/${detail.device}` }, icon("screen"),
          t("openDevice")),
        h("a", { class: "button", href: "#/pushes", "aria-label": t("close") }, icon("close"))),
      detail ? pushDetails(detail, detailDevice, page)
        : h("p", { key: "loading", class: "quiet" }, detail === undefined ? t("notFound") : t("loading")),
    ];
  }

  async function loadDetail() {
    if (selected === undefined) return;
    const wanted = selected;
    try {
      const found = await api.push(wanted);
      const device = found.device === undefined ? null : await api.device(found.device).catch(() => null);
      if (isClosed || wanted !== selected) return;
      detail = found;
      detailDevice = device;
    } catch (error) {
      if (error.status === 0) return;
      detail = undefined;
    }
    draw();
  }

  function select(name, label, options) {
    return h("label", { key: name, class: "pick" }, h("span", {}, label),
      h("select", { on: { change: (event) => { choice[name] = event.target.value; restart(); } } },
        options.map(([value, text]) => h("option", { key: value, value, selected: value === choice[name] }, text))));
  }

  function search(event) {
    choice.query = event.target.value.trim();
    clearTimeout(searchTimer);
    searchTimer = setTimeout(restart, 200);
  }

  function restart() {
    round += 1;
    isLoaded = false;
    active = 0;
    if (viewport) viewport.scrollTop = 0;
    reloader.ask();
  }

  function attach(element) {
    viewport = element;
    rows = new Rows(element, { height: rowHeight, header: headHeight, create: createRow, show: showRow, moved });
    rows.setCount(list.length);
  }

  function moved() {
    showActive();
    if (rows.last > list.length - 40) older.ask();
    if (visible().some((row) => row.type === undefined)) filler.ask();
    if (isAtTop() && waiting.length > 0) toTop();
  }

  function createRow() {
    const row = document.createElement("div");
    row.setAttribute("role", "row");
    row.className = "push-row";
    row.parts = {};
    for (const name of columns) {
      const cell = document.createElement("span");
      cell.setAttribute("role", "gridcell");
      cell.className = `cell-${name}`;
      row.append(cell);
      row.parts[name] = cell;
    }
    const chip = document.createElement("span");
    row.parts.fate.append(chip);
    row.parts.chip = chip;
    row.parts.text.dir = "auto";
    row.parts.app.dir = "auto";
    row.addEventListener("click", () => choose(row.push));
    return row;
  }

  function showRow(row, index) {
    const push = list[index];
    if (!push) return;
    row.push = push;
    row.id = `push-${push.number}`;
    row.dataset.push = push.number;
    row.setAttribute("aria-rowindex", index + 2);
    row.setAttribute("aria-selected", String(push.number) === String(selected) ? "true" : "false");
    row.classList.toggle("active", index === active);
    setText(row.parts.time, exact(push.at));
    setText(row.parts.chip, t(`fate-${push.fate}`));
    const name = `chip fate fate-${push.fate}`;
    if (row.parts.chip.className !== name) row.parts.chip.className = name;
    setText(row.parts.text, push.text ?? push.type ?? "");
    row.parts.text.classList.toggle("quiet", push.text === undefined);
    setText(row.parts.app, page.appName(push.app ?? ""));
    setText(row.parts.device, push.device === undefined ? t("unknownDevice") : number(push.device));
  }

  function choose(push) {
    if (push) location.hash = `#/pushes/${push.number}`;
  }

  function showActive() {
    if (!viewport) return;
        const row = list[active] && document.getElementById(`push-${list[active].number}`);
    if (row && document.activeElement === viewport) viewport.setAttribute("aria-activedescendant", row.id);
    else viewport.removeAttribute("aria-activedescendant");
  }

  function move(event) {
    const view = Math.max(1, Math.floor(viewport.clientHeight / rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: view, PageUp: -view };
    let index = active;
    if (event.key in steps) index += steps[event.key];
    else if (event.key === "Home") index = 0;
    else if (event.key === "End") index = list.length - 1;
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return choose(list[active]);
    } else return;
    event.preventDefault();
    active = Math.min(list.length - 1, Math.max(0, index));
    rows.reveal(active);
    rows.draw(true);
    showActive();
  }

  function toTop() {
    merge(waiting);
    waiting = [];
    if (viewport) viewport.scrollTop = 0;
    show();
  }

  /** Puts new pushes in front. */
  function merge(pushes) {
    if (pushes.length === 0) return;
    pushes.sort((a, b) => b.number - a.number);
    list = [...pushes, ...list];
    if (list.length > mostRows) {
      for (const row of list.splice(mostRows)) known.delete(row.number);
      isEnd = false;
    }
    // The chosen row keeps its place among the others, not on the screen.
    if (active > 0) active = Math.min(list.length - 1, active + pushes.length);
  }

  function take(events) {
    let isChanged = false;
    const fresh = new Map();
    const newest = list[0]?.number ?? 0;
    for (const event of events) {
      if (event.push === undefined || event.fate === undefined) continue;
      const former = known.get(event.push);
      if (former) {
        former.fate = event.fate;
        isChanged = true;
      } else if (event.push > newest) {
        const row = { number: event.push, at: event.at, fate: event.fate, app: event.app, device: event.device,
          apnsID: event.apnsID };
        known.set(row.number, row);
        fresh.set(row.number, row);
      }
    }
    if (fresh.size > 0) {
      if (isAtTop()) {
        merge([...fresh.values()]);
        rows?.setCount(list.length);
        if (list.length === fresh.size) draw();
      } else {
        waiting.push(...fresh.values());
        // Waiting rows of a long pause are fetched again instead.
        if (waiting.length > mostRows) {
          for (const row of waiting) known.delete(row.number);
          waiting = [];
          restart();
        }
        draw();
      }
    }
    if (isChanged || fresh.size > 0) rows?.draw(true);
  }

  return {
    accepts: (route) => route[0] === "pushes",
    go(route) {
      selected = route[1];
      detail = null;
      detailDevice = null;
      draw();
      rows?.draw(true);
      if (selected !== undefined) detailer.ask();
    },
    events(events) {
      if (isFiltered()) {
        if (isAtTop() && events.some((event) => event.push !== undefined)) reloader.ask();
      } else if (isLoaded) {
        take(events);
      }
      if (detail && events.some((event) => String(event.push) === String(detail.number)
        || event.apnsID === detail.apnsID)) detailer.ask();
    },
    status: draw,
    resync() {
      restart();
      detailer.ask();
    },
    close() {
      isClosed = true;
      clearTimeout(searchTimer);
      for (const task of [filler, reloader, older, detailer]) task.close();
      rows?.close();
    },
  };
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
