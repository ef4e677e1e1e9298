// Nodes: a map of how full each is, which takes a look at all of them now and then, and a window of the list.
import { address } from "./api.js";
import { useDocument } from "./documents.js";
import { fullness, HeatMap } from "./heat_map.js";
import { html, useState } from "./lib.js";
import { Bar, Empty, Fact, Shown, SortHead, State, Table, Window } from "./parts.js";
import { go, here, href, route } from "./route.js";
import { amount, label, measured, number, percent } from "./text.js";

const SIZE = 50;
/** So many nodes are drawn at most; the list below has all. */
const DRAWN_MAX = 5_000;
const MAP_EVERY_MS = 4_000;

export function Nodes() {
  const { query } = route.value;
  const state = query.get("state") ?? "";
  const text = query.get("q") ?? "";
  const found = useDocument(address("v1/nodes", { q: text, limit: DRAWN_MAX }), ["nodes", "jobs"], { everyMs: MAP_EVERY_MS });
  return html`<div class="head"><h1>Nodes</h1></div>
    <${Shown} read=${found} what="the nodes">${(/** @type {any} */ data) => html`<${All} nodes=${data.nodes} total=${data.total} state=${state} text=${text} />`}<//>`;
}

/** @param {{nodes: any[], total: number, state: string, text: string}} props */
function All({ nodes, total, state, text }) {
  const resources = [...new Set(nodes.flatMap((node) => Object.keys(node.capacity)))].sort();
  const [chosen, setChosen] = useState("cpu");
  const resource = resources.includes(chosen) ? chosen : resources[0] ?? "cpu";
  const show = (/** @type {Record<string, any>} */ change) => go(here({ offset: null, ...change }), { replace: true });
  const states = [...new Set(nodes.map((node) => node.state))].sort();
  const wanted = nodes.filter((node) => !state || node.state === state);
  if (!nodes.length && !text) return html`<div class="card"><${Empty}>No node has registered yet. Start an agent on a machine: <code>largesse agent</code>, or a cell with nodes of its own: <code>largesse up</code>.<//></div>`;
  return html`
    <form class="filters" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Colour by<select value=${resource} onChange=${(/** @type {any} */ event) => setChosen(event.target.value)}>${resources.map((each) => html`<option value=${each}>${label(each)}</option>`)}</select></label>
      <label>State<select value=${state} onChange=${(/** @type {any} */ event) => show({ state: event.target.value })}><option value="">any</option>${states.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Name or label contains<input type="search" value=${text} onInput=${(/** @type {any} */ event) => show({ q: event.target.value })} /></label>
      <p class="legend"><span><i class="ground"></i>empty</span><span><i class="soft"></i></span><span><i class="mid"></i></span><span><i class="held"></i>full</span><span>╱ takes no tasks</span><span class="attention">✕ lost</span></p>
    </form>
    <div class="card">${wanted.length ? html`<${HeatMap} nodes=${wanted} resource=${resource} />` : html`<${Empty}>No node is like that.<//>`}
      ${total > nodes.length && html`<p class="note">${number(nodes.length)} of ${number(total)} are drawn.</p>`}
      <${Spread} nodes=${wanted} resource=${resource} /></div>
    ${state ? html`<${List} nodes=${wanted.slice(0, SIZE)} resources=${resources} total=${wanted.length} offset=${0} sort="" show=${show} />` : html`<${Listed} text=${text} resources=${resources} show=${show} />`}`;
}

/** A window of the list, as the gateway sorts it. @param {{text: string, resources: string[], show: (change: Record<string, any>) => void}} props */
function Listed({ text, resources, show }) {
  const { query } = route.value;
  const sort = query.get("sort") ?? "";
  const offset = Number(query.get("offset")) || 0;
  const found = useDocument(address("v1/nodes", { q: text, sort, offset, limit: SIZE }), ["nodes", "jobs"]);
  return html`<${Shown} read=${found} what="the list">${(/** @type {any} */ data) => html`<${List} nodes=${data.nodes} total=${data.total} ...${{ resources, offset, sort, show }} />`}<//>`;
}

/** @param {{nodes: any[], resources: string[], total: number, offset: number, sort: string, show: (change: Record<string, any>) => void}} props */
function List({ nodes, resources, total, offset, sort, show }) {
  const head = (/** @type {string} */ by, /** @type {string} */ text, look = "") => html`<${SortHead} by=${by} sort=${sort} onSort=${(/** @type {string} */ next) => show({ sort: next, state: null })} class=${look}>${text}<//>`;
  return html`<div class="card list-card"><${Table} label="Nodes"><thead><tr>${head("name", "Node")}${head("state", "State")}${head("running", "Tasks", "num")}${resources.map((each) => html`<th scope="col" key=${each} class="num">${label(each)} held</th>`)}<th scope="col">Labels</th></tr></thead>
    <tbody>${nodes.map((node) => html`<${Row} key=${node.node} node=${node} resources=${resources} />`)}</tbody><//>
    ${total > nodes.length && html`<${Window} offset=${offset} shown=${nodes.length} total=${total} size=${SIZE} what="nodes" onOffset=${(/** @type {number} */ next) => show({ offset: next || null })} />`}</div>`;
}

/** How what is free is spread: much of it in small pieces is of no use to large tasks. @param {{nodes: any[], resource: string}} props */
function Spread({ nodes, resource }) {
  const free = nodes.filter((node) => node.state === "ready" && amount(node.capacity[resource]) > 0).map((node) => amount(node.free[resource])).sort((a, b) => b - a);
  if (!free.length) return null;
  const all = free.reduce((sum, each) => sum + each, 0);
  return html`<p class="hint">Free on nodes that take tasks: ${measured(resource, all)} of ${label(resource)} in all, at most ${measured(resource, free[0] ?? 0)} on one node, ${measured(resource, free[Math.floor(free.length / 2)] ?? 0)} on the middle one.</p>`;
}

/** @param {{node: any, resources: string[]}} props */
function Row({ node, resources }) {
  return html`<tr><th scope="row" class="name"><a href=${href(["nodes", node.node])}>${node.node}</a></th>
    <td><${Fact} kind="node" name=${node.node} field="state" value=${node.state}><${State} state=${node.state} /><//>${node.failing && html` <span class="attention">failing</span>`}</td>
    <td class="num"><${Fact} kind="node" name=${node.node} field="running" value=${node.running}>${number(node.running)}<//></td>
    ${resources.map((resource) => html`<td key=${resource} class="num">${node.capacity[resource] === undefined ? html`<span class="none">–</span>` : html`<${Fact} kind="node" name=${node.node} field=${`used.${resource}`} value=${node.used[resource] ?? "0"}>${measured(resource, amount(node.used[resource]))}<//> <span class="none">of ${measured(resource, amount(node.capacity[resource]))}</span>
      <${Bar} label=${percent(fullness(node, resource))} parts=${[{ share: fullness(node, resource) ?? 0, look: "held" }]} />`}</td>`)}
    <td class="text hint">${Object.entries(node.labels).map(([name, value]) => `${name}=${value}`).join(", ")}</td></tr>`;
}
