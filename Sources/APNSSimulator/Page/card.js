// Card of a device in the grid. Cards are used again, so their elements are made once.
import { patch } from "./dom.js";
import { icon } from "./icons.js";
import { hueOf } from "./parts.js";
import { ago } from "./time.js";
import { t } from "./words.js";

/** Starts the animation of a card. Two equal animations take turns, so that each change begins anew. */
export function pulse(cell) {
  const isFirst = cell.classList.contains("pulse");
  cell.classList.toggle("pulse", !isFirst);
  cell.classList.toggle("pulse-again", isFirst);
}

function part(parent, tag, name) {
  const element = document.createElement(tag);
  element.className = name;
  parent.append(element);
  return element;
}

/** Card of a column of the grid, which is filled again and again. `chosen` receives the position of a clicked card. */
export function createCard(column, chosen) {
  const cell = document.createElement("div");
  cell.setAttribute("role", "gridcell");
  cell.setAttribute("aria-colindex", column + 1);
  cell.className = "card";
  const link = part(cell, "a", "card-link");
  link.tabIndex = -1;
  link.addEventListener("click", () => chosen(card.position));
  const glyph = part(link, "span", "card-phone");
  const badge = part(glyph, "span", "card-badge");
  const head = part(link, "span", "card-head");
  const name = part(head, "span", "card-name");
  name.dir = "auto";
  const age = part(head, "span", "card-age");
  const text = part(link, "span", "card-text");
  text.dir = "auto";
  const foot = part(link, "span", "card-foot");
  const spoken = part(foot, "span", "unseen");
  const state = part(foot, "span", "fact state");
  state.setAttribute("aria-hidden", "true");
  const facts = {};
  for (const kind in factIcons) {
    const fact = part(foot, "span", `fact ${kind}`);
    fact.setAttribute("aria-hidden", "true");
    const count = document.createElement("span");
    patch(fact, icon(factIcons[kind]));
    fact.append(count);
    facts[kind] = { fact, count, shown: -1 };
  }
  const card = { cell, link, glyph, badge, name, age, text, spoken, state, facts, last: undefined, position: 0,
    id: undefined };
  return card;
}

const factIcons = { lock: "lock", delivered: "bell", activities: "activity", stored: "cloud" };

function setFact(card, kind, number) {
  const entry = card.facts[kind];
  if (entry.shown === number) return;
  entry.shown = number;
  entry.fact.hidden = number === 0;
  entry.count.textContent = kind === "lock" || number === 0 ? "" : number;
}

/** Shows a device in a card; undefined: the device is being fetched. */
export function fillCard(card, item) {
  const isEmpty = item === undefined;
  card.cell.classList.toggle("empty", isEmpty);
  if (isEmpty) {
    if (card.last === null) return;
    card.last = null;
    card.name.textContent = "…";
    card.age.textContent = "";
    card.text.textContent = "";
    card.spoken.textContent = "";
    card.state.textContent = "";
    for (const kind in card.facts) setFact(card, kind, 0);
    card.badge.hidden = true;
    card.link.removeAttribute("href");
    return;
  }
  const time = item.lastPushAt === undefined ? "" : ago(item.lastPushAt);
  if (card.age.textContent !== time) card.age.textContent = time;
  if (card.last === item) return;
  card.last = item;
  card.link.href = `#/devices/${item.id}`;
  card.name.textContent = item.name;
  card.text.textContent = item.lastText ?? t(item.lastPushAt === undefined ? "noPushYet" : "nothingShown");
  card.text.classList.toggle("quiet", item.lastText === undefined);
  card.cell.classList.toggle("offline", !item.isOnline);
  card.glyph.style.setProperty("--hue", hueOf(item.id));
  card.badge.hidden = item.badge === 0;
  card.badge.textContent = item.badge > 99 ? "99+" : item.badge;
  card.badge.setAttribute("aria-hidden", "true");
  const facts = [item.isOnline ? t("online") : t("offline")];
  if (item.isLocked) facts.push(t("locked"));
  if (item.badge > 0) facts.push(t("badgeOf", item.badge));
  if (item.delivered > 0) facts.push(t("notificationCount", item.delivered));
  if (item.activities > 0) facts.push(t("activityCount", item.activities));
  if (item.stored > 0) facts.push(t("storedCount", item.stored));
  card.spoken.textContent = facts.join(", ");
  card.state.textContent = facts[0];
  setFact(card, "lock", item.isLocked ? 1 : 0);
  setFact(card, "delivered", item.delivered);
  setFact(card, "activities", item.activities);
  setFact(card, "stored", item.stored);
}
