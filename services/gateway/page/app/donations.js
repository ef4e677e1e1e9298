// Who gave to whom over a span of time: jobs by the ledger, queues by what they were guaranteed.
import { useDocument } from "./documents.js";
import { Flows } from "./flows.js";
import { Lending } from "./lending.js";
import { html, useState } from "./lib.js";
import { logBegins, shown } from "./moment.js";
import { Bar, Empty, Fact, Shown, Table } from "./parts.js";
import { href, queueHref, route, go, here } from "./route.js";
import { settings } from "./settings.js";
import { amount, clock, counted, day, duration, iso, label, number, percent, resourceTime, zone } from "./text.js";

const JOBS_SHOWN = 50;
const LOOKS = { donated: "held", received: "mid", waited: "soft" };
const FIELDS = /** @type {const} */ (["donated", "received", "waited"]);

/** @typedef {{name: string, queue: string, donated: Record<string, number>, received: Record<string, number>, waited: Record<string, number>, lost: number}} Account */

export function Donations() {
  const asked = route.value.query.get("since");
  const begins = logBegins.value;
  const isReady = asked === null || begins !== null;
  // Before the log begins nothing was given.
  const since = asked !== null && begins !== null && (/^[0-9]+$/.test(asked) ? 0 : Date.parse(asked) - begins) < 0 ? null : asked;
  const now = useDocument("v1/ledger", ["ledger", "jobs", "rounds"]);
  const before = useDocument(since === null || !isReady ? null : `v1/ledger?at=${encodeURIComponent(since)}`, [], { timed: false });
  const text = asked === null || since === null || /^[0-9]+$/.test(since) ? "" : `${day(Date.parse(since))}T${clock(Date.parse(since))}`;
  return html`<div class="head"><h1>Donations</h1></div>
    <form class="filters" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Since (${zone()})<input type="datetime-local" step="1" value=${text} max=${shown.value ? `${day(shown.value.time)}T${clock(shown.value.time)}` : null}
        onChange=${(/** @type {any} */ event) => { const chosen = event.target.value; go(here({ since: chosen ? iso(Date.parse(settings.zone.value === "log" ? `${chosen}Z` : chosen)) : null }), { replace: true }); }} /></label>
      ${[[1, "last hour"], [24, "last day"]].map(([hours, name]) => html`<button type="button" key=${name} disabled=${!shown.value} onClick=${() => go(here({ since: iso((shown.value?.time ?? 0) - Number(hours) * 3_600_000) }), { replace: true })}>${name}</button>`)}
      <button type="button" disabled=${asked === null} onClick=${() => go(here({ since: null }), { replace: true })}>since the beginning</button>
      <p class="hint">Up to the moment that the bar above shows: move it to look at another span.</p>
    </form>
    <${Shown} read=${now} what="the ledger">${(/** @type {any} */ ledger) => !isReady || (since !== null && before.data === null)
      ? before.problem ? html`<p class="trouble" role="alert">${before.problem.message}</p>` : html`<p class="note" role="status">Reading what was before …</p>`
      : html`<${Whole} now=${ledger} before=${since === null ? { queues: [], jobs: [] } : before.data} />`}<//>
    ${isReady && html`<div class="grid"><${Lending} key=${since} from=${since === null || /^[0-9]+$/.test(since) ? before.data?.at?.time ?? 0 : Math.max(0, Date.parse(since))} /></div>`}`;
}

/** Accounts less what they were before. @param {any[]} rows @param {any[]} before @param {"queue" | "job"} key @returns {Account[]} */
export function since(rows, before, key) {
  const old = new Map(before.map((row) => [row[key], row]));
  return rows.map((row) => {
    const less = (/** @type {"donated" | "received" | "waited"} */ field) => Object.fromEntries(Object.entries(row[field]).map(([resource, text]) =>
      [resource, amount(/** @type {string} */ (text)) - amount(old.get(row[key])?.[field]?.[resource])]));
    return { name: row[key], queue: row.queue, donated: less("donated"), received: less("received"), waited: less("waited"), lost: row.lost_ms - (old.get(row[key])?.lost_ms ?? 0) };
  });
}

