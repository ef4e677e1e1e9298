// The cell since the page was opened: what summaries said, one a second at most.
import { html, useMemo } from "./lib.js";
import { Lines } from "./lines.js";
import { past } from "./moment.js";
import { Empty } from "./parts.js";
import { amount, label, measured } from "./text.js";

const KEPT_MAX = 3_600;

/** @typedef {{seq: number, time: number, capacity: Record<string, number>, held: Record<string, number>, promised: Record<string, number>, waiting: number}} Seen */
/** @type {Seen[]} */
const seen = [];

/** @param {Record<string, string>} texts */
function numbers(texts) {
  return Object.fromEntries(Object.entries(texts).map(([resource, text]) => [resource, amount(text)]));
}

/** Keeps what a summary of now says. @param {any} cell */
function see(cell) {
  const last = seen.at(-1);
  if (last && cell.seq <= last.seq) return;
  const waiting = cell.waiting.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + row.tasks, 0);
  seen.push({ seq: cell.seq, time: cell.time, capacity: numbers(cell.capacity), held: numbers(cell.used), promised: numbers(cell.queues.promised), waiting });
  if (seen.length > KEPT_MAX) seen.splice(0, seen.length - KEPT_MAX);
}

/** @param {{cell: any}} props */
export function History({ cell }) {
  if (!past.value) see(cell);
  const rows = useMemo(() => [...seen], [seen.at(-1)?.seq]);
  if (past.value) return null;
  const times = rows.map((row) => row.time);
  const of = (/** @type {"capacity" | "held" | "promised"} */ field, /** @type {string} */ resource) => rows.map((row) => row[field][resource] ?? 0);
  return html`<section class="card wide" aria-label="Over time"><h2>Since this page was opened</h2>
    ${rows.length < 2 ? html`<${Empty}>Nothing has changed yet. For what was before, move the slider above to any moment of the log.<//>` : html`<div class="grid">
      ${Object.keys(cell.capacity).map((resource) => html`<figure key=${resource}><figcaption>${label(resource)}</figcaption>
        <${Lines} times=${times} unit=${(/** @type {number} */ value) => measured(resource, value)} lines=${[
          { name: "held", look: "held", values: of("held", resource) }, { name: "promised", look: "dashed", values: of("promised", resource) }, { name: "capacity", look: "ink", values: of("capacity", resource) }]} /></figure>`)}
      <figure key="waiting"><figcaption>Waiting tasks</figcaption><${Lines} times=${times} lines=${[{ name: "waiting", look: "held", values: rows.map((row) => row.waiting) }]} /></figure>
    </div>`}
  </section>`;
}
