// Editor of a text in JSON that the simulator keeps; declarations of apps.
import { h, patch } from "./dom.js";
import { api } from "./api.js";
import { appIcon } from "./parts.js";
import { icon } from "./icons.js";
import { t } from "./words.js";

/** State of an editor: text, its former form, and the fault. */
export function makeEditor(draw, load, store) {
  const state = { text: "", kept: "", fault: null, isSaved: false, isLoaded: false };
  return {
    state,
    async load() {
      try {
        state.text = JSON.stringify(await load(), null, 2);
        state.kept = state.text;
        state.fault = null;
        state.isLoaded = true;
      } catch (error) {
        state.fault = t("failed", error.message || t("noAnswer"));
      }
      state.isSaved = false;
      draw();
    },
    /** Replaces the text, which is not stored yet. */
    change(text) {
      state.text = text;
      state.fault = null;
      state.isSaved = false;
      draw();
    },
    async save(event) {
      event.preventDefault();
      state.isSaved = false;
      try {
        JSON.parse(state.text);
      } catch (error) {
        state.fault = t("notJSON", error.message);
        return draw();
      }
      try {
        await store(state.text);
        state.kept = state.text;
        state.fault = null;
        state.isSaved = true;
      } catch (error) {
        state.fault = t("failed", error.message || t("noAnswer"));
      }
      draw();
    },
  };
}

export function editorForm(editor, label) {
  const { state } = editor;
  return h("form", { class: "editor", on: { submit: (event) => editor.save(event) } },
    h("label", { class: "field" }, label,
      h("textarea", { id: "editor", value: state.text, rows: "22", spellcheck: "false", dir: "ltr", autocomplete: "off",
        "aria-invalid": state.fault ? "true" : null, "aria-describedby": state.fault ? "editor-fault" : null,
        on: { input: (event) => { state.text = event.target.value; } } })),
    state.fault && h("p", { key: "fault", id: "editor-fault", class: "fault", role: "alert" }, state.fault),
    state.isSaved && h("p", { key: "saved", class: "saved", role: "status" }, t("saved")),
    h("div", { class: "buttons" },
      h("button", { type: "button", on: { click: () => editor.load() } }, icon("refresh"), t("reload")),
      h("button", { type: "submit", class: "main-button" }, t("save"))));
}

export function openApps(root, page, chosen) {
  let bundle = chosen;
  let editor = null;
  choose(chosen);

  function choose(name) {
    bundle = name;
    editor = null;
    if (bundle === undefined) return draw();
    if (bundle === "new") {
      const start = { bundle: "com.example.new", name: "New app", environment: "sandbox", purposes: ["alert"] };
      editor = makeEditor(draw, async () => start, (text) => put(JSON.parse(text).bundle ?? "", text));
    } else {
      editor = makeEditor(draw, async () => page.apps.get(bundle) ?? { bundle }, (text) => put(bundle, text));
    }
    editor.load();
  }

  async function put(name, text) {
    await api.putApp(name, text);
    await page.loadApps();
    if (bundle !== name) location.hash = `#/apps/${encodeURIComponent(name)}`;
  }

  function draw() {
    patch(root, h("div", { key: "apps", class: "split" },
      h("div", { class: "split-list" },
        h("h1", {}, t("apps")), h("p", { class: "quiet" }, t("appsText")),
        h("ul", { class: "plain-list" },
          [...page.apps.values()].map((app) =>
            h("li", { key: app.bundle }, h("a", { class: "app-link", href: `#/apps/${encodeURIComponent(app.bundle)}`,
              "aria-current": app.bundle === bundle ? "true" : null },
            appIcon(app.name ?? app.bundle, app.icon, app.bundle),
            h("span", {}, h("strong", { dir: "auto" }, app.name ?? app.bundle), h("small", {}, app.bundle)))))),
        h("a", { class: "button", href: "#/apps/new" }, icon("plus"), t("newApp"))),
      h("section", { class: "split-detail", "aria-label": t("appEditor") },
        editor ? editorForm(editor, t("appEditor")) : h("p", { class: "none" }, t("chooseApp")))));
  }

  return {
    accepts: (route) => route[0] === "apps",
    go: (route) => choose(route[1]),
    events: (events) => { if (events.some((event) => event.kind === "app")) draw(); },
    resync: draw,
    close() {},
  };
}
