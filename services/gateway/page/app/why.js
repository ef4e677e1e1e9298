// Why something is as it is, in words and numbers.
import { useDocument } from "./documents.js";
import { html } from "./lib.js";
import { nowMs } from "./moment.js";
import { Numbers, nodesOf } from "./numbers.js";
import { Bar, Empty, Fact, Shown, Table, Time } from "./parts.js";
import { duration, percent } from "./text.js";
import { recordHref, Words } from "./words.js";

/** @param {{where: string, kinds: readonly string[], kind: string, name: string, heading?: string, wide?: boolean}} props */
export function Why({ where, kinds, kind, name, heading = "Why", wide = false }) {
  const found = useDocument(where, kinds);
  return html`<section class=${`card${wide ? " wide why-wide" : ""}`} aria-label="Why"><h2>${heading}</h2><${Shown} read=${found} what="the reasons">${(/** @type {any} */ why) => html`
    <div class="stack">${!why.reasons.length && html`<${Empty}>Nothing holds it back.<//>`}
    <ol class="reasons">${why.reasons.map((/** @type {any} */ row, /** @type {number} */ index) => html`<${Reason} key=${index} row=${row} index=${index} kind=${kind} name=${name} state=${why.state} />`)}</ol>
    ${why.start && html`<p>${why.state === "running" ? "Its further tasks start" : "It starts"} ${[["at the earliest", "earliest_ms"], ["likely", "likely_ms"], ["at the latest", "latest_ms"]]
      .filter(([, field]) => why.start[String(field)] !== null)
      .map(([text, field], index) => html`${index ? ", " : ""}${text} <${Ahead} ms=${why.start[String(field)]} />`)}. <span class="none">An estimate, no promise.</span></p>`}
    ${why.ended_by && html`<p>${why.reasons.some((/** @type {any} */ row) => row.text === why.ended_by.text) ? "" : html`<${Words} text=${why.ended_by.text} /> `}<a href=${recordHref(why.ended_by.seq)}>The record that ended it: ${why.ended_by.seq}</a></p>`}</div>
    ${why.waited && html`<${Waited} waited=${why.waited} beside=${why.waited_beside} name=${name} />`}
  `}<//></section>`;
}

/** A moment that is still to come, and how far off it is. @param {{ms: number}} props */
function Ahead({ ms }) {
  return html`at <${Time} ms=${ms} /> (in ${duration(Math.max(0, ms - nowMs.value))})`;
}

/** @param {{row: any, index: number, kind: string, name: string, state: string}} props */
function Reason({ row, index, kind, name, state }) {
  const nodes = nodesOf(row.numbers);
  const isOfOthers = kind === "job" && state === "running" && row.numbers.stage !== undefined && row.numbers.tasks !== undefined;
  return html`<li>
    <p><span class="none">${index === 0 || row.text.startsWith("behind that") ? "" : "and "}</span><${Fact} kind=${kind} name=${name} field=${`reasons.${index}`} value=${row.reason}><code class="word">${row.reason}</code><//> ${isOfOthers ? "its other tasks wait: " : ""}<${Words} text=${row.text} nodes=${nodes} /></p>
    ${row.unblocks.length > 0 && html`<ul class="unblocks" aria-label="What would remove it">${row.unblocks.map((/** @type {string} */ text) => html`<li key=${text}><${Words} text=${text} nodes=${nodes} /></li>`)}</ul>`}
    ${Object.keys(row.numbers).length > 0 && html`<details class="numbers"><summary>Numbers</summary><${Numbers} of=${row.numbers} label=${`Numbers of ${row.reason}`} /></details>`}
  </li>`;
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
