// What needs attention, each with the way to its record.
import { silentMs, watchSilence } from "./changes.js";
import { html, useEffect } from "./lib.js";
import { nowMs, past, recorded } from "./moment.js";
import { Ago, Time } from "./parts.js";
import { isShort } from "./queue_bar.js";
import { href, queueHref } from "./route.js";
import { ofInstances } from "./services.js";
import { counted, duration, iso, number, percent } from "./text.js";
import { walked } from "./tree.js";
import { recordHref, Words } from "./words.js";

/** Inputs that were refused are told for so long. */
const REFUSED_MS = 3_600_000;
/** A round that is open for longer waits for a service. */
const OPEN_MS = 5_000;
/** The sequencer writes a record each second, whatever happens. */
const SILENT_MS = 15_000;
const SHOWN = 5;

/** @param {{cell: any, reservations: any[], services: any, again: () => void}} props `again`: reads the cell again. */
export function Alarms({ cell, reservations, services, again }) {
  useEffect(watchSilence, []);
  const openMs = cell.open_since_ms === null ? 0 : nowMs.value - cell.open_since_ms;
  useEffect(() => {
    if (cell.open_since_ms === null || past.value || recorded.value) return undefined;
    const timer = setTimeout(again, OPEN_MS);
    return () => clearTimeout(timer);
  }, [cell.open_since_ms, cell.seq]);
  const alarms = [...ofQueues(cell), ...ofNodes(cell), ...ofPromises(cell, reservations), ...ofInputs(cell), ...ofServices(cell, openMs), ...ofInstances(services)];
  if (!alarms.length) return null;
  return html`<section class="card" aria-label="Needs attention"><h2 class="attention">Needs attention</h2><ul class="alarms">${alarms}</ul></section>`;
}

/** Queues below their guarantees. @param {any} cell */
function ofQueues(cell) {
  const all = walked(cell.queues);
  const short = all.filter(isShort).map((queue) => html`<li key=${`s${queue.queue}`}>Queue <a href=${queueHref(queue.queue)}>${queue.queue}</a> has held less than it is due for <${Ago} ms=${queue.short_since_ms} />: <strong>${percent(queue.allocated)}</strong>, where <strong>${percent(queue.guaranteed)}</strong> are guaranteed. What it waits for still runs. <a href=${queueHref(queue.queue)}>Why</a>. <a href=${href(["queues", ...queue.queue.split("/")], { at: iso(queue.short_since_ms) })}>As it was when that began</a>.</li>`);
  return [...short, ...ofBreaches(all)];
}

/** Guarantees that are broken. @param {any[]} queues */
function ofBreaches(queues) {
  return queues.filter((queue) => queue.breach).map(({ queue, breach }) => html`<li key=${`q${queue}`}>Queue <a href=${queueHref(queue || "root")}>${queue || "root"}</a> has been below its guarantee for <${Ago} ms=${breach.since_ms} />: it holds <strong>${percent(breach.allocated)}</strong> of <strong>${percent(breach.guaranteed)}</strong>.${" "}
    ${breach.winner && html`<a href=${queueHref(breach.winner)}>${breach.winner}</a> holds most beyond its own.`} <a href=${queueHref(queue || "root")}>Why</a>. <a href=${href(["queues", ...queue.split("/")], { at: iso(breach.since_ms) })}>As it was when that began</a>.</li>`);
}

/** Nodes that are lost. @param {any} cell */
function ofNodes(cell) {
  const lost = cell.nodes.lost ?? 0;
  if (!lost) return [];
  return [html`<li key="lost"><a href=${href(["nodes"], { state: "lost" })}>${number(lost)} ${lost === 1 ? "node is" : "nodes are"} lost</a>: no word came from ${lost === 1 ? "its agent" : "their agents"}. <a href=${href(["log"], { type: "NodeLost" })}>The records</a>.</li>`];
}

/** Promises that are broken, or late. @param {any} cell @param {any[]} reservations */
function ofPromises(cell, reservations) {
  return [
    ...reservations.filter((row) => row.state === "broken").map((row) => html`<li key=${`r${row.reservation}`}>The promise to reservation <a href=${href(["reservations", row.reservation])}>${row.reservation}</a> is broken. <${Words} text=${row.moved_why} /> <a href=${href(["log"], { reservation: row.reservation })}>Its records</a>.</li>`),
    ...cell.late.map((/** @type {any} */ row) => html`<li key=${`l${row.job}`}>Job <a href=${href(["jobs", row.job])}>${row.job}</a> is late: the window of its reservation <a href=${href(["reservations", row.reservation])}>${row.reservation}</a> ended <${Ago} ms=${row.since_ms} /> ago. <a href=${href(["log"], { reservation: row.reservation })}>Its records</a>.</li>`),
  ];
}

/** Inputs that were refused for good a short time ago. @param {any} cell */
function ofInputs(cell) {
  const rows = cell.refused.latest.filter((/** @type {any} */ row) => row.time_ms > nowMs.value - REFUSED_MS);
  if (!rows.length) return [];
  const isMore = rows.length === cell.refused.latest.length && cell.refused.count > rows.length;
  return [html`<li key="refused"><a href=${href(["log"], { type: "InputRefused" })}>${isMore ? `More than ${number(rows.length)}` : number(rows.length)} ${rows.length === 1 && !isMore ? "input was" : "inputs were"} refused for good in the last hour</a>; what was sent lies in <code>deadletter</code>.
    <ul>${rows.slice(0, SHOWN).map((/** @type {any} */ row) => html`<li key=${row.seq}><${Time} ms=${row.time_ms} /> <code>${row.topic}</code> by ${row.author}: ${row.field && html`<code>${row.field}</code> `}${row.reason}. <a href=${recordHref(row.seq)}>Record ${number(row.seq)}</a>.</li>`)}</ul>${rows.length > SHOWN && html`<p class="hint">The last ${SHOWN} of ${counted(rows.length, "input")}.</p>`}</li>`];
}

/** Services that lag. @param {any} cell @param {number} openMs */
function ofServices(cell, openMs) {
  return [
    openMs > OPEN_MS && html`<li key="open"><a href=${href(["log", "rounds", String(cell.round)])}>Round ${number(cell.round)}</a> has been open for ${duration(openMs)}: a service has not answered it. Look at the metrics of <code>fairness</code>, <code>altruism</code> and <code>leftover</code>, and at what they log.</li>`,
    !past.value && !recorded.value && silentMs.value > SILENT_MS && html`<li key="silent">Nothing was heard of the sequencer for ${duration(silentMs.value)}, where it gives a sign of life every few seconds: <code>admission</code> is gone and no standby has taken over, or the gateway is cut off from the bus. <a href=${href(["log"], { type: "SequencerAlive", order: "desc" })}>Its last records</a>.</li>`,
  ].filter(Boolean);
}
