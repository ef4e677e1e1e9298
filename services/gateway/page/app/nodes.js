// Nodes: a map of how full each is, and the list.
import { useDocument } from "./documents.js";
import { fullness, HeatMap } from "./heat_map.js";
import { html, useState } from "./lib.js";
import { Bar, Empty, Fact, Shown, State, Table, Window } from "./parts.js";
import { go, here, href, route } from "./route.js";
import { amount, label, measured, number, percent } from "./text.js";

const SIZE = 50;
/** So many nodes are drawn at most; the list below has all. */
const DRAWN_MAX = 5_000;
const MAP_EVERY_MS = 2_000;

export function Nodes() {
  const { query } = route.value;
  const state = query.get("state") ?? "";
  const text = query.get("q") ?? "";
  const found = useDocument("v1/nodes", ["nodes", "jobs"], { everyMs: MAP_EVERY_MS });
  return html`<div class="head"><h1>Nodes</h1></div>
    <${Shown} read=${found} what="the nodes">${(/** @type {any} */ data) => html`<${All} nodes=${data.nodes} state=${state} text=${text} offset=${Number(query.get("offset")) || 0} />`}<//>`;
}

/** @param {{nodes: any[], state: string, text: string, offset: number}} props */
function All({ nodes, state, text, offset }) {
  const resources = [...new Set(nodes.flatMap((node) => Object.keys(node.capacity)))].sort();
  const [chosen, setChosen] = useState("cpu");
  const resource = resources.includes(chosen) ? chosen : resources[0] ?? "cpu";
  const show = (/** @type {Record<string, any>} */ change) => go(here({ offset: null, ...change }), { replace: true });
  const states = [...new Set(nodes.map((node) => node.state))].sort();
  const wanted = nodes.filter((node) => (!state || node.state === state) && node.node.toLowerCase().includes(text.toLowerCase()));
  if (!nodes.length) return html`<div class="card"><${Empty}>No node has registered yet. Start an agent on a machine: <code>largesse agent</code>, or a cell with nodes of its own: <code>largesse up</code>.<//></div>`;
  return html`
    <form class="filters" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Colour by<select value=${resource} onChange=${(/** @type {any} */ event) => setChosen(event.target.value)}>${resources.map((each) => html`<option value=${each}>${label(each)}</option>`)}</select></label>
      <label>State<select value=${state} onChange=${(/** @type {any} */ event) => show({ state: event.target.value })}><option value="">any</option>${states.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Name contains<input type="search" value=${text} onInput=${(/** @type {any} */ event) => show({ q: event.target.value })} /></label>
      <p class="legend"><span><i class="ground"></i>empty</span><span><i class="soft"></i></span><span><i class="mid"></i></span><span><i class="held"></i>full</span><span>╱ takes no tasks</span><span class="attention">✕ lost</span></p>
    </form>
    <div class="card">${wanted.length ? html`<${HeatMap} nodes=${wanted.slice(0, DRAWN_MAX)} resource=${resource} />` : html`<${Empty}>No node is like that.<//>`}
      ${wanted.length > DRAWN_MAX && html`<p class="note">The first ${number(DRAWN_MAX)} are drawn.</p>`}
      <${Spread} nodes=${wanted} resource=${resource} /></div>
    <div class="card list-card"><${Table} label="Nodes"><thead><tr><th>Node</th><th>State</th><th class="num">Tasks</th>${resources.map((each) => html`<th key=${each} class="num">${label(each)} held</th>`)}<th>Labels</th></tr></thead>
      <tbody>${wanted.slice(offset, offset + SIZE).map((node) => html`<${Row} key=${node.node} node=${node} resources=${resources} />`)}</tbody><//>
      <${Window} offset=${offset} shown=${Math.max(0, Math.min(SIZE, wanted.length - offset))} total=${wanted.length} size=${SIZE} what="nodes" onOffset=${(/** @type {number} */ next) => show({ offset: next || null })} /></div>`;
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
