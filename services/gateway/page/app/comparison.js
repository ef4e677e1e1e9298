// Presets beside each other over one workload, as `largesse compare` has run them.
import { html, useState } from "./lib.js";
import { Lines } from "./lines.js";
import { Empty, Table } from "./parts.js";
import { counted, duration, label, number, percent } from "./text.js";
import { Measures, changed, distribution } from "./worlds.js";

const LOSERS_SHOWN = 20;
const LOOKS = /** @type {const} */ (["ink", "held", "dashed", "mid"]);
/** So much longer counts as slower. */
const NOTICED = 1.01;

/** @param {any} job */
function took(job) {
  return job.end_ms === null ? null : job.end_ms - job.submit_ms;
}

/** @param {number[]} values @param {number} part */
function nth(values, part) {
  return [...values].sort((a, b) => a - b)[Math.max(0, Math.ceil(values.length * part) - 1)] ?? 0;
}

/** @param {number[]} values */
function mean(values) {
  return values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : 0;
}

/** @param {{name: string, results: Record<string, any>}} props */
export function Comparison({ name, results }) {
  const presets = Object.keys(results);
  const [first = ""] = presets;
  const rows = presets.map((preset) => results[preset]);
  if (!rows.length) return html`<${Empty}>The file compares nothing.<//>`;
  const times = Object.fromEntries(presets.map((preset) => [preset, results[preset].per_job.map(took).filter((/** @type {any} */ ms) => ms !== null)]));
  const ended = distribution(times);
  return html`<h2>${presets.join(", ")}</h2><p class="hint">${name}: ${counted(rows[0].jobs, "job")}, ${counted(rows[0].tasks, "task")}, seed ${rows[0].seed}, Largesse ${rows[0].version}. ${presets.length > 1 ? `${first} is what the others are compared with.` : ""}</p>
    <${Measures} worlds=${results} />
    ${presets.length > 1 && html`<${Gains} results=${results} first=${first} />`}
    <figure><figcaption>How many of the jobs had ended after so long</figcaption><${Lines} times=${ended.times} lines=${ended.lines} unit=${percent} at=${duration} /></figure>
    <${By} key="queue" results=${results} by="queue" heading="By queue" />
    <${By} key="class" results=${results} by="class" heading="By class of jobs" />
    ${presets.length > 1 && html`<${Losers} results=${results} first=${first} />`}
    <${Use} results=${results} />`;
}

/** Completion by job under both. @param {Record<string, any>} results @param {string} first @param {string} other */
function pairs(results, first, other) {
  const before = new Map(results[first].per_job.map((/** @type {any} */ job) => [job.job, took(job)]));
  return results[other].per_job.flatMap((/** @type {any} */ job) => {
    const [was, is] = [before.get(job.job) ?? null, took(job)];
    return was === null || is === null ? [] : [{ job: job.job, queue: job.queue, was, is }];
  });
}

/** @param {{results: Record<string, any>, first: string}} props */
function Gains({ results, first }) {
  return html`<h3>Who gains, who loses</h3><${Table} label="Jobs faster and slower by preset"><thead><tr><th>Preset</th><th class="num">Faster</th><th class="num">Slower</th><th class="num">Speed-up, median</th></tr></thead><tbody>
    ${Object.keys(results).filter((preset) => preset !== first).map((preset) => {
      const both = pairs(results, first, preset);
      const ratios = both.map((/** @type {any} */ each) => (each.was || 1) / (each.is || 1));
      return html`<tr key=${preset}><th scope="row">${preset}</th><td class="num">${number(ratios.filter((/** @type {number} */ each) => each > NOTICED).length)}</td><td class="num">${number(ratios.filter((/** @type {number} */ each) => each < 1 / NOTICED).length)}</td><td class="num">${number(nth(ratios, 0.5), 2)}</td></tr>`;
    })}</tbody><//>`;
}