/** @param {{now: any, before: any}} props */
function Whole({ now, before }) {
  const queues = since(now.queues, before.queues, "queue");
  const jobs = since(now.jobs, before.jobs, "job");
  const resources = [...new Set(queues.flatMap((row) => FIELDS.flatMap((field) => Object.keys(row[field]))))].sort();
  const [chosen, setChosen] = useState("cpu");
  const resource = resources.includes(chosen) ? chosen : resources[0] ?? "cpu";
  const of = (/** @type {Account} */ row, /** @type {"donated" | "received" | "waited"} */ field) => row[field][resource] ?? 0;
  const isWhole = before.queues.length === 0;
  if (!queues.length) return html`<div class="card"><${Empty}>No job gave anything away. Jobs give under the presets <code>carbyne</code> and <code>carbyne-dag</code>; under any preset queues lend each other what they leave of their guarantees, as below.<//></div>`;
  const most = Math.max(Number.MIN_VALUE, ...queues.map((row) => Math.max(of(row, "donated"), of(row, "received"))));
  const ranked = jobs.filter((row) => of(row, "donated") || of(row, "received") || of(row, "waited")).sort((a, b) => of(b, "donated") + of(b, "received") - of(a, "donated") - of(a, "received") || (a.name < b.name ? -1 : 1));
  const cells = (/** @type {Account} */ row, /** @type {string} */ kind) => FIELDS.map((field) => html`<td key=${field} class="num"><${Fact} kind=${kind} name=${row.name} field=${`${field}.${resource}`} value=${isWhole ? (kind === "account" ? now.queues : now.jobs).find((/** @type {any} */ each) => (each.job ?? each.queue) === row.name)?.[field]?.[resource] ?? "0" : of(row, field)}>${resourceTime(resource, of(row, field))}<//>${kind === "account" && html`<${Bar} label=${`${percent(of(row, field) / most)} of the most`} parts=${[{ share: of(row, field) / most, look: LOOKS[field] }]} />`}</td>`);
  return html`<div class="grid"><section class="card wide" aria-label="By queue">
      <div class="row"><h2>By queue</h2><label class="row hint">of <select value=${resource} onChange=${(/** @type {any} */ event) => setChosen(event.target.value)}>${resources.map((each) => html`<option value=${each}>${label(each)}</option>`)}</select></label></div>
      <${Flows} text=${(/** @type {number} */ value) => resourceTime(resource, value)} givers=${queues.map((row) => ({ name: row.name, value: of(row, "donated") }))} receivers=${queues.map((row) => ({ name: row.name, value: of(row, "received") }))} />
      <${Table} label="Given and received by queue"><thead><tr><th>Queue</th><th class="num">Gave</th><th class="num">Got</th><th class="num">Waited for</th><th class="num">Jobs ended later by</th></tr></thead><tbody>
        ${queues.map((row) => html`<tr key=${row.name}><th scope="row" class="name"><a href=${queueHref(row.name)}>${row.name}</a></th>${cells(row, "account")}<td class="num">${duration(row.lost)}</td></tr>`)}</tbody><//>
      <p class="hint">Gave: entitled to, and not needed then. Got: held beyond what it was entitled to. Waited for: entitled to and needed, while there was no room.</p></section>
    <section class="card wide" aria-label="By job"><h2>By job</h2>${!ranked.length ? html`<${Empty}>No job gave or got any of it in this span.<//>` : html`<${Table} label="Given and received by job"><thead><tr><th>Job</th><th>Queue</th><th class="num">Gave</th><th class="num">Got</th><th class="num">Waited for</th><th class="num">Ends later by</th></tr></thead><tbody>
      ${ranked.slice(0, JOBS_SHOWN).map((row) => html`<tr key=${row.name}><th scope="row" class="name"><a href=${href(["jobs", row.name])}>${row.name}</a></th><td class="name"><a href=${queueHref(row.queue)}>${row.queue}</a></td>${cells(row, "account-job")}<td class="num">${duration(row.lost)}</td></tr>`)}</tbody><//>
      ${ranked.length > JOBS_SHOWN && html`<p class="note">The ${number(JOBS_SHOWN)} that gave and got most, of ${counted(ranked.length, "job")}.</p>`}`}</section></div>`;
}
