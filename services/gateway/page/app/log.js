// The log: records with filters, and what was decided in a round.
import { path } from "./api.js";
import { useDocument } from "./documents.js";
import { html, useEffect, useState } from "./lib.js";
import { Empty, Fact, Shown, Table, Time } from "./parts.js";
import { Records } from "./records.js";
import { go, here, href, queueHref, route } from "./route.js";
import { shown } from "./moment.js";
import { number, percent } from "./text.js";
import { recordHref } from "./words.js";

/** Types of records. */
export const TYPES = [
  "AttemptsKnown", "Checkpoint", "ConfigChanged", "InputRefused", "InputRepeated", "InputSkipped", "JobAdmitted",
  "JobCancelled", "JobChanged", "JobEnded", "JobRejected", "JobTurns", "NodeDrained", "NodeForgotten", "NodeLost", "NodeRegistered",
  "NodeRemoved", "NodeReported", "PlanProposed", "Plans", "Releases", "ReservationDeleted", "ReservationRequested",
  "ReservationUpdated", "RoundAbandoned", "RoundClosed", "RoundOpened", "SequencerAlive", "SequencerClaimed",
  "SeriesEnded", "SeriesRequested", "TaskFailed", "TaskFinished", "TaskStarted", "TimeReached", "TokenMade", "TokenRevoked",
];
const NAMES = /** @type {const} */ ([["job", "Job"], ["node", "Node"], ["queue", "Queue"], ["user", "User"], ["reservation", "Reservation"]]);

/** A positive whole number in a text, or null. @param {string | null} text */
function whole(text) {
  return text && /^[0-9]+$/.test(text) ? Number(text) : null;
}

/** Whether the window has room for what is folded where it is narrow. */
function isWide() {
  return matchMedia("(min-width: 52.01rem)").matches;
}

export function Log() {
  const { query } = route.value;
  const chosen = query.get("type") ?? "";
  /** @type {Record<string, string>} */
  const filters = { type: TYPES.includes(chosen) ? chosen : "", ...Object.fromEntries(NAMES.map(([name]) => [name, query.get(name) ?? ""])) };
  const [from, to] = [whole(query.get("from")), whole(query.get("to"))];
  const show = (/** @type {Record<string, any>} */ change) => go(here(change), { replace: true });
  return html`<div class="head"><h1>Log</h1>${shown.value && html`<p class="row"><a class="button" href=${href(["log", "rounds", String(shown.value.round)])}>Round ${number(shown.value.round)}</a></p>`}</div>
    <details class="fold" open=${isWide() || Object.values(filters).some(Boolean) || from !== null || to !== null}><summary>Filters</summary>
    <form class="filters" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Type<select value=${filters.type} onChange=${(/** @type {any} */ event) => show({ type: event.target.value })}><option value="">any</option>${TYPES.map((type) => html`<option value=${type}>${type}</option>`)}</select></label>
      ${NAMES.map(([name, text]) => html`<${Filter} key=${name} text=${text} value=${filters[name] ?? ""} onValue=${(/** @type {string} */ value) => show({ [name]: value })} />`)}
      <${Filter} text="From record" value=${from === null ? "" : String(from)} onValue=${(/** @type {string} */ value) => show({ from: whole(value) })} />
      <${Filter} text="To record" value=${to === null ? "" : String(to)} onValue=${(/** @type {string} */ value) => show({ to: whole(value) })} />
      <a class="button" href=${href(["log"])}>All records</a>
    </form></details>
    <div class="card"><${Records} key=${JSON.stringify([filters, from, to])} query=${filters} from=${from} to=${to} kinds=${["rounds", "jobs", "nodes", "queues", "config", "reservations", "ledger", "classes"]} /></div>`;
}

/** @param {{text: string, value: string, onValue: (value: string) => void}} props */
function Filter({ text, value, onValue }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return html`<label>${text}<input type="search" value=${typed} spellcheck=${false} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} onChange=${(/** @type {any} */ event) => onValue(event.target.value.trim())} /></label>`;
}

/** @param {{round: string}} props */
export function Round({ round }) {
  const number_ = Number(round);
  const found = useDocument(path("rounds", round), ["rounds"], { timed: false });
  return html`<div class="head"><h1>Round ${number(number_)}</h1><p class="row">
      <a class="button" href=${href(["log", "rounds", String(Math.max(1, number_ - 1))])}>Round before</a><a class="button" href=${href(["log", "rounds", String(number_ + 1)])}>Round after</a></p></div>
    <${Shown} read=${found} what=${`round ${round}`}>${(/** @type {any} */ data) => html`<${Decisions} data=${data} />`}<//>`;
}

