// The list of jobs: a window of it, filtered and sorted by the gateway.
import { address } from "./api.js";
import { useDocument } from "./documents.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { nowMs } from "./moment.js";
import { Bar, Empty, Fact, Shown, SortHead, State, Table, Time, Window } from "./parts.js";
import { go, here, href, queueHref, route } from "./route.js";
import { may } from "./session.js";
import { duration, number } from "./text.js";
import { Words } from "./words.js";

const SIZE = 50;
const STATES = ["waiting", "running", "succeeded", "failed", "cancelled", "rejected"];
const TYPED_MS = 250;

export function Jobs() {
  const { query } = route.value;
  const filters = Object.fromEntries(["q", "queue", "user", "class", "reservation"].map((name) => [name, query.get(name) ?? ""]));
  const states = query.getAll("state").flatMap((state) => state.split(",")).filter((state) => STATES.includes(state));
  const sort = query.get("sort") ?? "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const found = useDocument(address("v1/jobs", { ...filters, state: states, sort, offset, limit: SIZE }), ["jobs"]);
  return html`
    <div class="head"><h1>Jobs</h1>${may("submitter") && html`<p class="row"><a class="button" href=${href(["submit"])}>Submit a job</a></p>`}</div>
    <${Filters} filters=${filters} states=${states} />
    <${Shown} read=${found} what="jobs">${(/** @type {any} */ data) => html`<div class="card"><${List} data=${data} sort=${sort} offset=${offset} filtered=${Object.values(filters).some(Boolean) || states.length > 0} /></div>`}<//>`;
}

/** @param {Record<string, string | number | null>} query */
function show(query) {
  go(here({ offset: null, ...query }), { replace: true });
}

/** @param {{filters: Record<string, string>, states: string[]}} props */
function Filters({ filters, states }) {
  return html`<form class="filters" aria-label="Which jobs" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <${Typed} label="Name, queue or user contains" name="q" value=${filters.q ?? ""} />
    <label>State<select value=${states[0] ?? ""} onChange=${(/** @type {any} */ event) => show({ state: event.target.value })}>
      <option value="">any</option>${STATES.map((state) => html`<option value=${state}>${state}</option>`)}</select></label>
    <${Typed} label="Queue, with those below" name="queue" value=${filters.queue ?? ""} />
    <${Typed} label="User" name="user" value=${filters.user ?? ""} />
    ${(filters.class || filters.reservation) && html`<p>${filters.class && `Class ${filters.class}. `}${filters.reservation && `Reservation ${filters.reservation}. `}</p>`}
    <a class="button" href=${href(["jobs"])}>All jobs</a>
  </form>`;
}

/** A field that filters once one stops to type. @param {{label: string, name: string, value: string}} props */
function Typed({ label, name, value }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return html`<label>${label}<input type="search" maxlength="200" value=${text} spellcheck=${false} onInput=${(/** @type {any} */ event) => {
    const next = event.target.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => show({ [name]: next.trim() }), TYPED_MS);
  }} /></label>`;
}

/** @param {{data: any, sort: string, offset: number, filtered: boolean}} props */
function List({ data, sort, offset, filtered }) {
  const jobs = data.jobs;
  const onSort = (/** @type {string} */ by) => show({ sort: by });
  const head = (/** @type {string} */ by, /** @type {string} */ text, look = "") => html`<${SortHead} by=${by} sort=${sort} onSort=${onSort} class=${look}>${text}<//>`;
  if (!jobs.length && offset === 0) {
    return html`<${Empty}>${filtered ? html`No job is like that. <a href=${href(["jobs"])}>Show all jobs</a>.` : html`There is no job yet. <a href=${href(["submit"])}>Submit one</a>, or <code>largesse submit FILE</code>.`}<//>`;
  }
  return html`
    <${Table} label="Jobs" class="jobs"><thead><tr>
      ${head("name", "Job")}${head("state", "State")}${head("queue", "Queue")}${head("user", "User")}${head("tasks", "Tasks", "num")}
      ${head("submitted", "Submitted")}${head("waiting", "Took or waits", "num")}<th scope="col">What it waits for, or how it ended</th></tr></thead>
    <tbody>${jobs.map((/** @type {any} */ job) => html`<${Row} key=${job.job} job=${job} />`)}</tbody><//>
    <${Window} offset=${offset} shown=${jobs.length} total=${data.total ?? null} size=${SIZE} what="jobs" onOffset=${(/** @type {number} */ next) => show({ offset: next || null })} />
    ${data.ended_kept_max && html`<p class="hint">Of jobs that have ended at most ${number(data.ended_kept_max)} are kept.</p>`}`;
}

/** @param {{job: any}} props */
function Row({ job }) {
  const { total, succeeded, running, starting } = job.tasks;
  const fact = (/** @type {string} */ field, /** @type {any} */ value, /** @type {any} */ shown) => html`<${Fact} kind="job" name=${job.job} field=${field} value=${value}>${shown}<//>`;
  return html`<tr>
    <th scope="row" class="name"><a href=${href(["jobs", job.job])}>${job.job}</a></th>
    <td>${fact("state", job.state, html`<${State} state=${job.state} />`)}${job.held && html` <span class="none">held by ${job.held.by}</span>`}</td>
    <td class="name"><a href=${queueHref(job.queue)}>${job.queue}</a></td>
    <td class="name">${job.user || job.author}</td>
    <td class="num">${fact("tasks.succeeded", succeeded, number(succeeded))} of ${fact("tasks.total", total, number(total))}
      ${job.ended_ms === null && html`<${Bar} label=${`${succeeded} of ${total} tasks succeeded, ${running} run`} parts=${[{ share: succeeded / total, look: "held" }, { share: (running + starting) / total, look: "mid" }, { share: job.tasks.failed / total, look: "bad" }]} />`}</td>
    <td class="when">${fact("submitted_ms", job.submitted_ms, html`<${Time} ms=${job.submitted_ms} />`)}</td>
    <td class="num">${duration((job.ended_ms ?? nowMs.value) - job.submitted_ms)}</td>
    <td class="text"><${WaitsFor} job=${job} /></td>
  </tr>`;
}

/** What a job waits for; of one that runs, its other tasks. @param {{job: any}} props */
export function WaitsFor({ job }) {
  return html`${job.why && job.state === "running" ? "its other tasks wait: " : ""}<${Words} text=${job.why ?? (job.detail || job.reason || "")} />`;
}
