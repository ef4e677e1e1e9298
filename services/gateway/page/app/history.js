// How the cell has been over the last hours.
import { useDocument } from "./documents.js";
import { html, useState } from "./lib.js";
import { Lines } from "./lines.js";
import { nowMs } from "./moment.js";
import { Empty, Loading } from "./parts.js";
import { amount, label, measured } from "./text.js";

const SPANS = /** @type {[number, string][]} */ ([[3_600_000, "last hour"], [6 * 3_600_000, "last 6 hours"], [24 * 3_600_000, "last 24 hours"]]);
const POINTS = 240;
const EVERY_MS = 5_000;

export function History() {
  const [span, setSpan] = useState(3_600_000);
  const to = Math.ceil((nowMs.value + 1) / EVERY_MS) * EVERY_MS; // Whole steps, so that an address stays for a while.
  const found = useDocument(`v1/history?from_ms=${to - span}&to_ms=${to}&points=${POINTS}`, [], { timed: false });
  const { data, problem } = found;
  const resources = Object.entries(data?.resources ?? {});
  return html`<section class="card wide"><div class="head"><h2>Over time</h2>
      <label class="row"><span class="unseen">Span</span><select value=${span} onChange=${(/** @type {any} */ event) => setSpan(Number(event.target.value))}>${SPANS.map(([ms, name]) => html`<option value=${ms}>${name}</option>`)}</select></label></div>
    ${!data && !problem && html`<${Loading} what="the last hours" />`}
    ${!data && problem && html`<${Empty}>What was before is not kept here: ${problem.message}. Move the slider to see any moment of the log.<//>`}
    ${data && !data.times_ms.length && html`<${Empty}>Nothing was recorded in this span. Choose a longer one.<//>`}
    ${data && data.times_ms.length > 0 && html`<div class="grid">
      ${resources.map(([resource, series]) => html`<figure key=${resource}><figcaption>${label(resource)}</figcaption>
        <${Lines} times=${data.times_ms} unit=${(/** @type {number} */ value) => measured(resource, value)} lines=${drawn(series)} /></figure>`)}
      <figure key="tasks"><figcaption>Tasks</figcaption><${Lines} times=${data.times_ms} lines=${[
        { name: "running", values: data.running, look: "held" }, { name: "waiting", values: data.waiting, look: "ink" }]} /></figure>
    </div>`}
  </section>`;
}

/** What is held of a resource, beside what there is. @param {{unit: string, capacity: number[], held: number[], promised: number[]}} series */
function drawn(series) {
  const looks = /** @type {const} */ ([["capacity", "ink"], ["held", "held"], ["promised", "dashed"]]);
  const one = amount(series.unit);
  return looks.map(([name, look]) => ({ name, look, values: series[name].map((value) => value * one) }));
}
