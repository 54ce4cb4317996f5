// Dialog that makes devices.
import { h, patch } from "./dom.js";
import { api } from "./api.js";
import { t } from "./words.js";

/** Asks for name, number and apps. Returns the numbers of the new devices; undefined when the user cancels. */
export function askForDevices(page) {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    dialog.className = "dialog";
    dialog.setAttribute("aria-labelledby", "new-device-title");
    let made;
    let fault = null;
    draw();
    document.body.append(dialog);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(made);
    });
    dialog.showModal();

    function draw() {
      patch(dialog, h("form", { method: "dialog", on: { submit } },
        h("h2", { id: "new-device-title" }, t("newDevice")),
        h("label", { class: "field" }, t("name"),
          h("input", { name: "name", dir: "auto", maxlength: "64", autocomplete: "off" }),
          h("small", {}, t("nameHint"))),
        h("label", { class: "field" }, t("count"),
          h("input", { name: "count", type: "number", min: "1", max: "10000", value: "1", required: true })),
        page.apps.size > 0 && h("fieldset", {}, h("legend", {}, t("installed")),
          [...page.apps.values()].map((app) =>
            h("label", { key: app.bundle, class: "check" },
              h("input", { type: "checkbox", name: "app", value: app.bundle }),
              h("span", { dir: "auto" }, app.name ?? app.bundle))),
          h("small", {}, t("installedHint"))),
        fault && h("p", { class: "fault", role: "alert" }, fault),
        h("div", { class: "buttons" },
          h("button", { type: "button", on: { click: () => dialog.close() } }, t("cancel")),
          h("button", { type: "submit", class: "main-button" }, t("create")))));
    }

    async function submit(event) {
      event.preventDefault();
      const form = new FormData(event.target);
      const values = { count: Number(form.get("count")) };
      if (form.get("name").trim() !== "") values.name = form.get("name").trim();
      const apps = form.getAll("app");
      if (apps.length > 0) values.apps = apps;
      try {
        made = (await api.addDevices(values)).devices;
        dialog.close();
      } catch (error) {
        fault = t("failed", error.message || t("noAnswer"));
        draw();
      }
    }
  });
}
