// How the cell has been up to the moment that is shown, from the samples that the gateway keeps.
import { useDocument } from "./documents.js";
import { html, useState } from "./lib.js";
import { Lines } from "./lines.js";
import { Empty, Loading } from "./parts.js";
import { amount, label, measured } from "./text.js";

const HOUR_MS = 3_600_000;
const SPANS = /** @type {[number, string][]} */ ([[HOUR_MS, "Last hour"], [6 * HOUR_MS, "Last 6 hours"], [24 * HOUR_MS, "Last 24 hours"], [0, "Whole log"]]);
const STEP_MS = 60_000; // Whole steps, so that an address stays for a while.
const POINTS = 240;
const EVERY_MS = 5_000;
const KINDS = ["jobs", "nodes", "config", "reservations"];

/** @param {{cell: any}} props */
export function History({ cell }) {
  const [span, setSpan] = useState(HOUR_MS);
  const from = span ? Math.max(0, Math.floor((cell.time - span) / STEP_MS) * STEP_MS) : 0;
  const { data, problem } = useDocument(`v1/history?from_ms=${from}&points=${POINTS}`, KINDS, { everyMs: EVERY_MS });
  return html`<section class="card wide" aria-label="Over time"><div class="head"><h2>Over time</h2>
      <label class="row"><span class="unseen">Span</span><select value=${span} onChange=${(/** @type {any} */ event) => setSpan(Number(event.target.value))}>${SPANS.map(([ms, name]) => html`<option value=${ms}>${name}</option>`)}</select></label></div>
    ${!data && (problem ? html`<${Empty}>The history cannot be read: ${problem.message}.<//>` : html`<${Loading} what="the history" />`)}
    ${data && (data.times_ms.length < 2 ? html`<${Empty}>The log has just begun: the history has a point for each minute.<//>` : html`<div class="grid">
      ${Object.entries(data.resources).map(([resource, series]) => html`<figure key=${resource}><figcaption>${label(resource)}</figcaption>
        <${Lines} times=${data.times_ms} unit=${(/** @type {number} */ value) => measured(resource, value)} lines=${drawn(/** @type {any} */ (series))} /></figure>`)}
      <figure key="tasks"><figcaption>Tasks</figcaption><${Lines} times=${data.times_ms} lines=${[
        { name: "running", look: "held", values: data.running }, { name: "waiting", look: "ink", values: data.waiting }]} /></figure>
    </div>`)}
  </section>`;
}

/** What is held of a resource, beside what there is. @param {{unit: string, capacity: number[], held: number[], promised: number[]}} series */
function drawn(series) {
  const looks = /** @type {const} */ ([["held", "held"], ["promised", "dashed"], ["capacity", "ink"]]);
  const one = amount(series.unit);
  return looks.map(([name, look]) => ({ name, look, values: series[name].map((value) => value * one) }));
}
