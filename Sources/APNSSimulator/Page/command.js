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
  activity: ["liveactivity", ".push-type.liveactivity", (now) => ({ aps: { timestamp: now, event: "update", "content-state": {} } })],
  "activity-start": ["liveactivity", ".push-type.liveactivity", (now, app) => ({ aps: {
    timestamp: now, event: "start", "content-state": {}, "attributes-type": app?.activities?.[0]?.type ?? "Attributes", attributes: {},
    alert: { title: "Started", body: "A Live Activity" } } })],
};

/** Line for curl that pushes to a token. */
export function curlCommand(page, token, bundle, environment, purpose = "alert") {
  const port = environment === "sandbox" ? page.status?.sandboxPort : page.status?.productionPort;
  const [type, suffix, example] = examples[purpose] ?? examples.alert;
  const payload = typeof example === "function"
    ? example(Math.floor(simulatorNow() / 1_000), page.apps.get(bundle)) : example;
  return [
    `curl --http2 --insecure https://127.0.0.1:${port ?? page.status?.sandboxPort}/3/device/${token}`,
    `-H 'authorization: bearer ${providerToken()}'`,
    `-H 'apns-topic: ${bundle}${suffix}' -H 'apns-push-type: ${type}'`,
    `-d '${JSON.stringify(payload)}'`,
  ].join(" \\\n  ");
}

/** Line for `sluice produce` that pushes through Kafka and a worker. */
export function produceCommand(token, bundle) {
  return `sluice produce --device-token ${token} --topic ${bundle} --alert "Through Kafka"`;
}
