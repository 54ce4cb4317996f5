// Tokens, waiting pushes and notifications, and responses of a device.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { appIcon, copy, copyButton, jsonView } from "./parts.js";
import { curlCommand } from "./command.js";
import { deviceTime, exact, until } from "./time.js";
import { ruleText, t } from "./words.js";

export function tokensTab(device, page) {
  return h("div", { class: "app-list" }, device.apps.map((app) =>
    h("section", { key: app.bundle, class: "panel", "aria-label": app.name },
      h("div", { class: "app-head" }, appIcon(app.name, app.icon, app.bundle, "small"),
        h("h2", { dir: "auto" }, app.name)),
      app.tokens.length === 0 ? h("p", { class: app.wasLaunched ? "fault" : "quiet" },
        t(app.wasLaunched ? "registrationFailed" : "noTokens"))
        : h("ul", { class: "tokens" },
          app.tokens.map((token) => h("li", { key: token.token, class: token.isValid ? "" : "invalid" },
          h("div", { class: "chips" }, h("span", { class: "chip" }, t(`purpose-${token.purpose}`)),
            h("span", { class: "chip" }, t(`environment-${token.environment}`)),
            h("span", { class: `chip ${token.isValid ? "fate-shown" : "fate-rejected"}` },
              token.isValid || token.invalidSince === undefined ? t("valid")
                : t("invalidSince", exact(token.invalidSince)))),
          h("div", { class: "with-copy" }, h("code", { class: "token" }, token.token),
            copyButton(token.token, t("token")),
            h("button", { class: "small", on: { click: (event) => copy(
              curlCommand(page, token.token, token.bundle, token.environment, token.purpose), event.currentTarget) } },
            icon("copy"), t("copyCurl")))))))));
}

export function waitingTab(device, page, ui, hooks) {
  const pending = device.apps.flatMap((app) => app.pending.map((entry) => ({ app, entry })))
    .sort((a, b) => (a.entry.at ?? Infinity) - (b.entry.at ?? Infinity));
  const isEmpty = device.stored.length + device.summary.length + pending.length === 0;
  return h("div", { class: "app-list" },
    isEmpty && h("p", { key: "none", class: "none" }, t("noWaiting")),
    device.stored.length > 0 && h("section", { key: "stored", class: "panel", "aria-label": t("storedByAPNs") },
      h("h2", {}, t("storedByAPNs")),
      h("ul", { class: "waiting" }, device.stored.map((entry) => h("li", { key: entry.push },
        h("span", { class: "waiting-words" }, h("strong", { dir: "auto" }, page.appName(entry.app)),
          h("span", {}, ruleText(entry.rule, page.rules?.get(entry.rule)?.text ?? entry.rule)),
          h("a", { href: `#/pushes/${entry.push}` }, t("push", entry.push))),
        h("span", { class: "quiet" }, exact(entry.since), h("br"), t("expires", until(entry.expires))))))),
    device.summary.length > 0 && h("section", { key: "summary", class: "panel", "aria-label": t("summaryWaits") },
      h("h2", {}, t("summaryWaits")),
      device.nextSummaryAt !== undefined && h("p", { class: "quiet" },
        t("nextSummary", deviceTime(device.nextSummaryAt, device.state.timeZoneMinutes))),
      h("ul", { class: "waiting" }, device.summary.map((entry) => h("li", { key: `${entry.app} ${entry.identifier}` },
        h("span", { class: "waiting-words" }, h("strong", { dir: "auto" }, page.appName(entry.app)),
          h("code", {}, entry.identifier)))))),
    pending.length > 0 && h("section", { key: "pending", class: "panel", "aria-label": t("pending") },
      h("h2", {}, t("pending")),
      h("ul", { class: "waiting" },
        pending.map(({ app, entry }) => h("li", { key: `${app.bundle} ${entry.identifier}` },
        appIcon(app.name, app.icon, app.bundle, "small"),
        h("span", { class: "waiting-words" }, h("strong", { dir: "auto" },
          entry.title || entry.body || entry.identifier),
          h("span", { class: "quiet" }, t(`trigger-${entry.trigger}`), entry.repeats && ` · ${t("repeats")}`,
            entry.at !== undefined && ` · ${until(entry.at)}`),
          h("code", {}, entry.identifier)),
        h("button", { "aria-label": `${t("removePending")}: ${entry.identifier}`,
          on: { click: () => hooks.act({ action: "remove-pending", app: app.bundle, identifier: entry.identifier }) } },
            t("removePending")))))),
    h("section", { key: "new", class: "panel", "aria-label": t("newLocal") }, h("h2", {}, t("newLocal")),
      localForm(device, ui, hooks)));
}

