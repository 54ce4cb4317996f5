// Texts of the interface in the reader's language.
import en from "./words-en.js";
import de from "./words-de.js";
import rulesDe from "./rules-de.js";

const tables = { en, de };
let current = "en";

/** Languages that the page speaks, with their own names. */
export const languages = { en: "English", de: "Deutsch" };

export function language() { return current; }

/** Language with the reader's region, for dates and numbers. */
export function locale() {
  return (navigator.languages ?? []).find((tag) => tag.toLowerCase().startsWith(current)) ?? current;
}

export function setLanguage(tag) {
  current = tag in tables ? tag : "en";
  document.documentElement.lang = current;
}

export function preferredLanguage() {
  for (const tag of navigator.languages ?? [navigator.language]) {
    const short = tag.slice(0, 2).toLowerCase();
    if (short in tables) return short;
  }
  return "en";
}

/** Text by its key; `{0}` stands for the first value. Tables may hold functions for plurals. */
export function t(key, ...values) {
  const text = tables[current][key] ?? en[key] ?? key;
  if (typeof text === "function") return text(...values);
  return values.length === 0 ? text : text.replace(/\{(\d)\}/g, (_, index) => values[index] ?? "");
}

export function number(value) { return new Intl.NumberFormat(locale()).format(value); }

/** Sentence of a rule; the simulator's own when the language has none. */
export function ruleText(rule, text) { return (current === "de" && rulesDe[rule]) || text; }
