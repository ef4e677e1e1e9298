// Why something is as it is, in words and numbers.
import { useDocument } from "./documents.js";
import { html } from "./lib.js";
import { nowMs } from "./moment.js";
import { Bar, Empty, Fact, Shown, Table } from "./parts.js";
import { href } from "./route.js";
import { duration, percent } from "./text.js";

/** @param {{where: string, kinds: readonly string[], kind: string, name: string, heading?: string, wide?: boolean}} props */
export function Why({ where, kinds, kind, name, heading = "Why", wide = false }) {
  const found = useDocument(where, kinds);
  return html`<section class=${`card${wide ? " wide why-wide" : ""}`} aria-label="Why"><h2>${heading}</h2><${Shown} read=${found} what="the reasons">${(/** @type {any} */ why) => html`
    <div class="stack">${!why.reasons.length && html`<${Empty}>Nothing holds it back.<//>`}
    <ol class="reasons">${why.reasons.map((/** @type {any} */ row, /** @type {number} */ index) => html`<${Reason} key=${index} row=${row} index=${index} kind=${kind} name=${name} />`)}</ol>
    ${why.start && html`<p>Starts ${[
      `at the earliest in ${ahead(why.start.earliest_ms)}`,
      why.start.likely_ms !== null && `likely in ${ahead(why.start.likely_ms)}`,
      why.start.latest_ms !== null && `at the latest in ${ahead(why.start.latest_ms)}`].filter(Boolean).join(", ")}. <span class="none">An estimate, no promise.</span></p>`}
    ${why.ended_by && html`<p>${why.reasons.some((/** @type {any} */ row) => row.text === why.ended_by.text) ? "" : `${why.ended_by.text} `}<a href=${href(["log"], { from: why.ended_by.seq, to: why.ended_by.seq })}>The record that ended it: ${why.ended_by.seq}</a></p>`}</div>
    ${why.waited && html`<${Waited} waited=${why.waited} beside=${why.waited_beside} name=${name} />`}
  `}<//></section>`;
}

/** @param {number} ms */
function ahead(ms) {
  return duration(Math.max(0, ms - nowMs.value));
}

/** @param {{row: any, index: number, kind: string, name: string}} props */
function Reason({ row, index, kind, name }) {
  const rows = flat(row.numbers);
  return html`<li>
    <p><span class="none">${index === 0 ? "" : row.text.startsWith("behind that") ? "" : "and "}</span><${Fact} kind=${kind} name=${name} field=${`reasons.${index}`} value=${row.reason}><code class="word">${row.reason}</code><//> ${row.text}</p>
    ${row.unblocks.length > 0 && html`<ul class="unblocks" aria-label="What would remove it">${row.unblocks.map((/** @type {string} */ text) => html`<li key=${text}>${text}</li>`)}</ul>`}
    ${rows.length > 0 && html`<details class="numbers"><summary>Numbers</summary><${Table} label=${`Numbers of ${row.reason}`}><tbody>
      ${rows.map(([key, value]) => html`<tr key=${key}><th scope="row">${key}</th><td class="num">${value}</td></tr>`)}</tbody><//></details>`}
  </li>`;
}

const NUMBERS_MAX = 200;

/** The numbers of a reason as rows. @param {any} value @param {string} [name] @returns {[string, string][]} */
function flat(value, name = "") {
  if (value === null || typeof value !== "object") {
    return [[name, name.endsWith("_ms") && typeof value === "number" && value < 1e11 ? duration(value) : String(value)]];
  }
  return Object.entries(value).flatMap(([key, each]) => flat(each, name ? `${name} · ${key}` : key)).slice(0, NUMBERS_MAX);
}

/** What the time of a job went to. @param {{waited: Record<string, number>, beside: Record<string, number> | null, name: string}} props */
function Waited({ waited, beside, name }) {
  const all = Object.values(waited).reduce((sum, ms) => sum + ms, 0);
  const rows = Object.entries(waited).sort(([, a], [, b]) => b - a);
  if (!rows.length) return null;
  const looks = ["held", "mid", "soft"];
  return html`<div class="stack"><h3>Where its time went</h3>
    <${Bar} label=${rows.map(([reason, ms]) => `${reason} ${percent(ms / all)}`).join(", ")} parts=${rows.map(([, ms], index) => ({ share: ms / all, look: looks[index % 3] ?? "soft" }))} />
    <${Table} label="Time by reason"><tbody>${rows.map(([reason, ms], index) => html`<tr key=${reason}>
      <th scope="row"><span class="legend word-of"><i class=${looks[index % 3]}></i><code>${reason}</code></span></th>
      <td class="num"><${Fact} kind="job" name=${name} field=${`waited.${reason}`} value=${ms}>${duration(ms)}<//></td><td class="num">${percent(all ? ms / all : 0)}</td></tr>`)}
      <tr><th scope="row">in all</th><td class="num">${duration(all)}</td><td class="num"></td></tr></tbody><//>
    ${beside && Object.keys(beside).length > 0 && html`<p class="hint">Beside that, further tasks waited while some ran: ${Object.entries(beside).map(([reason, ms]) => `${reason} ${duration(ms)}`).join(", ")}.</p>`}</div>`;
}