function localForm(device, ui, hooks) {
  const kind = ui.form.trigger ?? "interval";
  return h("form", { class: "local-form", on: { submit: async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const trigger = { repeats: form.get("repeats") !== null };
    if (kind === "interval") trigger.interval = Number(form.get("seconds"));
    if (kind === "calendar") {
      const [hours, minutes] = form.get("time").split(":").map(Number);
      trigger["minute-of-day"] = hours * 60 + minutes;
    }
    if (kind === "location") trigger.region = form.get("region");
    const identifier = form.get("identifier").trim() || crypto.randomUUID?.() || `local-${Date.now()}`;
    const payload = { aps: { alert: { title: form.get("title"), body: form.get("body") }, sound: "default" } };
    const element = event.target;
    const isDone = await hooks.act({ action: "schedule", app: form.get("app"),
      request: { identifier, payload, ...(kind === "none" ? {} : { trigger }) } });
    if (isDone) for (const name of ["title", "body", "identifier"]) element.elements[name].value = "";
  } } },
  h("label", { class: "field" }, t("app"), h("select", { name: "app" },
    device.apps.map((app) => h("option", { key: app.bundle, value: app.bundle }, app.name)))),
  h("label", { class: "field" }, t("titleField"),
    h("input", { name: "title", dir: "auto", required: true, autocomplete: "off" })),
  h("label", { class: "field" }, t("bodyField"), h("input", { name: "body", dir: "auto", autocomplete: "off" })),
  h("label", { class: "field" }, `${t("identifier")} (${t("optional")})`,
    h("input", { name: "identifier", autocomplete: "off" })),
  h("label", { class: "field" }, t("triggerField"),
    h("select", { on: { change: (event) => { ui.form.trigger = event.target.value; hooks.draw(); } } },
    ["interval", "calendar", "location", "none"].map((name) => h("option",
      { key: name, value: name, selected: name === kind }, t(`trigger-${name}`))))),
  kind === "interval" && h("label", { key: "seconds", class: "field" }, t("seconds"),
    h("input", { name: "seconds", type: "number", min: "0.1", step: "any", value: "60", required: true })),
  kind === "calendar" && h("label", { key: "time", class: "field" }, t("minuteOfDay"),
    h("input", { name: "time", type: "time", value: "08:30", required: true })),
  kind === "location" && h("label", { key: "region", class: "field" }, t("region"),
    h("input", { name: "region", dir: "auto", required: true, autocomplete: "off" })),
  kind !== "none" && h("label", { key: "repeats", class: "check" }, h("input", { type: "checkbox", name: "repeats" }),
    t("repeating")),
  h("div", { class: "buttons start" }, h("button", { type: "submit" }, icon("plus"), t("schedule"))));
}

export function responsesTab(device) {
  const list = device.apps.flatMap((app) => app.responses.map((response) => ({ app, response }))).sort((a,
    b) => b.response.at - a.response.at);
  if (list.length === 0) return h("p", { class: "none" }, t("noResponses"));
  return h("ul", { class: "app-list plain-list" }, list.map(({ app, response }) =>
    h("li", { key: `${app.bundle} ${response.at} ${response.identifier} ${response.action}`, class: "panel" },
      h("div", { class: "app-head" }, appIcon(app.name, app.icon, app.bundle, "small"),
        h("strong", { dir: "auto" }, app.name), h("span", { class: "quiet" }, exact(response.at))),
      jsonView(response, t("tabResponses")))));
}
