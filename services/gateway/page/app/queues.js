// The tree of queues with what each is due, holds, lends and borrows.
import { useDocument } from "./documents.js";
import { html, useState } from "./lib.js";
import { Fact, Share, Shown, Table } from "./parts.js";
import { isBelow, QueueBar, QueueLegend } from "./queue_bar.js";
import { href, queueHref } from "./route.js";
import { amounts, number } from "./text.js";

const ROWS_MAX = 500;
/** Trees with more queues than this are shown folded at first. */
const OPEN_MAX = 60;

export function Queues() {
  const tree = useDocument("v1/queues", ["queues", "jobs", "config", "rounds"], { shared: true });
  return html`<div class="head"><h1>Queues</h1></div>
    <${Shown} read=${tree} what="the queues">${(/** @type {any} */ root) => html`<${Tree} root=${root} />`}<//>`;
}

/** @param {any} queue @returns {number} */
function size(queue) {
  return 1 + queue.children.reduce((/** @type {number} */ sum, /** @type {any} */ child) => sum + size(child), 0);
}

/** What a queue's own limits say, in a line. @param {any} limits */
export function limitsText(limits) {
  return [
    Object.keys(limits.guaranteed).length && `guaranteed ${amounts(limits.guaranteed)}`,
    Object.keys(limits.max).length && `max ${amounts(limits.max)}`,
    limits.running_jobs_max !== null && `${number(limits.running_jobs_max)} running jobs`,
    limits.user_jobs_max !== null && `${number(limits.user_jobs_max)} jobs a user`,
    limits.user_running_max !== null && `${number(limits.user_running_max)} running tasks a user`,
    limits.submitters.length > 0 && `submitters ${limits.submitters.join(", ")}`,
  ].filter(Boolean).join("; ");
}

/** @param {{root: any}} props */
function Tree({ root }) {
  const [turned, setTurned] = useState(/** @type {Set<string>} */ (new Set()));
  const [text, setText] = useState("");
  const isOpenFirst = size(root) <= OPEN_MAX;
  const isOpen = (/** @type {string} */ path) => turned.has(path) !== isOpenFirst;
  const wanted = text.trim().toLowerCase();
  const matches = (/** @type {any} */ queue) => queue.queue.toLowerCase().includes(wanted) || queue.children.some(matches);
  /** @type {{queue: any, depth: number}[]} */
  const rows = [];
  const add = (/** @type {any} */ queue, /** @type {number} */ depth) => {
    if (wanted && !matches(queue)) return;
    rows.push({ queue, depth });
    if (wanted || isOpen(queue.queue)) for (const child of queue.children) add(child, depth + 1);
  };
  for (const child of root.children) add(child, 0);
  const turn = (/** @type {string} */ path) => setTurned((old) => {
    const next = new Set(old);
    if (!next.delete(path)) next.add(path);
    return next;
  });

  return html`
    <div class="card">
      <div class="filters"><label>Name contains<input type="search" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
        <${QueueLegend} /></div>
      <${Table} label="Queues" class="tree"><thead><tr>
        <th scope="col">Queue</th><th scope="col">Share of the cell</th><th scope="col" class="num">Holds</th><th scope="col" class="num">Fair</th><th scope="col" class="num">Guaranteed now</th>
        <th scope="col" class="num">Lent</th><th scope="col" class="num">Borrowed</th><th scope="col" class="num">Weight</th><th scope="col" class="num">Running</th><th scope="col" class="num">Waiting</th><th scope="col">Limits</th></tr></thead>
      <tbody>
        ${rows.slice(0, ROWS_MAX).map(({ queue, depth }) => html`<${Row} key=${queue.queue} queue=${queue} depth=${depth} open=${wanted !== "" || isOpen(queue.queue)} onTurn=${turn} />`)}
        ${!rows.length && html`<tr><td colspan="11" class="note">No queue has that in its name.</td></tr>`}
      </tbody><//>
      ${rows.length > ROWS_MAX && html`<p class="note">Only the first ${ROWS_MAX} are shown: search by name, or fold some.</p>`}
      <p class="hint">Shares are of the whole cell by the resource that a queue holds most of. <a href=${queueHref("root")}>The root</a> holds the limits of the whole cell.</p>
    </div>`;
}

/** @param {{queue: any, depth: number, open: boolean, onTurn: (path: string) => void}} props */
function Row({ queue, depth, open, onTurn }) {
  const path = queue.queue;
  const name = path.split("/").at(-1);
  const below = isBelow(queue);
  return html`<tr>
    <th scope="row"><span class=${`tree-name depth-${Math.min(depth, 6)}`}>
      ${queue.children.length ? html`<button type="button" aria-expanded=${open} aria-label=${`Queues below ${path}`} onClick=${() => onTurn(path)}>${open ? "▾" : "▸"}</button>` : html`<span class="leaf"></span>`}
      <a href=${queueHref(path)} title=${path}>${name}</a></span></th>
    <td><${QueueBar} queue=${queue} /></td>
    <td class="num"><${Share} name=${path} field="allocated" value=${queue.allocated} /></td>
    <td class="num"><${Share} name=${path} field="fair" value=${queue.fair} /></td>
    <td class=${`num${below ? " attention" : ""}`}>${below ? html`<span title=${queue.breach ? "its guarantee is broken" : "it holds less than that"}>! </span>` : ""}<${Share} name=${path} field="guaranteed" value=${queue.guaranteed} /></td>
    <td class="num"><${Share} name=${path} field="lent" value=${queue.lent} /></td>
    <td class="num"><${Share} name=${path} field="borrowed" value=${queue.borrowed} /></td>
    <td class="num"><${Fact} kind="queue" name=${path} field="weight" value=${queue.weight}>${number(queue.weight, 6)}<//></td>
    <td class="num"><a href=${href(["jobs"], { state: "running", queue: path })}><${Fact} kind="queue" name=${path} field="jobs.running" value=${queue.jobs.running}>${number(queue.jobs.running)}<//></a></td>
    <td class="num"><a href=${href(["jobs"], { state: "waiting", queue: path })}><${Fact} kind="queue" name=${path} field="jobs.waiting" value=${queue.jobs.waiting}>${number(queue.jobs.waiting)}<//></a></td>
    <td class="text hint">${[queue.policy && `policy ${queue.policy}`, limitsText(queue.limits)].filter(Boolean).join("; ")}</td>
  </tr>`;
}
