// Faults by script: the timeline as JSON, presets, and what is in force.
import { h, patch } from "./dom.js";
import { api } from "./api.js";
import { editorForm, makeEditor } from "./editor.js";
import { icon } from "./icons.js";
import { t } from "./words.js";

/** Interval at which the faults in force are asked for, in milliseconds. */
const interval = 2_000;
/** Entries that a reader can start from. */
const presets = {
  errors: { answers: { InternalServerError: 0.05, ServiceUnavailable: 0.05 } },
  latency: { latency: { percentiles: { 50: "40ms", 95: "400ms", 99: "2s" } } },
  unanswered: { unanswered: 0.01 },
  goaway: { goaway: { reason: "Shutdown", unprocessed: 5, every: "10s" } },
  disconnect: { disconnect: { share: 0.3, every: "10s" } },
  limit: { "stream-limit": { low: 1, high: 1000, period: "4s" } },
  hole: { for: "30s", "black-hole": { share: 0.5 } },
  reads: { "slow-reads": { "bytes-per-second": 20000, share: 0.5 } },
  windows: { "no-window-updates": { share: 0.5 } },
  throttle: { throttle: { "per-device": 2, "per-second": 500 } },
  expired: { for: "30s", certificate: { expired: "server" } },
  environment: { environment: { of: "device-tokens", share: 0.1 } },
};

export function openFaults(root, page) {
  let state = null;
  let isClosed = false;
  let preset = "errors";
  const editor = makeEditor(draw, load, api.putFaults);
  const isServed = () => page.status?.faults === true;
  const timer = setInterval(watch, interval);
  draw();
  if (isServed()) editor.load();

  async function load() {
    state = await api.faults();
    return state.timeline;
  }

  async function watch() {
    if (!isServed() || document.hidden) return;
    try {
      state = await api.faults();
    } catch {
      return;
    }
    if (!isClosed) draw();
  }

  function add() {
    let timeline;
    try {
      timeline = JSON.parse(editor.state.text);
    } catch (error) {
      return page.fail(new Error(t("notJSON", error.message)));
    }
    editor.change(JSON.stringify({ ...timeline, faults: [...(timeline.faults ?? []), presets[preset]] }, null, 2));
  }

  function inForce() {
    const entries = (state?.active ?? []).map((index) => state.timeline.faults[index]).filter(Boolean);
    if (entries.length === 0) return h("p", { key: "quiet", class: "quiet" }, t("noFaults"));
    return h("ul", { key: "list", class: "in-force" }, entries.map((entry, index) => {
      const { at, for: length, ...fault } = entry;
      const [[name, value]] = Object.entries(fault);
      return h("li", { key: index }, h("span", { class: "chip fate-held" }, name),
        h("code", {}, JSON.stringify(value)));
    }));
  }

  function draw() {
    patch(root, h("div", { key: "faults", class: "sheet" },
      h("h1", {}, t("faults")), h("p", { class: "quiet" }, t("faultsText")),
      isServed()
        ? [
          h("section", { key: "force", class: "panel", "aria-label": t("faultsInForce") },
            h("h2", {}, t("faultsInForce")), inForce()),
          h("div", { key: "presets", class: "inline-form presets" },
            h("label", { class: "field" }, t("preset"),
              h("select", { on: { change: (event) => { preset = event.target.value; } } },
              Object.keys(presets).map((name) => h("option", { key: name, value: name, selected: name === preset },
                t(`preset-${name}`))))),
            h("button", { type: "button", on: { click: add } }, icon("plus"), t("addPreset"))),
          h("div", { key: "editor" }, editorForm(editor, t("faultsEditor"))),
        ]
        : h("p", { key: "none", class: "none" }, t("faultsAbsent"))));
  }

  return {
    resync() {
      if (isServed() && editor.state.text === editor.state.kept) editor.load();
      else draw();
    },
    close() {
      isClosed = true;
      clearInterval(timer);
    },
  };
}
