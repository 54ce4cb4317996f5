// Calls of the simulator's HTTP interface.

/** Answer that is no success. `status` is 0 when the simulator did not answer. */
class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function call(method, path, body, signal) {
  const options = { method, signal, cache: "no-store", headers: { Accept: "application/json" } };
  if (method !== "GET") {
    options.headers["Content-Type"] = "application/json";
    if (body !== undefined) options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  let answer;
  let text;
  try {
    answer = await fetch(path, options);
    text = await answer.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "");
  }
  let value;
  try {
    value = text === "" ? undefined : JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (!answer.ok) throw new Failure(answer.status, value?.error ?? (text || answer.statusText));
  return value;
}

function query(values) {
  const parts = new URLSearchParams();
  for (const name in values) {
    const value = values[name];
    if (value !== undefined && value !== null && value !== "") parts.set(name, value);
  }
  const text = parts.toString();
  return text === "" ? "" : `?${text}`;
}

const part = encodeURIComponent;

/** Addresses are relative to the page's, whose scheme and host may be a proxy's. */
export const api = {
  status: () => call("GET", "api/status"),
  rules: () => call("GET", "api/rules"),
  apps: () => call("GET", "api/apps"),
  putApp: (bundle, text) => call("PUT", `api/apps/${part(bundle)}`, text),
  devices: (values, signal) => call("GET", `api/devices${query(values)}`, undefined, signal),
  device: (id, signal) => call("GET", `api/devices/${part(id)}`, undefined, signal),
  addDevices: (values) => call("POST", "api/devices", values),
  removeDevice: (id) => call("DELETE", `api/devices/${part(id)}`),
  act: (id, action) => call("POST", `api/devices/${part(id)}/actions`, action),
  pushes: (values, signal) => call("GET", `api/pushes${query(values)}`, undefined, signal),
  push: (number, signal) => call("GET", `api/pushes/${part(number)}`, undefined, signal),
  faults: () => call("GET", "api/faults"),
  putFaults: (text) => call("PUT", "api/faults", text),
  attachment: (id) => `api/attachments/${part(id)}`,
};
