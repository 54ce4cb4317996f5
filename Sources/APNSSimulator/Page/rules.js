// Table of the model's rules with their marks and sources.
import { h, patch } from "./dom.js";
import { api } from "./api.js";
import { basisMark } from "./parts.js";
import { ruleText, t } from "./words.js";

let known = null;

/** Rules by their names. */
export async function loadRules() {
  known ??= new Map((await api.rules()).map((rule) => [rule.rule, rule]));
  return known;
}

export function openRules(root, page, chosen) {
  let list = null;
  let wasShown = false;
  draw();
  loadRules().then((rules) => {
    list = [...rules.values()];
    draw();
  }).catch(page.fail);

  function draw() {
    patch(root, h("div", { key: "rules", class: "scroller", role: "region", tabindex: "0", "aria-label": t("rules") },
      h("div", { class: "sheet" },
      h("h1", {}, t("rules")), h("p", { class: "quiet" }, t("rulesText")),
      list === null ? h("p", {}, t("loading")) : h("div", { class: "table-holder" }, h("table", { class: "table" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("rule")), h("th", { scope: "col" }, t("text")),
          h("th", { scope: "col" }, t("mark")), h("th", { scope: "col" }, t("source")))),
        h("tbody", {}, list.map((rule) =>
          h("tr", { key: rule.rule, id: `rule-${rule.rule}`, class: rule.rule === chosen ? "chosen" : null },
            h("th", { scope: "row" }, h("code", {}, rule.rule)), h("td", {}, ruleText(rule.rule, rule.text)),
            h("td", {}, basisMark(rule.basis)), h("td", { class: "quiet", lang: "en" }, rule.source)))))))));
    if (list && chosen && !wasShown) {
      wasShown = true;
      document.getElementById(`rule-${chosen}`)?.scrollIntoView({ block: "center" });
    }
  }

  return { resync() {}, close() {} };
}