/** @param {{data: any}} props */
function Decisions({ data }) {
  const records = data.records;
  const decisions = data.decisions;
  const rows = [...records, ...decisions];
  if (!rows.length) return html`<div class="card"><${Empty}>The log keeps nothing of this round. <a href=${href(["log"])}>All records</a>.<//></div>`;
  return html`${records.length > 0 && html`<section class="card"><h2>Its records</h2><${Table} label="Records of the round"><thead><tr><th class="num">Record</th><th>When</th><th>Type</th><th>What it says</th></tr></thead><tbody>
      ${records.map((/** @type {any} */ row) => html`<tr key=${row.seq}><td class="num"><${Fact} kind="record" name=${row.seq} field="seq" value=${row.seq}><a href=${recordHref(row.seq)}>${number(row.seq)}</a><//></td><td class="when"><${Time} ms=${row.time_ms} /></td><td>${row.type}</td><td class="text">${row.line}</td></tr>`)}</tbody><//></section>`}
    <div class="grid decisions">${decisions.map((/** @type {any} */ row, /** @type {number} */ index) => html`<section class="card" key=${index}><h2>${row.topic}${row.of > 1 ? ` ${row.shard} of ${row.of}` : ""}</h2>${row.record === null && html`<p class="note">It is kept no longer.</p>`}<${Said} body=${row.record?.body ?? {}} />
      ${row.record && html`<details><summary>The whole document</summary><pre tabindex="0" role="group" aria-label=${row.topic}>${JSON.stringify(row.record.body ?? row.record, null, 2)}</pre></details>`}</section>`)}</div>`;
}

/** Shares in a record are parts of this. */
const SHARE = 1e9;
const SHARES = /** @type {const} */ ([["allocated", "Holds"], ["fair", "Fair"], ["guaranteed", "Guaranteed"], ["lent", "Lent"], ["borrowed", "Borrowed"]]);
const ROWS_MAX = 50;

/** What a decision says: shares of queues, what is granted, and how much else there is. @param {{body: any}} props */
function Said({ body }) {
  const queues = body.queues ?? [];
  const grants = body.grants ?? [];
  const rest = Object.entries(body).filter(([name, each]) => Array.isArray(each) && each.length > 0 && name !== "queues" && name !== "grants");
  return html`${queues.length > 0 && html`<${Table} label="Shares of queues that changed"><thead><tr><th>Queue</th>${SHARES.map(([, text]) => html`<th key=${text} class="num">${text}</th>`)}</tr></thead><tbody>
      ${queues.slice(0, ROWS_MAX).map((/** @type {any} */ queue) => html`<tr key=${queue.queue}><th scope="row" class="name"><a href=${queueHref(queue.queue || "root")}>${queue.queue || "root"}</a></th>${SHARES.map(([field]) => html`<td key=${field} class="num">${percent(queue[field] === null || queue[field] === undefined ? null : queue[field] / SHARE)}</td>`)}</tr>`)}</tbody><//>`}
    ${grants.length > 0 && html`<${Table} label="What is granted"><thead><tr><th>Tasks</th><th>Node</th><th>Why</th></tr></thead><tbody>
      ${grants.slice(0, ROWS_MAX).map((/** @type {any} */ each, /** @type {number} */ index) => html`<tr key=${index}><th scope="row" class="name"><a href=${href(["jobs", each.job])}>${each.job}/${each.stage}/${each.first}${each.count > 1 ? `–${each.first + each.count - 1}` : ""}</a></th><td class="name"><a href=${href(["nodes", each.node])}>${each.node}</a></td><td>${each.why}</td></tr>`)}</tbody><//>`}
    ${(queues.length > ROWS_MAX || grants.length > ROWS_MAX) && html`<p class="note">The first ${ROWS_MAX} of each.</p>`}
    ${rest.length > 0 ? html`<p>${rest.map(([name, each]) => `${name.replaceAll("_", " ")}: ${number(/** @type {any[]} */ (each).length)}`).join(", ")}.</p>` : !queues.length && !grants.length && html`<p class="note">It changes nothing.</p>`}`;
}
