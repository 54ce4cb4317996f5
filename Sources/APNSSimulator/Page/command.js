// Commands that push to a device, ready to paste.
import { simulatorNow } from "./time.js";

const base64 = (text) => btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/** Provider token in the form that the simulator accepts by default: well-formed and fresh, of no real key. */
function providerToken() {
  const head = base64(JSON.stringify({ alg: "ES256", kid: "ABCDE12345" }));
  const claims = base64(JSON.stringify({ iss: "TEAMID1234", iat: Math.floor(simulatorNow() / 1_000) }));
  const signature = base64(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(64))));
  return `${head}.${claims}.${signature}`;
}

const examples = {
  alert: ["alert", "", { aps: { alert: { title: "Hello", body: "A first push" }, badge: 1, sound: "default" } }],
  voip: ["voip", ".voip", { caller: "Ada" }],
  location: ["location", ".location-query", {}],
  complication: ["complication", ".complication", {}],
  fileprovider: ["fileprovider", ".pushkit.fileprovider", {}],
  pushtotalk: ["pushtotalk", ".voip-ptt", { speaker: "Ada" }],
  widgets: ["widgets", ".push-type.widgets", { aps: { "content-changed": true } }],
  controls: ["controls", ".push-type.controls", { aps: { "content-changed": true } }],
  activity: ["liveactivity", ".push-type.liveactivity",
    (now) => ({ aps: { timestamp: now, event: "update", "content-state": {} } })],
  "activity-start": ["liveactivity", ".push-type.liveactivity", (now, app) => ({ aps: {
    timestamp: now, event: "start", "content-state": {}, "attributes-type": app?.activities?.[0]?.type ?? "Attributes",
      attributes: {},
    alert: { title: "Started", body: "A Live Activity" } } })],
};

/** Port of an environment's server; undefined when the environment is not served. */
export function portOf(page, environment) {
  return environment === "sandbox" ? page.status?.sandboxPort : page.status?.productionPort;
}

/** Environment for a command: the wanted one if it is served, else one that is. */
export function servedEnvironment(page, wanted) {
  const served = page.status?.environments ?? [];
  return served.includes(wanted) ? wanted : served[0] ?? wanted;
}

/** Line for curl that pushes to a token. */
export function curlCommand(page, token, bundle, environment, purpose = "alert") {
  const port = portOf(page, servedEnvironment(page, environment));
  // A simulator with keys of its own needs a token that is signed by one of them.
  const authorization = page.status?.anyKey === false
    ? '"authorization: bearer $PROVIDER_TOKEN"' : `'authorization: bearer ${providerToken()}'`;
  const [type, suffix, example] = examples[purpose] ?? examples.alert;
  const payload = typeof example === "function"
    ? example(Math.floor(simulatorNow() / 1_000), page.apps.get(bundle)) : example;
  return [
    `curl --http2 --insecure https://127.0.0.1:${port}/3/device/${token}`,
    `-H ${authorization}`,
    `-H 'apns-topic: ${bundle}${suffix}' -H 'apns-push-type: ${type}'`,
    `-d '${JSON.stringify(payload)}'`,
  ].join(" \\\n  ");
}

/** Line for `sluice produce` that pushes through Kafka and a worker. */
export function produceCommand(page, token, bundle) {
  const servers = page.status?.hints?.bootstrapServers;
  const kafka = servers === undefined ? "" : ` --bootstrap-servers ${servers}`;
  return `sluice produce${kafka} --device-token ${token} --topic ${bundle} --alert "Through Kafka"`;
}
