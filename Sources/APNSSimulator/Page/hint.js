// First steps, while there is no device.
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { curlCommand, portOf, produceCommand, servedEnvironment } from "./command.js";
import { copyButton } from "./parts.js";
import { t } from "./words.js";

export function hint(page, add) {
  const environment = servedEnvironment(page, "sandbox");
  const apps = [...page.apps.values()];
  const app = apps.find((entry) => entry.environment === environment) ?? apps[0];
  const token = "0123456789abcdef".repeat(4);
  const bundle = app?.bundle ?? "com.example.app";
  const curl = curlCommand(page, token, bundle, environment);
  const sluice = produceCommand(page, token, bundle);
  const servers = (page.status?.environments ?? [])
    .map((name) => `127.0.0.1:${portOf(page, name)} (${t(`environment-${name}`)})`).join(", ");
  const refuses = page.status?.settings?.unknownTokens === "refuse";
  return h("section", { class: "hint", "aria-labelledby": "hint-title" },
    h("div", { class: "hint-art", "aria-hidden": "true" }, h("span"), h("span"), h("span")),
    h("h2", { id: "hint-title" }, t("hintTitle")),
    h("p", {}, refuses ? t("hintRefuse") : t("hintText")),
    h("p", {}, h("button", { class: "main-button", on: { click: add } }, icon("plus"), t("newDevice"))),
    command(t("hintCurl"), curl), command(t("hintSluice"), sluice),
    servers !== "" && h("p", { class: "quiet" }, t("hintOwn", servers)));
}

function command(title, text) {
  return h("div", { key: title, class: "command" },
    h("div", { class: "command-head" }, h("h3", {}, title), copyButton(text, title)),
    h("pre", { tabindex: "0", "aria-label": title }, h("code", {}, text)));
}
