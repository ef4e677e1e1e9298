// Two worlds side by side: a log as it was, and decided again under something else.
import { html, useState } from "./lib.js";
import { Lines } from "./lines.js";
import { Bar, Empty, Table } from "./parts.js";
import { href, queueHref } from "./route.js";
import { counted, duration, label, number, percent } from "./text.js";

const LOSERS_SHOWN = 20;
const POINTS = 120;

/** How much more or less, in words. @param {number} before @param {number} after */
export function changed(before, after) {
  if (!before || before === after) return "";
  const part = (after - before) / before;
  return `${part > 0 ? "+" : "−"}${percent(Math.abs(part))}`;
}

/**
 * How many of the times have passed by a time, as lines over time.
 * @param {Record<string, number[]>} groups by name, times in ms
 * @returns {{times: number[], lines: import("./lines.js").Line[]}}
 */
export function distribution(groups) {
  const all = Object.values(groups).flat();
  const most = all.reduce((found, each) => Math.max(found, each), 1);
  const times = Array.from({ length: POINTS + 1 }, (_, index) => most * index / POINTS);
  const looks = /** @type {const} */ (["ink", "held", "dashed", "mid"]);
  const lines = Object.entries(groups).map(([name, values], index) => {
    const sorted = [...values].sort((a, b) => a - b);
    let passed = 0;
    return {
      name, look: looks[index % looks.length] ?? "ink",
      values: times.map((ms) => {
        while (passed < sorted.length && (sorted[passed] ?? 0) <= ms) passed += 1;
        return sorted.length ? passed / sorted.length : null;
      }),
    };
  });
  return { times, lines };
}

/** The answer to a what-if. @param {{answer: any, name?: string, title?: string, live?: boolean}} props `live`: its jobs and queues have views here. */
export function Worlds({ answer, name = "decided", title = "Decided again", live = true }) {
  const { queues = [], users = [], classes = [], jobs, explained, recorded, decided, both: alike } = answer;
  const times = (/** @type {string} */ field) => jobs.map((/** @type {any} */ job) => job[field]).filter((/** @type {any} */ ms) => ms !== null);
  const both = distribution({ recorded: times("recorded_ms"), [name]: times("decided_ms") });
  const different = Object.entries(answer.changed ?? {});
  return html`<div role="status" class="stack"><h3>${title}</h3>
    ${different.length > 0 && html`<p>${different.map(([what, sides]) => html`<span key=${what}><code>${what}</code> ${said(/** @type {any[]} */ (sides))}. </span>`)}</p>`}
    ${answer.from_seq > 0 && html`<p class="hint">Both worlds share what lies before record ${number(answer.from_seq)}.</p>`}
    <${Measures} worlds=${{ recorded: { ...recorded, ...alike?.recorded }, [name]: { ...decided, ...alike?.decided } }} />
    ${alike && html`<p class="hint">Completion and waiting are of the ${counted(alike.jobs, "job")} that ended in both worlds; ${number(alike.recorded_alone)} ended in the recorded one alone, ${number(alike.decided_alone)} in the other alone.</p>`}
    <${Groups} rows=${queues} by="queue" heading="By queue" name=${name} live=${live} empty="No job ended in both worlds." />
    <${Groups} rows=${users} by="user" heading="By tenant" name=${name} live=${live} />
    <${Groups} rows=${classes} by="class" heading="By class of jobs" name=${name} live=${live} />
    <${Losers} jobs=${jobs} name=${name} live=${live} />
    ${both.times.length > 1 && jobs.length > 1 && html`<figure><figcaption>How many of the jobs had ended after so long</figcaption><${Lines} times=${both.times} lines=${both.lines} unit=${percent} at=${duration} /></figure>`}
    ${explained.length > 0 && html`<h4>How far to believe it</h4>${explained.map((/** @type {string} */ text) => html`<p key=${text} class="hint">${text}</p>`)}`}</div>`;
}

/** What it was and what it is. @param {any[]} sides */
function said([before, after]) {
  const text = (/** @type {any} */ value) => Array.isArray(value) ? value.join(", ") : String(value);
  return Array.isArray(before) && !before.length ? text(after) : `${text(before)} → ${text(after)}`;
}

