// Fates of pushes, and why.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { basisMark, copyButton, fateChip, jsonView } from "./parts.js";
import { exact, span } from "./time.js";
import { ruleText, t } from "./words.js";

/** Rules that keep a push, or a part of it, from the user. The last of them explains the outcome. */
const withholds = new Set([
  "unknown-token", "other-environment", "other-topic", "token-gone", "token-expired", "lost-to-uninstalled",
  "stored-powered-off", "stored-offline", "stored-for-power", "replaced-in-storage", "not-stored", "expired-in-storage",
  "stored-too-long", "lost-from-storage", "not-installed", "never-launched", "not-authorized", "denied", "provisional",
  "nothing-to-show", "no-alerts", "no-banner", "no-lock-screen", "no-list", "passive", "silenced-by-focus",
  "filtered-by-focus", "waits-for-summary", "foreground-silent", "no-background-mode", "background-refresh-off",
  "low-power-mode", "force-quit", "held-for-budget", "replaced-while-held", "dropped-at-reset", "voip-stopped",
  "location-budget", "extension-hid", "activity-unknown-type", "activity-not-decoded", "activity-outdated",
  "activity-already-ended", "activity-over-budget", "activity-starts-used-up", "activity-disabled", "activity-limit",
    "activity-incomplete",
  "activity-too-large", "activity-wrong-event", "broadcast-unheard", "voip-not-reported", "channel-unknown",
    "handler-not-called", "replaced-in-place", "removed-by-user", "removed-by-app",
  "dropped-from-list", "dismissed", "dismissal-not-reported",
]);
const isSeen = new Set(["shown", "opened", "updated", "running"]);
/** Outcomes whose last step explains them. */
const isExplainedAtTheEnd = new Set(["rejected", "stored", "held", "dropped", "expired", "woken"]);

/** Step that explains the outcome; undefined when the outcome needs no reason. */
export function reason(push) {
  if (isSeen.has(push.fate)) return undefined;
  return push.steps.findLast((step) => withholds.has(step.rule))
    ?? (isExplainedAtTheEnd.has(push.fate) ? push.steps.at(-1) : undefined);
}

/** Sentence with the outcome and its reason. */
export function verdict(push) {
  const step = reason(push);
  return h("p", { class: `verdict fate-${push.fate}` }, h("strong", {}, t(`verdict-${push.fate}`)),
    step && h("span", {}, ruleText(step.rule, step.text)), step && basisMark(step.basis));
}

/** Steps in their order, with the time since the arrival. */
function stepList(push) {
  if (push.steps.length === 0) return h("p", { class: "quiet" }, t("noSteps"));
  const step = reason(push);
  return h("ol", { class: "steps", "aria-label": t("steps") }, push.steps.map((entry, index) =>
    h("li", { key: index, class: entry === step ? "step decisive" : "step" },
      h("span", { class: "step-time" }, span(Math.max(0, entry.at - push.at))),
      h("span", { class: "step-text" }, ruleText(entry.rule, entry.text), " ",
        h("a", { class: "step-rule", href: `#/rules/${entry.rule}`, title: t("rule") }, entry.rule)),
      basisMark(entry.basis))));
}

function texts(value, name) {
  return h("div", { class: "texts" }, h("h4", {}, name),
    value.title && h("strong", { dir: "auto" }, value.title),
      value.subtitle && h("span", { dir: "auto" }, value.subtitle),
    value.body && h("span", { dir: "auto" }, value.body));
}

/** Notification that a push has left on the device; undefined: none. */
function resultOf(push, device) {
  for (const app of device?.apps ?? []) {
    const notification = app.delivered.find((entry) => entry.push === push.number);
    if (notification) return { app, notification };
    const activity = push.type === "liveactivity" && app.bundle === push.app ? app.activities[0] : undefined;
    if (activity) return { app, activity };
  }
  return undefined;
}

