// What a job held over its life, and what it gave away, received and waited for meanwhile.
import { path } from "./api.js";
import { useDocument } from "./documents.js";
import { Cut } from "./gantt.js";
import { html, useState } from "./lib.js";
import { Lines } from "./lines.js";
import { nowMs } from "./moment.js";
import { Bar, Empty, Fact, Shown, Table } from "./parts.js";
import { href } from "./route.js";
import { amount, duration, label, measured, percent, resourceTime } from "./text.js";

const EVERY_MS = 5_000;
/** Presets under which jobs have an account. */
const ACCOUNTED = ["carbyne", "carbyne-dag"];
const FIELDS = /** @type {const} */ ([["donated", "Gave", "held"], ["received", "Got", "mid"], ["waited", "Waited for", "soft"]]);

/**
 * What was held from each time on, by resource, in natural units.
 * @param {any[]} attempts @param {Map<string, Record<string, string>>} demands by stage @param {number} until
 */
export function heldOver(attempts, demands, until) {
  /** @type {Map<number, Record<string, number>>} */
  const steps = new Map();
  const step = (/** @type {number} */ ms, /** @type {Record<string, string>} */ demand, /** @type {number} */ sign) => {
    const found = steps.get(ms) ?? {};
    for (const [kind, text] of Object.entries(demand)) found[kind] = (found[kind] ?? 0) + sign * amount(text);
    steps.set(ms, found);
  };
  for (const row of attempts) {
    const demand = demands.get(row.stage);
    const from = row.granted_ms ?? row.start_ms;
    if (!demand || from === null || from > until) continue;
    step(from, demand, 1);
    if (row.end_ms !== null && row.end_ms <= until) step(row.end_ms, demand, -1);
  }
  const times = [...steps.keys()].sort((a, b) => a - b);
  const kinds = [...new Set([...demands.values()].flatMap(Object.keys))].sort();
  /** @type {Record<string, number[]>} */
  const held = Object.fromEntries(kinds.map((kind) => [kind, []]));
  for (const kind of kinds) {
    let sum = 0;
    for (const ms of times) held[kind]?.push(Math.max(0, sum += steps.get(ms)?.[kind] ?? 0));
  }
  return { times, held };
}

/** Steps as lines go: each value stays until the next. @param {number[]} times @param {number[]} values @param {number} until */
function stepped(times, values, until) {
  return {
    times: times.flatMap((ms, index) => [ms, Math.max(ms, (times[index + 1] ?? until) - Number(index + 1 < times.length))]),
    values: values.flatMap((value) => [value, value]),
  };
}

/** @param {{job: any}} props */
export function JobShare({ job }) {
  const found = useDocument(path("jobs", job.job, "attempts"), [`jobs/${job.job}`], { everyMs: EVERY_MS });
  const cell = useDocument("v1/summary", ["nodes"], { everyMs: EVERY_MS, shared: true });
  const [chosen, setChosen] = useState("");
  const demands = new Map(job.stages.filter((/** @type {any} */ stage) => stage.demand).map((/** @type {any} */ stage) => [stage.stage, stage.demand]));
  const until = job.ended_ms ?? nowMs.value;
  return html`<section class="card wide" aria-label="Share over time"><h2>What it held over time</h2>
    ${!demands.size ? html`<${Empty}>What its tasks asked for is kept no longer.<//>` : html`<${Shown} read=${found} what="what it held">${(/** @type {any} */ data) => {
      const { times, held } = heldOver(data.attempts, demands, until);
      if (!times.length) return html`<${Empty}>It has held nothing yet.<//>`;
      const capacity = cell.data?.capacity ?? {};
      const share = (/** @type {string} */ kind, /** @type {number} */ value) => amount(capacity[kind]) ? value / amount(capacity[kind]) : 0;
      const kinds = Object.keys(held);
      const dominant = kinds.reduce((best, kind) => share(kind, Math.max(...held[kind] ?? [])) > share(best, Math.max(...held[best] ?? [])) ? kind : best, kinds[0] ?? "");
      const kind = kinds.includes(chosen) ? chosen : dominant;
      const drawn = stepped(times, held[kind] ?? [], until);
      return html`<label class="row hint">of <select value=${kind} onChange=${(/** @type {any} */ event) => setChosen(event.target.value)}>${kinds.map((each) => html`<option value=${each}>${label(each)}</option>`)}</select></label>
        <${Lines} times=${drawn.times} kind=${kind} unit=${(/** @type {number} */ value) => measured(kind, value)} lines=${[{ name: `${label(kind)} held`, look: "held", values: drawn.values }]} />
        <p class="hint">At most ${measured(kind, Math.max(...held[kind] ?? []))}${amount(capacity[kind]) ? `, ${percent(share(kind, Math.max(...held[kind] ?? [])))} of what the cell has` : ""}.</p>${data.truncated && html`<${Cut} data=${data} again=${found.again} />`}`;
    }}<//>`}
    <${Given} job=${job} preset=${cell.data?.preset ?? ""} /></section>`;
}

/** What it gave and got over its life. @param {{job: any, preset: string}} props `preset`: of the cell. */
function Given({ job, preset }) {
  const account = job.account;
  if (!account && ACCOUNTED.includes(preset) && job.started_ms === null) return html`<p class="hint">It has no account of what it gave and got yet.</p>`;
  if (!account) return html`<p class="hint">No account of what it gave and received: jobs have one under the presets <code>carbyne</code> and <code>carbyne-dag</code>.</p>`;
  const kinds = [...new Set(FIELDS.flatMap(([field]) => Object.keys(account[field])))].sort();
  if (!kinds.length) return html`<p class="hint">It has given nothing away, received nothing beyond what it was entitled to, and waited for nothing of that.</p>`;
  return html`<h3>What it gave and got</h3><${Table} label="What the job gave and got"><thead><tr><th>Resource</th>${FIELDS.map(([field, text]) => html`<th key=${field} class="num">${text}</th>`)}</tr></thead><tbody>
    ${kinds.map((kind) => {
      const most = Math.max(Number.MIN_VALUE, ...FIELDS.map(([field]) => amount(account[field][kind])));
      return html`<tr key=${kind}><th scope="row">${label(kind)}</th>${FIELDS.map(([field, text, look]) => html`<td key=${field} class="num"><${Fact} kind="job" name=${job.job} field=${`account.${field}.${kind}`} value=${account[field][kind] ?? "0"}>${resourceTime(kind, account[field][kind] ?? "0")}<//><${Bar} label=${text} parts=${[{ share: amount(account[field][kind]) / most, look }]} /></td>`)}</tr>`;
    })}</tbody><//>
    <p class="hint">${account.lost_ms > 0 ? `By that it ends ${duration(account.lost_ms)} later than by its own plan.` : "It ends no later by that than by its own plan."} <a href=${href(["donations"])}>Who else gave and got</a></p>`;
}