/** @param {{results: Record<string, any>, by: "queue" | "class", heading: string}} props */
function By({ results, by, heading }) {
  const presets = Object.keys(results);
  const groups = [...new Set(presets.flatMap((preset) => results[preset].per_job.map((/** @type {any} */ job) => job[by] ?? "")))].sort();
  if (groups.length < 2 && by === "class") return null;
  const of = (/** @type {string} */ preset, /** @type {string} */ group) => results[preset].per_job.filter((/** @type {any} */ job) => (job[by] ?? "") === group).map(took).filter((/** @type {any} */ ms) => ms !== null);
  const [first = ""] = presets;
  return html`<h3>${heading}</h3><${Table} label=${`Completion ${heading.toLowerCase()}`}><thead><tr><th>${by === "queue" ? "Queue" : "Class"}</th><th class="num">Jobs</th>${presets.map((preset) => html`<th key=${preset} class="num">${preset}: mean, p95</th>`)}</tr></thead><tbody>
    ${groups.map((group) => html`<tr key=${group}><th scope="row" class="name">${group || html`<span class="none">none</span>`}</th><td class="num">${number(of(first, group).length)}</td>${presets.map((preset) => {
      const [times, base] = [of(preset, group), of(first, group)];
      return html`<td key=${preset} class="num">${duration(mean(times))}, ${duration(nth(times, 0.95))}${preset === first ? "" : html` <span class="none">${changed(mean(base), mean(times))}</span>`}</td>`;
    })}</tr>`)}</tbody><//>`;
}

/** @param {{results: Record<string, any>, first: string}} props */
function Losers({ results, first }) {
  const presets = Object.keys(results).filter((preset) => preset !== first);
  const [chosen, setChosen] = useState(presets.at(-1) ?? "");
  const losers = pairs(results, first, chosen).filter((/** @type {any} */ each) => each.is > each.was).sort((/** @type {any} */ a, /** @type {any} */ b) => b.is - b.was - (a.is - a.was));
  return html`<div class="row"><h3>Jobs that take longer</h3><label class="row hint">under <select value=${chosen} onChange=${(/** @type {any} */ event) => setChosen(event.target.value)}>${presets.map((preset) => html`<option value=${preset}>${preset}</option>`)}</select></label></div>
    ${!losers.length ? html`<${Empty}>None takes longer than under ${first}.<//>` : html`<${Table} label="Jobs that take longer"><thead><tr><th>Job</th><th>Queue</th><th class="num">${first}</th><th class="num">${chosen}</th><th class="num">Longer by</th></tr></thead><tbody>
      ${losers.slice(0, LOSERS_SHOWN).map((/** @type {any} */ row) => html`<tr key=${row.job}><th scope="row" class="name">${row.job}</th><td class="name">${row.queue}</td><td class="num">${duration(row.was)}</td><td class="num">${duration(row.is)}</td><td class="num"><strong>${duration(row.is - row.was)}</strong></td></tr>`)}</tbody><//>
      ${losers.length > LOSERS_SHOWN && html`<p class="note">The ${LOSERS_SHOWN} that lose most, of ${counted(losers.length, "job")}.</p>`}`}`;
}

/** The value of a run at each of some times. @param {any} over @param {string} kind @param {number[]} times */
function usedAt(over, kind, times) {
  let index = 0;
  return times.map((ms) => {
    while (index + 1 < over.times_ms.length && over.times_ms[index + 1] <= ms) index += 1;
    return over.times_ms.length && over.times_ms[0] <= ms ? over.used[kind]?.[index] ?? null : null;
  });
}

/** What of the cell was in use over time. @param {{results: Record<string, any>}} props */
function Use({ results }) {
  const runs = Object.entries(results).filter(([, result]) => result.utilisation_over_time?.times_ms.length);
  const kinds = [...new Set(runs.flatMap(([, result]) => Object.keys(result.utilisation_over_time.used)))];
  if (!kinds.length) return null;
  const end = Math.max(1, ...runs.map(([, result]) => result.makespan_ms));
  const times = Array.from({ length: 201 }, (_, index) => end * index / 200);
  return html`<h3>In use over time</h3><div class="grid">${kinds.map((kind) => html`<figure key=${kind}><figcaption>${label(kind)}</figcaption><${Lines} times=${times} unit=${percent} at=${duration}
    lines=${runs.map(([name, result], index) => ({ name, look: LOOKS[index % LOOKS.length] ?? "ink", values: usedAt(result.utilisation_over_time, kind, times) }))} /></figure>`)}</div>`;
}