function result(push, device) {
  const found = resultOf(push, device);
  if (!found) {
    return h("div", { class: "result" }, push.text ? [h("p", { class: "result-text", dir: "auto" }, push.text),
      h("p", { class: "quiet" }, t("notInList"))]
      : h("p", { class: "quiet" }, t("nothingOnDevice")));
  }
  if (found.activity) {
    const { activity } = found;
    return h("div", { class: "result" },
      texts({ title: activity.title || activity.type, subtitle: activity.lines.join(" · "),
      body: [activity.leading, activity.trailing].filter(Boolean).join(" · ") },
      `${t("liveActivity")}: ${t(`activity-${activity.state}`)}`));
  }
  const { notification } = found;
  return h("div", { class: "result" },
    notification.original && [texts(notification.original, t("before")),
      h("div", { class: "result-arrow", "aria-hidden": "true" }, icon("more"))],
    texts(notification, notification.original ? t("after") : found.app.name),
    facts([
      [t("identifier"), h("code", {}, notification.identifier)],
      [t("triggerField"), t(`trigger-${notification.trigger}`)],
      notification.badge !== undefined && [t("badge"), notification.badge],
      notification.replaced > 0 && ["", t("replaced", notification.replaced)],
      notification.attachments.length > 0
        && [t("attachment"), notification.attachments.map((file) => t("attachmentType", file.type,
        Math.ceil(file.bytes / 1_000))).join(", ")],
    ]));
}

/** List of names and values; entries that are false are left out. */
export function facts(list) {
  return h("dl", { class: "facts" }, list.filter(Boolean).map(([name, value], index) =>
    h("div", { key: index }, h("dt", {}, name), h("dd", {}, value))));
}

/** All about a push. `device` is its device's view; undefined: not known. */
export function pushDetails(push, device, page, hidesDevice) {
  return h("div", { class: "push-details", key: push.number },
    verdict(push),
    h("h3", {}, t("steps")), stepList(push),
    h("div", { class: "beside" },
      h("section", { "aria-label": t("payload") }, h("h3", {}, t("payload")), jsonView(push.payload, t("payload"))),
      h("section", { "aria-label": t("result") }, h("h3", {}, t("result")), result(push, device))),
    h("h3", {}, t("headers")),
    facts([
      !hidesDevice && [t("device"), push.device === undefined ? t("unknownDevice")
        : h("a", { href: `#/devices/${push.device}`, dir: "auto" }, device?.name ?? t("deviceNumber", push.device))],
      [t("answer"), `${push.status}${push.reason ? ` ${push.reason}` : ""}`],
      ["apns-id", h("span", { class: "with-copy" }, h("code", {}, push.apnsID), copyButton(push.apnsID, "apns-id"))],
      [t("topic"), h("code", {}, push.topic)], [t("type"), push.type], [t("priority"), push.priority],
      push.collapseID !== undefined && [t("collapse"), h("code", { dir: "auto" }, push.collapseID)],
      [t("expiration"), push.expiration === undefined ? t("expirationNone") : push.expiration === 0
        ? t("expirationZero") : exact(push.expiration * 1_000)],
      [t("environment"), t(`environment-${push.environment}`)],
      [t("token"), h("span", { class: "with-copy" }, h("code", { class: "token" }, push.token),
        copyButton(push.token, t("token")))],
      [t("time"), exact(push.at)],
    ]));
}

/** Push in a list, which opens to its details. */
export function pushItem(push, device, page, ui, draw) {
  const isOpen = ui.open === push.number;
  const step = reason(push);
  return h("li", { key: push.number, class: `push-item ${isOpen ? "open" : ""}` },
    h("button", { class: "push-line", "aria-expanded": isOpen ? "true" : "false",
      on: { click: () => { ui.open = isOpen ? null : push.number; draw(); } } },
    fateChip(push.fate),
    h("span", { class: "push-words" }, h("span", { class: "push-title", dir: "auto" }, push.text || push.type),
      h("span", { class: "push-why" }, step ? ruleText(step.rule, step.text) : page.appName(push.app))),
    h("span", { class: "push-time" }, exact(push.at)), icon("more")),
    isOpen && pushDetails(push, device, page, true));
}
