// Acts of an app's code: badge, removals, start of a Live Activity.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { t } from "./words.js";

export function codeForm(app, page, act) {
  const types = (page.apps.get(app.bundle)?.activities ?? []).map((activity) => activity.type);
  return h("div", { class: "settings", role: "group", "aria-label": t("appCode") },
    h("form", { class: "inline-form", on: { submit: (event) => {
      event.preventDefault();
      act("set-badge", { number: Number(event.target.elements.number.value) });
    } } },
    h("label", { class: "field" }, t("badge"),
      h("input", { name: "number", type: "number", min: "0", max: "99999", value: "0", required: true })),
    h("button", { type: "submit" }, t("set"))),
    h("div", { class: "buttons start" },
      h("button", { disabled: app.delivered.length === 0, on: { click: () => act("remove-all-delivered") } },
        icon("trash"), t("removeAllDelivered")),
      h("button", { disabled: app.pending.length === 0, on: { click: () => act("remove-all-pending") } }, icon("trash"),
        t("removeAllPending"))),
    types.length > 0 && startForm(types, page, act));
}

function startForm(types, page, act) {
  return h("form", { class: "start-form", on: { submit: (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    let payload;
    try {
      payload = { attributes: JSON.parse(form.get("attributes")), "content-state": JSON.parse(form.get("state")) };
    } catch (error) {
      return page.fail(new Error(t("notJSON", error.message)));
    }
    const channel = form.get("channel").trim();
    act("start-activity", { text: form.get("type"), payload, ...(channel === "" ? {} : { choice: channel }) });
  } } },
  h("label", { class: "field" }, t("liveActivity"),
    h("select", { name: "type" }, types.map((type) => h("option", { key: type, value: type }, type)))),
  h("label", { class: "field" }, t("attributes"),
    h("textarea", { name: "attributes", rows: "2", spellcheck: "false", dir: "ltr", value: "{}" })),
  h("label", { class: "field" }, t("contentState"),
    h("textarea", { name: "state", rows: "2", spellcheck: "false", dir: "ltr", value: "{}" })),
  h("label", { class: "field" }, `${t("channel")} (${t("optional")})`,
    h("input", { name: "channel", autocomplete: "off" })),
  h("div", { class: "buttons start" }, h("button", { type: "submit" }, icon("play"), t("startActivity"))));
}