/** Measures of whole worlds; the first is what others are compared with. @param {{worlds: Record<string, any>}} props */
export function Measures({ worlds }) {
  const names = Object.keys(worlds);
  const first = worlds[names[0] ?? ""];
  if (!first) return null;
  const rows = /** @type {[string, (world: any) => number | null | undefined, (value: number) => string][]} */ ([
    ["Jobs", (world) => world.jobs, number],
    ["Refused", (world) => world.refused ?? world.rejected?.length, number],
    ["Completion, mean", (world) => world.jct_ms?.mean, duration],
    ["Completion, median", (world) => world.jct_ms?.p50, duration],
    ["Completion, 95th percentile", (world) => world.jct_ms?.p95, duration],
    ["Waiting, mean", (world) => world.waiting_ms?.mean, duration],
    ["Makespan", (world) => world.makespan_ms, duration],
    ["Jain's index, mean", (world) => world.jain?.mean, (value) => number(value, 3)],
    ...Object.keys(first.utilisation ?? {}).map((kind) => /** @type {any} */ ([`${label(kind)} in use, mean`, (/** @type {any} */ world) => world.utilisation?.[kind], percent])),
    ["Deadlines met", (world) => world.deadlines?.met, number],
  ]);
  return html`<${Table} label="Measures of the worlds"><thead><tr><th>Measure</th>${names.map((name) => html`<th key=${name} class="num">${name}</th>`)}${names.length === 2 && html`<th class="num">Change</th>`}</tr></thead><tbody>
    ${rows.filter(([, of]) => names.some((name) => typeof of(worlds[name]) === "number")).map(([text, of, shown]) => html`<tr key=${text}><th scope="row">${text}</th>
      ${names.map((name) => html`<td key=${name} class="num">${typeof of(worlds[name]) === "number" ? shown(/** @type {number} */ (of(worlds[name]))) : "–"}</td>`)}
      ${names.length === 2 && html`<td class="num">${changed(of(first) ?? 0, of(worlds[names[1] ?? ""]) ?? 0)}</td>`}</tr>`)}</tbody><//>`;
}

/** @param {{rows: any[], by: "queue" | "user" | "class", heading: string, name: string, live: boolean, empty?: string}} props */
function Groups({ rows, by, heading, name, live, empty = "" }) {
  if (!rows.length) return empty ? html`<${Empty}>${empty}<//>` : null;
  const most = Math.max(1, ...rows.map((row) => Math.max(row.later_ms, row.earlier_ms)));
  const address = (/** @type {string} */ of) => by === "queue" ? queueHref(of) : href(["jobs"], { [by]: of });
  return html`<h4>${heading}</h4><${Table} label=${`Jobs ${heading.toLowerCase()} in both worlds`}><thead><tr><th>${{ queue: "Queue", user: "Tenant", class: "Class" }[by]}</th><th class="num">Jobs</th><th class="num">Recorded, mean</th><th class="num">${name}, mean</th><th class="num">Change</th><th class="num">Later, in all</th><th class="num">Earlier, in all</th></tr></thead><tbody>
    ${rows.map((row) => html`<tr key=${row[by]}><th scope="row" class="name">${live && row[by] ? html`<a href=${address(row[by])}>${row[by]}</a>` : row[by] || html`<span class="none">none named</span>`}</th><td class="num">${number(row.jobs)}</td><td class="num">${duration(row.recorded_ms)}</td><td class="num">${duration(row.decided_ms)}</td><td class="num">${changed(row.recorded_ms, row.decided_ms)}</td>
      <td class="num">${row.later_ms ? html`${duration(row.later_ms)}<${Bar} label="later" parts=${[{ share: row.later_ms / most, look: "bad" }]} />` : "–"}</td>
      <td class="num">${row.earlier_ms ? html`${duration(row.earlier_ms)}<${Bar} label="earlier" parts=${[{ share: row.earlier_ms / most, look: "held" }]} />` : "–"}</td></tr>`)}</tbody><//>`;
}

/** Jobs that end later, and those that end otherwise. @param {{jobs: any[], name: string, live: boolean}} props */
function Losers({ jobs, name, live }) {
  const [all, setAll] = useState(false);
  const losers = jobs.filter((job) => job.recorded_ms !== null && job.decided_ms > job.recorded_ms)
    .sort((a, b) => b.decided_ms - b.recorded_ms - (a.decided_ms - a.recorded_ms) || (a.job < b.job ? -1 : 1));
  const other = jobs.filter((job) => job.recorded_outcome !== null && job.recorded_outcome !== job.decided_outcome);
  const link = (/** @type {string} */ job) => live ? html`<a href=${href(["jobs", job])}>${job}</a>` : job;
  return html`<h4>Who loses</h4>
    ${!losers.length && html`<p>No job would have ended later.</p>`}
    ${losers.length > 0 && html`<${Table} label="Jobs that end later"><thead><tr><th>Job</th><th>Queue</th><th>Tenant</th><th class="num">Recorded</th><th class="num">${name}</th><th class="num">Later by</th></tr></thead><tbody>
      ${losers.slice(0, all ? losers.length : LOSERS_SHOWN).map((job) => html`<tr key=${job.job}><th scope="row" class="name">${link(job.job)}</th><td class="name">${job.queue}</td><td class="name">${job.user ?? ""}</td><td class="num">${duration(job.recorded_ms)}</td><td class="num">${duration(job.decided_ms)}</td><td class="num"><strong>${duration(job.decided_ms - job.recorded_ms)}</strong></td></tr>`)}</tbody><//>
      ${losers.length > LOSERS_SHOWN && html`<p class="row"><span class="note">${counted(losers.length, "job")} would have ended later.</span><button type="button" onClick=${() => setAll(!all)}>${all ? "Only those that lose most" : "Show all"}</button></p>`}`}
    ${other.length > 0 && html`<p class="attention">Another end: ${other.slice(0, LOSERS_SHOWN).map((job) => html`<span key=${job.job}>${link(job.job)}: ${job.recorded_outcome}, would be ${job.decided_outcome ?? "not over"}. </span>`)}</p>`}`;
}
