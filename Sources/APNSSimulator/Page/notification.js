// Notifications: cards, banner, notification centre, expanded view.
import { h } from "./dom.js";
import { api } from "./api.js";
import { icon } from "./icons.js";
import { appIcon } from "./parts.js";
import { ago, deviceTime } from "./time.js";
import { t } from "./words.js";

/** Texts as the screen shows them: hidden previews replace the notification's own. */
export function shownTexts(app, notification) {
  const texts = notification.hidden ?? notification;
  return { title: texts.title || (texts.body || texts.subtitle ? "" : app.name), subtitle: texts.subtitle,
    body: texts.body };
}

function contents(app, notification, options) {
  const texts = shownTexts(app, notification);
  const picture = notification.hidden ? undefined
    : notification.attachments.find((file) => file.type.startsWith("image/"));
  return [
    h("span", { class: "note-head" }, appIcon(app.name, app.icon, app.bundle, "small"),
      h("span", { class: "note-app", dir: "auto" }, app.name),
      (notification.level === "time-sensitive" || notification.level === "critical")
        && h("span", { class: `note-level ${notification.level}` }, t(`level-${notification.level}`)),
      h("span", { class: "note-time" }, ago(notification.at))),
    h("span", { class: "note-text" },
      h("span", { class: "note-words" },
        texts.title && (texts.title !== app.name || options?.full) && h("strong", { dir: "auto" }, texts.title),
        texts.subtitle && h("span", { class: "note-subtitle", dir: "auto" }, texts.subtitle),
        texts.body && h("span", { class: options?.full ? "note-body full" : "note-body", dir: "auto" }, texts.body)),
      picture && !options?.full
        && h("img", { class: "note-picture", src: api.attachment(picture.id), alt: t("attachment"), loading: "lazy" })),
  ];
}

function names(app, notification) { return { app: app.bundle, identifier: notification.identifier }; }

/** Notification on lock screen, in the centre or as a banner: tapped by its text, with buttons beside it. */
export function card(device, app, notification, ui, hooks, extra) {
  const name = names(app, notification);
  return h("article", { class: `note ${extra?.class ?? ""}` },
    h("button", { class: "note-main",
      on: { click: () => hooks.act({ action: "tap", ...name }, () => { ui.centre = false; ui.expanded = null; }) } },
      contents(app, notification)),
    h("div", { class: "note-tools" },
      h("button", { "aria-label": t("expand"), title: t("expand"),
        on: { click: () => expand(app, notification, ui, hooks) } }, icon("more")),
      extra?.flick
        ? h("button", { "aria-label": t("flick"), title: t("flick"),
          on: { click: () => hooks.act({ action: "flick", ...name }) } }, icon("close"))
        : h("button", { "aria-label": t("clear"), title: t("clear"),
          on: { click: () => hooks.act({ action: "dismiss", ...name }) } }, icon("close"))));
}

function expand(app, notification, ui, hooks) {
  ui.expanded = names(app, notification);
  ui.returnTo = document.activeElement;
  hooks.draw();
  hooks.act({ action: "expand", ...ui.expanded });
}

function collapse(ui, hooks) {
  ui.expanded = null;
  hooks.draw();
  ui.returnTo?.focus?.();
}

export function banner(device, app, notification, ui, hooks) {
  return h("div", { class: "banner", role: "group", "aria-label": t("banner"),
    key: `${app.bundle} ${notification.identifier} ${notification.at}` },
    card(device, app, notification, ui, hooks, { flick: true }));
}

export function centre(device, ui, hooks) {
  // A notification that waits for the summary is not in the list yet.
  const waits = new Set(device.summary.map((entry) => `${entry.app} ${entry.identifier}`));
  const groups = device.apps.flatMap((app) => app.groups.map((group) => ({ app, group,
    list: group.identifiers.filter((identifier) => !waits.has(`${app.bundle} ${identifier}`))
      .map((identifier) => app.delivered.find((entry) => entry.identifier === identifier)).filter(Boolean) })))
    .filter((entry) => entry.list.length > 0)
    .sort((a, b) => b.list[0].at - a.list[0].at);
  const close = () => {
    ui.centre = false;
    hooks.draw();
    document.querySelector(".status-time")?.focus();
  };
  return h("div", { class: "centre", role: "region", "aria-label": t("notificationCentre"),
    on: { keydown: (event) => { if (event.key === "Escape") close(); } } },
    h("div", { class: "centre-head" }, h("h2", {}, t("notificationCentre")),
      groups.length > 0 && h("button", { class: "pill", on: { click: () => hooks.act({ action: "clear-all" }) } },
        t("clearAll")),
      h("button", { class: "pill round", "aria-label": t("close"), on: { click: close } }, icon("close"))),
    h("div", { class: "centre-list", tabindex: "0", role: "group", "aria-label": t("notificationCentre") },
      device.summary.length > 0 && h("div", { key: "summary" }, summaryCard(device)),
      groups.length === 0 && h("p", { key: "none", class: "centre-none" }, t("noNotifications")),
      groups.map((entry) => groupStack(device, entry, ui, hooks))));
}

