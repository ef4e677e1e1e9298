// What queues left of their guarantees over a span, and which others held more than theirs meanwhile.
import { address } from "./api.js";
import { useDocument } from "./documents.js";
import { Flows } from "./flows.js";
import { html } from "./lib.js";
import { Empty, Shown, Table } from "./parts.js";
import { queueHref } from "./route.js";
import { duration, number, percent } from "./text.js";

const POINTS = 720;
const EVERY_MS = 5_000;
const SHARE = 1e9;

/** Means over the span, as parts of the cell. @typedef {{name: string, held: number, guaranteed: number, lent: number, borrowed: number}} Lender */

/**
 * What each queue held, was guaranteed, lent and borrowed on average. What a queue leaves of its guarantee is lent as far
 * as others hold more than theirs at the time, of all that is left in equal parts.
 * @param {number[]} times_ms @param {Record<string, {held: (number | null)[], guaranteed: (number | null)[]}>} queues
 * @returns {{rows: Lender[], spanMs: number}}
 */
export function lending(times_ms, queues) {
  const names = Object.keys(queues);
  /** @type {Map<string, Lender>} */
  const sums = new Map(names.map((name) => [name, { name, held: 0, guaranteed: 0, lent: 0, borrowed: 0 }]));
  let whole = 0;
  for (let at = 0; at + 1 < times_ms.length; at += 1) {
    const took = (times_ms[at + 1] ?? 0) - (times_ms[at] ?? 0);
    whole += took;
    const here = names.map((name) => ({ name, held: queues[name]?.held[at] ?? 0, own: queues[name]?.guaranteed[at] ?? 0 }));
    const left = here.reduce((sum, { held, own }) => sum + Math.max(0, own - held), 0);
    const more = here.reduce((sum, { held, own }) => sum + Math.max(0, held - own), 0);
    for (const { name, held, own } of here) {
      const row = /** @type {Lender} */ (sums.get(name));
      row.held += held * took;
      row.guaranteed += own * took;
      row.lent += left > 0 ? Math.max(0, own - held) * Math.min(1, more / left) * took : 0;
      row.borrowed += Math.max(0, held - own) * took;
    }
  }
  const mean = (/** @type {number} */ sum) => whole > 0 ? sum / whole / SHARE : 0;
  const rows = [...sums.values()].map((row) => ({ name: row.name, held: mean(row.held), guaranteed: mean(row.guaranteed), lent: mean(row.lent), borrowed: mean(row.borrowed) }));
  return { rows: rows.sort((a, b) => (a.name < b.name ? -1 : 1)), spanMs: whole };
}

/** @param {{from: number}} props `from`: where the span begins, in ms; it ends at the moment that the page shows. */
export function Lending({ from }) {
  const found = useDocument(address("v1/history", { from_ms: from, points: POINTS }), ["rounds"], { everyMs: EVERY_MS });
  return html`<section class="card wide" aria-label="Between queues"><h2>Lent between queues</h2><${Shown} read=${found} what="what queues held">${(/** @type {any} */ data) => {
    const { rows, spanMs } = lending(data.times_ms, data.queues);
    if (!spanMs) return html`<${Empty}>Nothing is kept of this span yet: a moment is kept each minute. Choose a longer one.<//>`;
    if (rows.every((row) => !row.guaranteed)) return html`<${Empty}>No queue has a share of its own here: there are no queues in a tree, or the preset does not count them.<//>`;
    const said = (/** @type {number} */ value) => value ? percent(value) : html`<span class="none">–</span>`;
    return html`<${Flows} text=${percent} gave="lent" got="borrowed" label="Lent and borrowed between queues" givers=${rows.map((row) => ({ name: row.name, value: row.lent }))} receivers=${rows.map((row) => ({ name: row.name, value: row.borrowed }))} />
      <${Table} label="Lent and borrowed by queue"><thead><tr><th>Queue</th><th class="num">Guaranteed</th><th class="num">Held</th><th class="num">Lent</th><th class="num">Borrowed</th></tr></thead><tbody>
        ${rows.map((row) => html`<tr key=${row.name}><th scope="row" class="name"><a href=${queueHref(row.name)}>${row.name}</a></th><td class="num">${said(row.guaranteed)}</td><td class="num">${said(row.held)}</td><td class="num">${said(row.lent)}</td><td class="num">${said(row.borrowed)}</td></tr>`)}</tbody><//>
      <p class="hint">Parts of the cell, on average over ${duration(spanMs)}, of queues right below the root. Lent: left of its guarantee while others held more than theirs. Borrowed: held beyond its guarantee.${data.queues_left_out ? ` ${number(data.queues_left_out)} more queues held less at a time, and are not in it.` : ""}</p>`;
  }}<//></section>`;
}
