// Times of the simulator in the reader's form.
import { locale, t } from "./words.js";

let offset = 0;

/** Notes the simulator's clock, which may differ from the browser's. */
export function setClock(now) { offset = now - Date.now(); }

export function simulatorNow() { return Date.now() + offset; }

const formats = new Map();
function format(name, options) {
  const key = `${locale()} ${name}`;
  let made = formats.get(key);
  if (!made) formats.set(key, (made = new Intl.DateTimeFormat(locale(), options)));
  return made;
}

/** Time of day with milliseconds, and the date when it is not today's. */
export function exact(at) {
  const isToday = new Date(at).toDateString() === new Date(simulatorNow()).toDateString();
  const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hour12: false };
  return isToday
    ? format("time", time).format(at)
    : format("full", { ...time, year: "numeric", month: "short", day: "numeric" }).format(at);
}

/** Time of day on a device, whose local time has `minutes` of offset. */
export function deviceTime(at, minutes) {
  return format("device", { hour: "2-digit", minute: "2-digit", hour12: false, timeZone: "UTC" })
    .format(at + minutes * 60_000);
}

export function deviceDate(at, minutes) {
  return format("date", { weekday: "long", day: "numeric", month: "long", timeZone: "UTC" })
    .format(at + minutes * 60_000);
}

/** Time that has passed, short. */
export function ago(at) {
  const seconds = Math.max(0, Math.round((simulatorNow() - at) / 1_000));
  if (seconds < 5) return t("now");
  if (seconds < 60) return t("secondsAgo", seconds);
  if (seconds < 3_600) return t("minutesAgo", Math.floor(seconds / 60));
  if (seconds < 86_400) return t("hoursAgo", Math.floor(seconds / 3_600));
  return t("daysAgo", Math.floor(seconds / 86_400));
}

/** Time until a moment, or since it, short. */
export function until(at) {
  const seconds = Math.round((at - simulatorNow()) / 1_000);
  if (seconds <= 0) return ago(at);
  if (seconds < 60) return t("inSeconds", seconds);
  if (seconds < 3_600) return t("inMinutes", Math.round(seconds / 60));
  if (seconds < 86_400) return t("inHours", Math.round(seconds / 3_600));
  return t("inDays", Math.round(seconds / 86_400));
}

/** Milliseconds in a short form. */
export function span(milliseconds) {
  if (milliseconds < 1_000) return `+${milliseconds} ms`;
  if (milliseconds < 60_000) return `+${(milliseconds / 1_000).toFixed(1)} s`;
  if (milliseconds < 3_600_000) return `+${Math.round(milliseconds / 60_000)} min`;
  return `+${Math.round(milliseconds / 3_600_000)} h`;
}
