// Live Activities on lock screen and Dynamic Island.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { appIcon } from "./parts.js";
import { simulatorNow, until } from "./time.js";
import { t } from "./words.js";

/** Time that an alerting update keeps the island open, in milliseconds. */
const alertTime = 5_000;

function bar(activity) {
  if (activity.progress === undefined) return null;
  const share = Math.min(1, Math.max(0, activity.progress));
  return h("progress", { class: "activity-bar", max: "1", value: share,
    "aria-label": activity.title || t("liveActivity") });
}

/** Card of the lock screen. */
export function activityCard(app, activity, hooks) {
  const act = (action, on) => hooks.act({ action, app: app.bundle, number: activity.id, on });
  return h("article", { class: `activity ${activity.state}`,
    "aria-label": `${t("liveActivity")}: ${activity.title || activity.type}` },
    h("button", { class: "activity-main", on: { click: () => act("tap-activity") } },
      h("span", { class: "note-head" }, appIcon(app.name, app.icon, app.bundle, "small"),
        h("span", { class: "note-app", dir: "auto" }, app.name),
        activity.state !== "active" && h("span", { class: `activity-state ${activity.state}` },
          t(`activity-${activity.state}`)),
        activity.state === "ended" && activity.dismissAt !== undefined
          && h("span", { class: "note-time" }, until(activity.dismissAt))),
      h("span", { class: "activity-row" },
        activity.leading && h("span", { class: "activity-leading", dir: "auto" }, activity.leading),
        h("span", { class: "activity-words" }, h("strong", { dir: "auto" }, activity.title || activity.type),
          activity.lines.map((line, index) => h("span", { key: index, dir: "auto" }, line))),
        activity.trailing && h("span", { class: "activity-trailing", dir: "auto" }, activity.trailing))),
    bar(activity),
    h("div", { class: "activity-tools" },
      (activity.state === "active" || activity.state === "stale")
        && h("button", { key: "end", "aria-label": t("endActivity"), title: t("endActivity"),
          on: { click: () => act("end-activity") } }, icon("stop")),
      h("button", { key: "dismiss", "aria-label": t("dismissActivity"), title: t("dismissActivity"),
        on: { click: () => act("dismiss-activity") } }, icon("close"))));
}

/** Order of activities: the most relevant first, ties by start. */
export const byRelevance = (a, b) => b.relevance - a.relevance || a.startedAt - b.startedAt;

/** Activities in the island: the most relevant of each app. */
function islandActivities(device) {
  const list = [];
  for (const app of device.apps) {
    const running = app.activities.filter((activity) => activity.state === "active" || activity.state === "stale")
      .sort(byRelevance);
    if (running.length > 0) list.push({ app, activity: running[0] });
  }
  return list.sort((a, b) => byRelevance(a.activity, b.activity));
}

export function island(device, ui, hooks) {
  const list = device.state.isLocked ? [] : islandActivities(device);
  const alerting = list.find(({ activity }) => activity.alerted && simulatorNow() - activity.updatedAt < alertTime);
  if (list.length === 0) return h("span", { key: "island", class: "island", "aria-hidden": "true" });
  const open = alerting ?? list.find(({ activity }) => activity.id === ui.island);
  if (open) return expanded(open, ui, hooks);
  if (list.length === 1) {
    const [{ app, activity }] = list;
    return h("button", { key: "island", class: "island compact",
      "aria-label": `${t("islandOpen")}: ${activity.title || app.name}`, title: t("islandOpen"),
      on: { click: () => { ui.island = activity.id; hooks.draw(); } } },
    h("span", { class: "island-side", dir: "auto" }, appIcon(app.name, app.icon, app.bundle, "tiny"), activity.leading),
    h("span", { class: "island-side end", dir: "auto" }, activity.trailing));
  }
  return h("span", { key: "island", class: "island-pair" }, list.slice(0, 2).map(({ app, activity }, index) =>
    h("button", { key: activity.id, class: index === 0 ? "island minimal attached" : "island minimal",
      title: t("islandOpen"),
      "aria-label": `${t("islandOpen")}: ${activity.title || app.name}`,
        on: { click: () => { ui.island = activity.id; hooks.draw(); } } },
    appIcon(app.name, app.icon, app.bundle, "tiny"))));
}

function expanded({ app, activity }, ui, hooks) {
  return h("div", { key: "island", class: "island open", role: "group",
    "aria-label": `${t("island")}: ${activity.title || app.name}`,
    on: { keydown: (event) => { if (event.key === "Escape") { ui.island = null; hooks.draw(); } } } },
  h("button", { class: "island-main",
    on: { click: () => hooks.act({ action: "tap-activity", app: app.bundle, number: activity.id }) } },
    h("span", { class: "island-top" },
      h("span", { class: "island-side", dir: "auto" }, appIcon(app.name, app.icon, app.bundle, "small"),
        activity.leading),
      h("span", { class: "island-side end", dir: "auto" }, activity.trailing)),
    h("strong", { dir: "auto" }, activity.title || activity.type),
    activity.lines.map((line, index) => h("span", { key: index, class: "island-line", dir: "auto" }, line))),
  bar(activity),
  h("button", { class: "island-close", "aria-label": t("islandClose"),
    on: { click: () => { ui.island = null; hooks.draw(); } } }, icon("close")));
}