/** Notifications that wait for the scheduled summary. */
export function summaryCard(device) {
  return h("div", { class: "card-note summary-card" }, h("strong", {}, t("summaryCard")),
    h("span", {}, t("notificationCount", device.summary.length)),
    device.nextSummaryAt !== undefined
      && h("span", {}, t("nextSummary", deviceTime(device.nextSummaryAt, device.state.timeZoneMinutes))));
}

function groupStack(device, { app, group, list }, ui, hooks) {
  const key = `${app.bundle} ${group.thread}`;
  const isOpen = ui.groups.has(key);
  const flip = () => {
    if (isOpen) ui.groups.delete(key);
    else ui.groups.add(key);
    hooks.draw();
  };
  return h("div", { key, role: "group", class: `stack ${list.length > 1 && !isOpen ? "closed" : ""}`,
    "aria-label": group.thread ? `${app.name}, ${group.thread}` : app.name },
    list.length > 1 && isOpen && h("div", { key: "head", class: "stack-head" }, h("strong", { dir: "auto" }, app.name),
      h("button", { class: "pill", on: { click: flip } }, t("showLess")),
      h("button", { class: "pill",
        on: { click: () => hooks.act({ action: "clear-group", app: app.bundle, text: group.thread }) } },
        t("clearGroup"))),
    (isOpen ? list : list.slice(0, 1)).map((notification) =>
      h("div", { key: `note ${notification.identifier}` }, card(device, app, notification, ui, hooks))),
    list.length > 1 && !isOpen
      && h("button", { key: "more", class: "stack-more", "aria-expanded": "false",
      "aria-label": t("showGroup", list.length), on: { click: flip } },
      h("span", { dir: "auto" }, group.summary ?? t("moreInGroup", list.length - 1))),
    app.authorization === "provisional" && h("div", { key: "keep", class: "keep" }, h("span", {}, t("provisionalAsk")),
      h("button", { class: "pill", on: { click: () => hooks.act({ action: "keep", app: app.bundle, on: true }) } },
        t("keep")),
      h("button", { class: "pill", on: { click: () => hooks.act({ action: "keep", app: app.bundle, on: false }) } },
        t("turnOff"))));
}

/** Notification with all its text, attachments, content extension and actions. */
export function expandedView(device, app, notification, ui, hooks) {
  const custom = notification.hidden ? undefined : notification.custom;
  const name = names(app, notification);
  const key = `${app.bundle} ${notification.identifier}`;
  return h("div", { key, class: "expanded", role: "dialog",
    "aria-label": shownTexts(app, notification).title || app.name, tabindex: "-1",
    ready: (element) => element.focus(),
    on: { keydown: (event) => { if (event.key === "Escape") { event.stopPropagation(); collapse(ui, hooks); } } } },
  h("div", { class: "expanded-card" },
    h("div", { class: "expanded-head" }, custom?.title
      ? h("span", { class: "note-head" }, appIcon(app.name, app.icon, app.bundle, "small"),
        h("strong", { dir: "auto" }, custom.title))
      : h("span", { class: "note-head" }, appIcon(app.name, app.icon, app.bundle, "small"),
        h("span", { class: "note-app", dir: "auto" }, app.name),
        h("span", { class: "note-time" }, ago(notification.at))),
    h("button", { class: "pill round", "aria-label": t("close"), on: { click: () => collapse(ui, hooks) } },
      icon("close"))),
    custom && customView(custom, app, notification, ui, hooks),
    !(custom?.hidesDefaultContent) && h("div", { class: "expanded-text" },
      contents(app, notification, { full: true })[1]),
    !notification.hidden && !custom && notification.attachments.map((file) => attachment(file)),
    notification.replaced > 0 && h("p", { class: "expanded-note" }, t("replaced", notification.replaced))),
  h("div", { class: "expanded-actions" },
    h("button", { key: "open",
      on: { click: () => hooks.act({ action: "tap", ...name }, () => { ui.expanded = null; ui.centre = false; }) } },
      t("open")),
    notification.actions.map((action) => actionButton(action, app, notification, ui, hooks)),
    h("button", { key: "clear",
      on: { click: () => hooks.act({ action: "dismiss", ...name }, () => { ui.expanded = null; }) } }, t("clear"))));
}

