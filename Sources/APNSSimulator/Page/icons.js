// Small drawings, from paths of our own.
import { h } from "./dom.js";

const paths = {
  power: ["M12 3v8", "M7 6.5a7 7 0 1 0 10 0"],
  airplane: ["M12 3c1 0 1.5 1 1.5 2.5V9l7 5v2l-7-2.5V18l2.5 2v1.5L12 20.5l-4 1V20l2.5-2v-4.5L3.5 16v-2l7-5V5.5C10.5 4 11 3 12 3z"],
  network: ["M4 9.5a12 12 0 0 1 16 0", "M7 13a7.5 7.5 0 0 1 10 0", "M10 16.5a3 3 0 0 1 4 0", "M12 19.5v.01"],
  lock: ["M6 11h12v9H6z", "M8.5 11V8a3.5 3.5 0 0 1 7 0v3"],
  unlock: ["M6 11h12v9H6z", "M8.5 11V8a3.5 3.5 0 0 1 6.8-1.2"],
  mute: ["M6 16h12l-1.5-2.5V10a4.5 4.5 0 0 0-9 0v3.5z", "M10 19h4", "M4 4l16 16"],
  focus: ["M19 14.5A7.5 7.5 0 1 1 9.5 5a6 6 0 0 0 9.5 9.5z"],
  battery: ["M3 8h15v8H3z", "M20.5 11v2", "M5.5 10.5v3h3v-3z"],
  charging: ["M13 3 6 13h5l-1 8 7-10h-5z"],
  screen: ["M7 3h10v18H7z", "M11 18h2"],
  cloud: ["M7 18a4 4 0 0 1-.5-8A5.5 5.5 0 0 1 17 9.5a4.25 4.25 0 0 1 0 8.5z"],
  list: ["M4 7h16", "M4 12h16", "M4 17h10"],
  activity: ["M4 13h3.5l2-6 4 11 2.5-8 1.5 3H20"],
  search: ["M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M15.5 15.5 20.5 20.5"],
  plus: ["M12 5v14", "M5 12h14"],
  close: ["M6 6l12 12", "M18 6 6 18"],
  back: ["M14.5 5 8 12l6.5 7"],
  more: ["M7 9.5l5 5.5 5-5.5"],
  copy: ["M9 8h10v12H9z", "M6 16H5V4h10v1.5"],
  check: ["M5 12.5l4.5 4.5L19 7"],
  refresh: ["M19 12a7 7 0 1 1-2-5", "M19 3.5V8h-4.5"],
  trash: ["M5 7h14", "M10 7V4.5h4V7", "M7 7l1 13h8l1-13"],
  place: ["M12 21c4-5 6-8 6-11a6 6 0 0 0-12 0c0 3 2 6 6 11z", "M12 8.5v3.5"],
  home: ["M4 11.5 12 5l8 6.5", "M6.5 10v9h11v-9"],
  stop: ["M7 7h10v10H7z"],
  play: ["M8 5.5v13l10-6.5z"],
  bell: ["M6 16h12l-1.5-2.5V10a4.5 4.5 0 0 0-9 0v3.5z", "M10 19h4"],
  phone: ["M6 4h3.5l1.5 4-2 1.5a11 11 0 0 0 5.5 5.5l1.5-2 4 1.5V18a2 2 0 0 1-2 2A15 15 0 0 1 4 6a2 2 0 0 1 2-2z"],
  sun: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 2.5v2", "M12 19.5v2", "M2.5 12h2", "M19.5 12h2", "M5.5 5.5 7 7",
    "M17 17l1.5 1.5", "M18.5 5.5 17 7", "M7 17l-1.5 1.5"],
  language: ["M4 6h9", "M8.5 4v2c0 4-2 7-4.5 8.5", "M6 9c1 2.5 3 4.5 5.5 5.5", "M12 20l4-10 4 10", "M13.5 17h5"],
};

/** Drawing without a meaning of its own; texts or labels beside it have the meaning. */
export function icon(name, props) {
  return h("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: "icon", focusable: "false", ...props },
    (paths[name] ?? []).map((d) => h("path", { d })));
}
