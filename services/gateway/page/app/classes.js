// Classes of jobs: their pools, what is forecast to come back, and how far forecasts were off.
import { useDocument } from "./documents.js";
import { html } from "./lib.js";
import { Lines } from "./lines.js";
import { nowMs } from "./moment.js";
import { Amounts, Empty, Fact, Shown, Table } from "./parts.js";
import { href } from "./route.js";
import { number, percent } from "./text.js";

export function Classes() {
  const found = useDocument("v1/classes", ["classes", "jobs", "rounds", "config"]);
  return html`<div class="head"><h1>Classes of jobs</h1></div><${Shown} read=${found} what="the classes">${(/** @type {any} */ data) => html`<${Whole} data=${data} />`}<//>`;
}

/** @param {{data: any}} props */
function Whole({ data }) {
  const seconds = data.classes[0]?.coming.map((/** @type {any} */ each) => each.seconds) ?? [];
  return html`<div class="grid"><section class="card wide" aria-label="Classes">
    <p>${data.pools === "on" ? "Each class has a pool: so much of the cell is kept for it." : "Classes have no pools under the policy in force."}</p>
    <${Table} label="Classes"><thead><tr><th>Class</th><th class="num">Up to</th><th class="num">Pool</th><th class="num">Running</th><th class="num">Waiting</th><th>Holds</th>${data.pools === "on" && html`<th>Pool is</th>`}${seconds.map((/** @type {number} */ each) => html`<th key=${each}>Comes within ${each} s</th>`)}</tr></thead><tbody>
      ${data.classes.map((/** @type {any} */ row) => {
        const fact = (/** @type {string} */ field, /** @type {any} */ value, /** @type {any} */ shown) => html`<${Fact} kind="class" name=${row.class} field=${field} value=${value}>${shown}<//>`;
        return html`<tr key=${row.class}><th scope="row"><a href=${href(["jobs"], { class: row.class })}>${row.class}</a></th><td class="num">${row.threshold === null ? html`<span class="none">all others</span>` : fact("threshold", row.threshold, percent(row.threshold))}</td><td class="num">${fact("pool", row.pool, percent(row.pool))}</td>
          <td class="num">${fact("jobs.running", row.jobs.running, number(row.jobs.running))}</td><td class="num">${fact("jobs.waiting", row.jobs.waiting, number(row.jobs.waiting))}</td><td><${Amounts} of=${row.held} /></td>${data.pools === "on" && html`<td><${Amounts} of=${row.room} /></td>`}${row.coming.map((/** @type {any} */ each) => html`<td key=${each.seconds}><${Amounts} of=${each.amount} /></td>`)}</tr>`;
      })}</tbody><//></section>
    ${data.history.length > 0 && html`<section class="card" aria-label="Pools over time"><h2>Pools over time</h2><${Pools} data=${data} /></section>`}
    <section class="card" aria-label="Forecasts"><h2>How far forecasts were off</h2>
      ${!data.scores.some((/** @type {any} */ score) => score.errors.length) ? html`<${Empty}>No forecast has come due yet.<//>` : data.scores.map((/** @type {any} */ score) => html`<${Table} key=${score.forecaster} label=${`Errors of ${score.forecaster}`}><caption>${score.forecaster}${score.forecaster === data.forecaster ? " (in use)" : ""}</caption>
        <thead><tr><th class="num">Seconds ahead</th><th class="num">Mean error, of the cell</th><th class="num">Forecasts</th></tr></thead><tbody>${score.errors.map((/** @type {any} */ row) => html`<tr key=${row.seconds}><td class="num">${row.seconds}</td><td class="num">${percent(row.error)}</td><td class="num">${number(row.forecasts)}</td></tr>`)}</tbody><//>`)}</section></div>`;
}

/** @param {{data: any}} props */
function Pools({ data }) {
  const rows = data.history;
  const looks = /** @type {const} */ (["held", "ink", "mid", "dashed"]);
  // Pools stay until the next change: each is drawn to its end, too.
  const times = rows.flatMap((/** @type {any} */ row, /** @type {number} */ index) => [row.since_ms, (rows[index + 1]?.since_ms ?? Math.max(nowMs.value, row.since_ms)) - Number(index + 1 < rows.length)]);
  const lines = data.classes.map((/** @type {any} */ each, /** @type {number} */ index) => ({
    name: each.class, look: looks[index % looks.length] ?? "ink",
    values: rows.flatMap((/** @type {any} */ row) => [row.pools[index] ?? null, row.pools[index] ?? null]),
  }));
  return html`<${Lines} times=${times} lines=${lines} unit=${percent} />`;
}
