// Small parts that several sections show.
import { announce, h } from "./dom.js";
import { icon } from "./icons.js";
import { t } from "./words.js";

/** Button that copies a text. `name` is what the text is, for screen readers. */
export function copyButton(text, name) {
  return h("button", { type: "button", class: "copy", "aria-label": `${t("copy")}: ${name}`, title: t("copy"),
    on: { click: (event) => copy(text, event.currentTarget) } }, icon("copy"));
}

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure context there is no clipboard; the older command works.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "unseen";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.classList.add("done");
  announce(t("copied"));
  setTimeout(() => button.classList.remove("done"), 1_200);
}

/** Outcome of a push in a coloured label. */
export function fateChip(fate) { return h("span", { class: `chip fate fate-${fate}` }, t(`fate-${fate}`)); }

/** Mark of a rule. */
export function basisMark(basis) {
  return h("span", { class: `mark mark-${basis}`, title: t(`basisText-${basis}`) }, t(`basis-${basis}`));
}

/** JSON with a button that copies it. */
export function jsonView(value, name) {
  const text = JSON.stringify(value, null, 2);
  return h("div", { class: "json" }, copyButton(text, name),
    h("pre", { tabindex: "0", role: "group", "aria-label": name, dir: "ltr" }, h("code", {}, text)));
}

/** Picture of an app: its emoji, or the first letter of its name. */
export function appIcon(name, emoji, bundle, extra) {
  let hue = 0;
  for (const letter of bundle) hue = (hue * 31 + letter.codePointAt(0)) % 360;
  return h("span", { class: `app-icon ${emoji ? "with-emoji" : ""} ${extra ?? ""}`, "aria-hidden": "true",
    vars: { "--hue": hue } },
    emoji ? h("span", { class: "emoji" }, emoji) : ([...name][0] ?? "?").toUpperCase());
}

/** Switch with a label. */
export function toggle(label, isOn, change, extra) {
  return h("label", { key: label, class: "toggle" }, h("span", {}, label),
    h("input", { type: "checkbox", role: "switch", checked: isOn, ...extra,
      on: { change: (event) => change(event.target.checked) } }));
}

/** Chooser with a label. */
export function chooser(label, value, options, change) {
  return h("label", { key: label, class: "toggle" }, h("span", {}, label),
    h("select", { on: { change: (event) => change(event.target.value) } },
      options.map(([option, text]) => h("option", { key: option, value: option, selected: option === value }, text))));
}

/** Hue of a device's picture, from green over blue to red. */
export function hueOf(id) { return 160 + ((id * 47) % 190); }
