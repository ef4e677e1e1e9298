// How the cell has been over the last hours, up to the moment that is shown.
import { useDocument } from "./documents.js";
import { html, useState } from "./lib.js";
import { Lines } from "./lines.js";
import { nowMs } from "./moment.js";
import { Empty, Loading } from "./parts.js";
import { address } from "./api.js";
import { amount, label, measured, percent } from "./text.js";

const SPANS = /** @type {[number, string][]} */ ([[3_600_000, "last hour"], [6 * 3_600_000, "last 6 hours"], [24 * 3_600_000, "last 24 hours"], [0, "whole log"]]);
const POINTS = 240;
const EVERY_MS = 5_000;
const STEP_MS = 60_000;
const SHARE = 1e9;

/** The cell over time. */
export function History() {
  return html`<${Over}>${(/** @type {any} */ data) => html`<div class="grid">
    ${Object.entries(data.resources).map(([resource, series]) => html`<figure key=${resource}><figcaption>${label(resource)}</figcaption>
      <${Lines} times=${data.times_ms} kind=${resource} unit=${(/** @type {number} */ value) => measured(resource, value)} lines=${drawn(/** @type {any} */ (series))} /></figure>`)}
    <figure key="tasks"><figcaption>Tasks</figcaption><${Lines} times=${data.times_ms} lines=${[
      { name: "running", values: data.running, look: "held" }, { name: "waiting", values: data.waiting, look: "ink" }]} /></figure>
  </div>`}<//>`;
}

/** A queue right below the root over time: what it held, and what it was entitled to. @param {{path: string}} props */
export function QueueHistory({ path }) {
  const shares = (/** @type {(number | null)[]} */ values) => values.map((value) => value === null ? null : value / SHARE);
  return html`<${Over}>${(/** @type {any} */ data) => data.queues[path] === undefined
    ? html`<${Empty}>It held nothing in this span, and was entitled to nothing.<//>`
    : html`<${Lines} times=${data.times_ms} unit=${percent} lines=${[
      { name: "held", values: shares(data.queues[path].held), look: "held" }, { name: "entitled", values: shares(data.queues[path].entitled), look: "dashed" }]} />`}<//>`;
}

/** A span that is chosen, and what is drawn of it. @param {{children: (data: any) => any}} props */
function Over({ children }) {
  const [span, setSpan] = useState(3_600_000);
  const from = span === 0 ? 0 : Math.max(0, Math.floor((nowMs.value - span) / STEP_MS) * STEP_MS); // Whole steps, so that an address stays for a while.
  const { data, problem } = useDocument(address("v1/history", { from_ms: from, points: POINTS }), ["rounds"], { everyMs: EVERY_MS });
  return html`<section class="card wide" aria-label="Over time"><div class="head"><h2>Over time</h2>
      <label class="row"><span class="unseen">Span</span><select value=${span} onChange=${(/** @type {any} */ event) => setSpan(Number(event.target.value))}>${SPANS.map(([ms, name]) => html`<option value=${ms}>${name}</option>`)}</select></label></div>
    ${!data && !problem && html`<${Loading} what="the last hours" />`}
    ${!data && problem && html`<p class="trouble" role="alert">${problem.message}</p>`}
    ${data && data.times_ms.length < 2 && html`<${Empty}>Nothing is kept of this span yet: a moment is kept each minute. Choose a longer one, or move the slider above to any moment.<//>`}
    ${data && data.times_ms.length > 1 && children(data)}
  </section>`;
}

/** What is held of a resource, beside what there is. @param {{unit: string, capacity: number[], held: number[], promised: number[]}} series */
function drawn(series) {
  const looks = /** @type {const} */ ([["capacity", "ink"], ["held", "held"], ["promised", "dashed"]]);
  const one = amount(series.unit);
  return looks.filter(([name]) => name !== "promised" || series.promised.some((value) => value > 0)).map(([name, look]) => ({ name, look, values: series[name].map((value) => value * one) }));
}
