// Nodes: a map of how full each is, which takes a look at all of them now and then, and a window of the list.
import { address } from "./api.js";
import { useDocument } from "./documents.js";
import { HeatMap } from "./heat_map.js";
import { html, useState } from "./lib.js";
import { Bar, Empty, Fact, Shown, SortHead, State, Table, Window } from "./parts.js";
import { go, here, href, queueHref, route } from "./route.js";
import { amount, amounts, counted, label, measured, number, percent } from "./text.js";

const SIZE = 50;
/** So many nodes are drawn at most; the list below has all. */
const DRAWN_MAX = 5_000;
const MAP_EVERY_MS = 4_000;
const ROOM_EVERY_MS = 5_000;

export function Nodes() {
  const { query } = route.value;
  const state = query.get("state") ?? "";
  const text = query.get("q") ?? "";
  const found = useDocument(address("v1/node-map", { q: text, limit: DRAWN_MAX }), ["nodes", "jobs"], { everyMs: MAP_EVERY_MS });
  return html`<div class="head"><h1>Nodes</h1></div>
    <${Shown} read=${found} what="the nodes">${(/** @type {any} */ data) => html`<${All} nodes=${unpacked(data)} total=${data.total} state=${state} text=${text} />`}<//>`;
}

/**
 * Nodes of a map: how much each has, and what of that is held, in natural units.
 * @param {any} data @returns {import("./heat_map.js").Mapped[]}
 */
function unpacked(data) {
  const resources = Object.entries(data.resources).map(([kind, columns]) => /** @type {[string, number, any]} */ ([kind, amount(/** @type {any} */ (columns).unit), columns]));
  return data.nodes.map((/** @type {string} */ node, /** @type {number} */ index) => ({
    node, state: data.states[index], running: data.running[index],
    of: new Map(resources.filter(([, , columns]) => columns.capacity[index] !== null).map(([kind, unit, columns]) => [kind, { capacity: columns.capacity[index] * unit, used: columns.used[index] * unit }])),
  }));
}

/** @param {{nodes: import("./heat_map.js").Mapped[], total: number, state: string, text: string}} props */
function All({ nodes, total, state, text }) {
  const resources = [...new Set(nodes.flatMap((node) => [...node.of.keys()]))].sort();
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
    <${Room} />
    <${Listed} text=${text} state=${state} resources=${resources} show=${show} />`;
}

/** A window of the list, as the gateway sorts it. @param {{text: string, state: string, resources: string[], show: (change: Record<string, any>) => void}} props */
function Listed({ text, state, resources, show }) {
  const { query } = route.value;
  const sort = query.get("sort") ?? "";
  const offset = Number(query.get("offset")) || 0;
  const found = useDocument(address("v1/nodes", { q: text, state, sort, offset, limit: SIZE }), ["nodes", "jobs"]);
  return html`<${Shown} read=${found} what="the list">${(/** @type {any} */ data) => html`<${List} nodes=${data.nodes} total=${data.total} ...${{ resources, offset, sort, show }} />`}<//>`;
}

/** @param {{nodes: any[], resources: string[], total: number, offset: number, sort: string, show: (change: Record<string, any>) => void}} props */
function List({ nodes, resources, total, offset, sort, show }) {
  const head = (/** @type {string} */ by, /** @type {string} */ text, look = "") => html`<${SortHead} by=${by} sort=${sort} onSort=${(/** @type {string} */ next) => show({ sort: next })} class=${look}>${text}<//>`;
  return html`<div class="card list-card"><${Table} label="Nodes"><thead><tr>${head("name", "Node")}${head("state", "State")}${head("running", "Tasks", "num")}${resources.map((each) => html`<th scope="col" key=${each} class="num">${label(each)} held</th>`)}<th scope="col">Labels</th></tr></thead>
    <tbody>${nodes.map((node) => html`<${Row} key=${node.node} node=${node} resources=${resources} />`)}</tbody><//>
    ${total > nodes.length && html`<${Window} offset=${offset} shown=${nodes.length} total=${total} size=${SIZE} what="nodes" onOffset=${(/** @type {number} */ next) => show({ offset: next || null })} />`}</div>`;
}