function attachment(file) {
  const label = `${t("attachment")}: ${t("attachmentType", file.type, Math.ceil(file.bytes / 1_000))}`;
  if (file.type.startsWith("image/")) return h("img",
    { key: file.id, class: "expanded-picture", src: api.attachment(file.id), alt: label });
  return h("p", { key: file.id, class: "expanded-note" }, label);
}

/** Time that a content extension shows what an action has changed before the view closes, in milliseconds. */
const farewellTime = 1_500;

/** Chooses an action of a notification. */
function choose(action, text, app, notification, ui, hooks) {
  hooks.act({ action: "act", ...names(app, notification), choice: action.identifier, text }, () => {
    // A custom view may stay open after an action.
    if (action.then === "stay") return;
    ui.expanded = null;
    if (!notification.custom || action.shows === undefined) return;
    const status = action.shows.replaceAll("{text}", text ?? "");
    ui.farewell = { app, notification: { ...notification, actions: [],
      custom: { ...notification.custom, isInteractive: false, status } } };
    setTimeout(() => {
      ui.farewell = null;
      hooks.draw();
    }, farewellTime);
  });
}

function actionButton(action, app, notification, ui, hooks) {
  const options = action.options ?? [];
  if (action.input) {
    return h("form", { key: action.identifier, class: "reply", on: { submit: (event) => {
      event.preventDefault();
      choose(action, event.target.elements.reply.value, app, notification, ui, hooks);
    } } },
    h("input", { name: "reply", dir: "auto", autocomplete: "off", "aria-label": action.title,
      placeholder: action.input.placeholder ?? t("replyHere"), required: true }),
    h("button", { class: "reply-send" }, action.input.button || t("send")));
  }
  return h("button", { key: action.identifier, class: options.includes("destructive") ? "destructive" : "", dir: "auto",
    on: { click: () => choose(action, undefined, app, notification, ui, hooks) } },
    options.includes("authentication") && icon("lock"), action.title);
}

function customView(custom, app, notification, ui, hooks) {
  return h("div", { class: "custom", role: "group", "aria-label": t("contentExtension"),
    vars: { "--ratio": Math.min(2, Math.max(0.1, custom.sizeRatio)) } },
    custom.fields.map((field, index) => customField(field, index, custom, app, notification, ui, hooks)),
    custom.status && h("p", { key: "status", class: "custom-status", role: "status", dir: "auto" }, custom.status));
}

function customField(field, index, custom, app, notification, ui, hooks) {
  const label = field.label ?? "";
  const value = field.value ?? "";
  const isOff = !custom.isInteractive;
  switch (field.kind) {
    case "image": {
      const picture = notification.attachments.find((file) => file.type.startsWith("image/"));
      if (!picture) return h("div", { key: index, class: "custom-missing", "aria-hidden": "true" }, icon("screen"));
      return h("img", { key: index, class: "expanded-picture", src: api.attachment(picture.id),
        alt: label || t("attachment") });
    }
    case "progress": {
      const share = Number(value);
      return h("label", { key: index, class: "custom-field" }, h("span", { dir: "auto" }, label),
        h("progress", { max: "1", value: Number.isFinite(share) ? Math.min(1,
          Math.max(0, share > 1 ? share / 100 : share)) : 0, "aria-label": label || t("contentExtension") }));
    }
    case "input":
      return h("input", { key: index, class: "custom-input", dir: "auto", disabled: isOff,
        "aria-label": label || t("contentExtension"), placeholder: label, value });
    case "button": {
      // A button of the view chooses the action of its value, with what is typed in the view.
      const action = notification.actions.find((candidate) => candidate.identifier === (value || label));
      return h("button", { key: index, class: "custom-button", dir: "auto", disabled: isOff || !action,
        on: { click: (event) => {
        const typed = event.currentTarget.closest(".custom").querySelector("input")?.value ?? "";
        choose(action, action.input ? typed : undefined, app, notification, ui, hooks);
      } } }, label || value);
    }
    default:
      return h("p", { key: index, class: "custom-field" },
        label && h("span", { class: "custom-label", dir: "auto" }, label), h("span", { dir: "auto" }, value));
  }
}
