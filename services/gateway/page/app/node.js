// One node: what it has, what holds it, why nothing new runs there.
import { address, path, send } from "./api.js";
import { Action } from "./act.js";
import { useAhead, useDocument } from "./documents.js";
import { Gantt } from "./gantt.js";
import { html, useState } from "./lib.js";
import { Bar, Empty, Fact, Facts, Fixed, Shown, State, Table, Time } from "./parts.js";
import { Records, SIZE_BESIDE } from "./records.js";
import { href } from "./route.js";
import { may } from "./session.js";
import { amount, amounts, label, measured, number, percent } from "./text.js";
import { Why } from "./why.js";

/** As far back the gateway tells what ran on a node. */
const GANTT_MS = 3_600_000;

/** @param {{name: string}} props */
export function Node({ name }) {
  const found = useDocument(address("v1/nodes", { q: name }), [`nodes/${name}`]);
  useAhead([path("nodes", name, "why")]);
  return html`<${Shown} read=${found} what=${`node ${name}`}>${(/** @type {any} */ data) => {
    const node = data.nodes.find((/** @type {any} */ each) => each.node === name);
    if (!node) return html`<h1>${name}</h1><${Empty}>There is no such node at this moment. <a href=${href(["nodes"])}>All nodes</a>.<//>`;
    return html`<${Whole} node=${node} again=${found.again} />`;
  }}<//>`;
}

/** @param {{node: any, again: () => void}} props */
function Whole({ node, again }) {
  const name = node.node;
  const isOut = (node.devices.gpu ?? []).filter((/** @type {any} */ each) => each.out);
  return html`
    <div class="head"><h1>${name}</h1><${Fact} kind="node" name=${name} field="state" value=${node.state}><${State} state=${node.state} /><//><p class="row"><${Actions} node=${node} again=${again} /></p></div>
    <div class="grid">
      <section class="card" aria-label="Room"><h2>Room</h2><${Table} label="Room by resource"><thead><tr><th>Resource</th><th class="num">Held</th><th class="num">Free</th><th class="num">Capacity</th></tr></thead><tbody>
        ${Object.entries(node.capacity).map(([resource, text]) => {
          const part = amount(node.used[resource]) / amount(/** @type {string} */ (text));
          const fact = (/** @type {string} */ field) => html`<${Fact} kind="node" name=${name} field=${`${field}.${resource}`} value=${node[field][resource] ?? "0"}>${measured(resource, amount(node[field][resource]))}<//>`;
          return html`<tr key=${resource}><th scope="row">${label(resource)}<${Bar} label=${`${percent(part)} held`} parts=${[{ share: part, look: "held" }]} /></th><td class="num">${fact("used")}</td><td class="num">${fact("free")}</td><td class="num">${fact("capacity")}</td></tr>`;
        })}</tbody><//></section>
      <section class="card" aria-label="Facts"><h2>Facts</h2><${Facts} rows=${[
        ["Tasks", html`<${Fact} kind="node" name=${name} field="running" value=${node.running}>${number(node.running)}<//>`],
        ["Labels", Object.entries(node.labels).map(([key, value]) => `${key}=${value}`).join(", ")],
        ["Devices", Object.entries(node.devices).map(([kind, list]) => `${/** @type {any[]} */ (list).length} ${kind}${/** @type {any[]} */ (list)[0]?.model ? ` (${/** @type {any[]} */ (list)[0].model})` : ""}`).join(", ")],
        ["Out", isOut.length > 0 && html`<span class="attention">${isOut.map((/** @type {any} */ each) => `GPU ${each.index}: ${each.out}`).join("; ")}</span>`],
        ["Kept free", node.kept && `${amounts(node.kept.demand)}: ${node.kept.why}`],
        ["Takes no tasks because", node.unschedulable && html`<span class="attention">${node.unschedulable}</span>`],
        ["Drained", node.drain && html`by ${node.drain.author}${node.drain.reason ? `: ${node.drain.reason}` : ""}${node.drain.until_ms === null ? "" : html`, until <${Time} ms=${node.drain.until_ms} />`}`],
        ["Failing", node.failing && html`<span class="attention">${node.failing.jobs.join(", ")}</span>, placed last until <${Time} ms=${node.failing.until_ms} />`],
        ["Address", node.address], ["Reached", node.reached && { direct: "on the bus", bridge: "over MQTT" }[/** @type {"direct" | "bridge"} */ (node.reached)]],
        ["Heard last", node.heard_ms !== null && html`<${Time} ms=${node.heard_ms} />`], ["Epoch", node.epoch],
      ].filter(([, value]) => value !== false)} /></section>
      <${Why} where=${path("nodes", name, "why")} kinds=${[`nodes/${name}`, "jobs"]} kind="node" name=${name} wide heading="What runs here, and why nothing new does" />
      <section class="card wide" aria-label="Attempts"><h2>Attempts here, last hour</h2><${Gantt} where=${path("nodes", name, "attempts")} by="job" spanMs=${GANTT_MS} kind=${`nodes/${name}`} /></section>
      <section class="card wide" aria-label="Records"><h2>Records</h2><${Records} query=${{ node: name }} kinds=${[`nodes/${name}`]} size=${SIZE_BESIDE} /></section>
    </div>`;
}

/** @param {{node: any, again: () => void}} props */
function Actions({ node, again }) {
  const name = node.node;
  const where = path("nodes", name);
  const [reason, setReason] = useState("");
  const log = { node: name };
  if (!may("operator")) return null;
  const isGone = node.state === "lost" || node.state === "left";
  return html`<${Fixed} /><${Action} label="Remove" offered=${isGone} grave title=${`Remove ${name}`} what="It is forgotten until its agent registers again." run=${() => send("DELETE", where)} log=${log} done="It is removed." after=${again} />
    <${Action} label="Resume" offered=${!isGone && node.drain !== null} title=${`Resume ${name}`} what="It takes new tasks again." run=${() => send("POST", `${where}/resume`)} log=${log} done="It takes tasks again." after=${again} />
    <${Action} label="Drain" offered=${!isGone && node.drain === null} title=${`Drain ${name}`} run=${() => send("POST", `${where}/drain?reason=${encodeURIComponent(reason)}`)} log=${log} done="It takes no new tasks." after=${again}
    what=${html`<p>No new task starts there. What runs there runs on.</p><label class="field">Reason, for the log<input maxlength="200" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)} /></label>`} />`;
}
