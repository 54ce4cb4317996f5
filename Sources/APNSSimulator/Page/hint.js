// First steps, while there is no device.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { curlCommand, produceCommand } from "./command.js";
import { copyButton } from "./parts.js";
import { t } from "./words.js";

export function hint(page, add) {
  const sandbox = page.status?.sandboxPort ?? 2197;
  const production = page.status?.productionPort ?? 2198;
  const app = [...page.apps.values()].find((entry) => entry.environment === "sandbox") ?? [...page.apps.values()][0];
  const token = "0123456789abcdef".repeat(4);
  const bundle = app?.bundle ?? "com.example.app";
  const curl = curlCommand(page, token, bundle, app?.environment ?? "sandbox");
  const sluice = produceCommand(token, bundle);
  const refuses = page.status?.settings?.unknownTokens === "refuse";
  return h("section", { class: "hint", "aria-labelledby": "hint-title" },
    h("div", { class: "hint-art", "aria-hidden": "true" }, h("span"), h("span"), h("span")),
    h("h2", { id: "hint-title" }, t("hintTitle")),
    h("p", {}, refuses ? t("hintRefuse") : t("hintText")),
    h("p", {}, h("button", { class: "main-button", on: { click: add } }, icon("plus"), t("newDevice"))),
    command(t("hintCurl"), curl), command(t("hintSluice"), sluice),
    h("p", { class: "quiet" }, t("hintOwn", sandbox, production)));
}

function command(title, text) {
  return h("div", { key: title, class: "command" },
    h("div", { class: "command-head" }, h("h3", {}, title), copyButton(text, title)),
    h("pre", { tabindex: "0", "aria-label": title }, h("code", {}, text)));
}