/** What the tasks that wait could still use of what is free. */
function Room() {
  const found = useDocument("v1/room", ["nodes", "jobs", "queues"], { everyMs: ROOM_EVERY_MS, shared: true });
  const data = found.data;
  if (!data?.classes.length) return null;
  return html`<section class="card list-card" aria-label="What waiting tasks could use"><h2>What waiting tasks could still use</h2>
    <p class="hint">Free on nodes that take tasks: ${amounts(data.free) || "nothing"}. Tasks that ask for the same are in one row; each row as if all of it were theirs.</p>
    <${Table} label="Room for waiting tasks"><thead><tr><th>A task asks for</th><th class="num">Wait</th><th class="num">Find room</th><th class="num">Would, were it in one piece</th><th>Of what is free they can use</th><th>In the queues</th></tr></thead><tbody>
      ${data.classes.map((/** @type {any} */ row, /** @type {number} */ index) => html`<tr key=${index}><th scope="row" class="name"><a href=${href(["jobs", row.job])}>${amounts(row.demand)}</a>${row.gang ? html` <span class="none">gang of ${number(row.gang)}</span>` : ""}${Object.keys(row.labels).length > 0 && html`<br /><span class="hint">on ${Object.entries(row.labels).map(([name, value]) => `${name}=${value}`).join(", ")}</span>`}</th>
        <td class="num"><${Fact} kind="room" name=${index} field="tasks" value=${row.tasks}>${number(row.tasks)}<//><br /><span class="none">${counted(row.jobs, "job")}</span></td>
        <td class="num"><${Fact} kind="room" name=${index} field="fits" value=${row.fits}>${number(row.fits)}<//>${row.nodes > 0 && html`<br /><span class="none">on ${counted(row.nodes, "node")}</span>`}</td>
        <td class="num"><${Fact} kind="room" name=${index} field="in_one" value=${row.in_one}>${number(row.in_one)}<//>${row.in_one > 0 && html`<${Bar} label=${`${percent(row.fits / row.in_one)} of that find room`} parts=${[{ share: row.fits / row.in_one, look: "held" }]} />`}</td>
        <td>${Object.keys(row.demand).map((kind) => `${percent(amount(data.free[kind]) ? amount(row.usable[kind]) / amount(data.free[kind]) : 0)} of the ${label(kind)}`).join(", ")}</td>
        <td class="name">${row.queues.map((/** @type {string} */ queue) => html`<a key=${queue} href=${queueHref(queue)}>${queue}</a> `)}${row.queues_left_out > 0 && `and ${number(row.queues_left_out)} more`}</td></tr>`)}</tbody><//>
    ${data.classes_left_out > 0 && html`<p class="note">Those of most tasks; ${number(data.classes_left_out)} more kinds of tasks wait.</p>`}</section>`;
}

/** How what is free is spread: much of it in small pieces is of no use to large tasks. @param {{nodes: import("./heat_map.js").Mapped[], resource: string}} props */
function Spread({ nodes, resource }) {
  const free = nodes.flatMap((node) => {
    const found = node.of.get(resource);
    return node.state === "ready" && found && found.capacity > 0 ? [Math.max(0, found.capacity - found.used)] : [];
  }).sort((a, b) => b - a);
  if (!free.length) return null;
  const all = free.reduce((sum, each) => sum + each, 0);
  return html`<p class="hint">Free on nodes that take tasks: ${measured(resource, all)} of ${label(resource)} in all, at most ${measured(resource, free[0] ?? 0)} on one node, ${measured(resource, free[Math.floor(free.length / 2)] ?? 0)} on the middle one.</p>`;
}

/** How much of a resource is held of a node that has it. @param {any} node @param {string} resource */
function held(node, resource) {
  const capacity = amount(node.capacity[resource]);
  return capacity > 0 ? amount(node.used[resource]) / capacity : 0;
}

/** @param {{node: any, resources: string[]}} props */
function Row({ node, resources }) {
  return html`<tr><th scope="row" class="name"><a href=${href(["nodes", node.node])}>${node.node}</a></th>
    <td><${Fact} kind="node" name=${node.node} field="state" value=${node.state}><${State} state=${node.state} /><//>${node.failing && html` <span class="attention">failing</span>`}</td>
    <td class="num"><${Fact} kind="node" name=${node.node} field="running" value=${node.running}>${number(node.running)}<//></td>
    ${resources.map((resource) => html`<td key=${resource} class="num">${node.capacity[resource] === undefined ? html`<span class="none">–</span>` : html`<${Fact} kind="node" name=${node.node} field=${`used.${resource}`} value=${node.used[resource] ?? "0"}>${measured(resource, amount(node.used[resource]))}<//> <span class="none">of ${measured(resource, amount(node.capacity[resource]))}</span>
      <${Bar} label=${percent(held(node, resource))} parts=${[{ share: held(node, resource), look: "held" }]} />`}</td>`)}
    <td class="text hint">${Object.entries(node.labels).map(([name, value]) => `${name}=${value}`).join(", ")}</td></tr>`;
}
