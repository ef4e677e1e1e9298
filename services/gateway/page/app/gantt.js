// Attempts as bars over time, of a job by node, of a node in as many lines as ran at a time, on a canvas: known charts break above some thousand bars.
import { useCanvas } from "./canvas.js";
import { useDocument } from "./documents.js";
import { html, useEffect, useState } from "./lib.js";
import { colour } from "./lines.js";
import { nowMs } from "./moment.js";
import { Empty, Shown } from "./parts.js";
import { clock, counted, duration } from "./text.js";

const [ROW, BAR, AXIS, NAMES_MAX] = [15, 13, 20, 150];
/** With more lanes than this the chart scrolls by itself, and has its times on top as well. */
const LANES_OPEN_MAX = 30;
/** A bar so wide has its name in it. */
const NAMED_MIN = 46;
const LANES_MAX = 400;
/** So many attempts the gateway tells at a time. */
const ROWS_MAX = 2_000;
const EVERY_MS = 2_000;
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000];

/**
 * Attempts up to the moment that is shown.
 * @param {{where: string, by: "node" | "job", kind: string, spanMs?: number}} props `kind`: whose changes have it read again;
 * `spanMs`: only what touches so long before the moment; 0: from the first attempt on.
 */
export function Gantt({ where, by, kind, spanMs = 0 }) {
  const found = useDocument(where, [kind], { everyMs: EVERY_MS });
  return html`<${Shown} read=${found} what="attempts">${(/** @type {any} */ data) => {
    const until = data.at ? data.time_ms : nowMs.value;
    const from = spanMs ? Math.max(0, until - spanMs) : null;
    const rows = touching(data.attempts, from, until);
    const cut = data.truncated && html`<${Cut} data=${data} from=${from} again=${found.again} />`;
    if (!rows.length) return html`<${Empty}>${spanMs ? "No attempt ran here in this time." : "No attempt has started yet."}<//>${cut}`;
    return html`<${Chart} rows=${rows} by=${by} from=${from ?? Math.min(...rows.map((row) => row.start_ms))} until=${until} />${cut}
      <p class="legend"><span><i class="mid"></i>runs</span><span><i class="held"></i>succeeded</span><span><i class="bad"></i>failed or lost</span><span><i class="soft"></i>ended otherwise</span></p>`;
  }}<//>`;
}

/**
 * The attempts that ran for some time between two moments, each with a start: of one that began before the log was looked at
 * that is the first moment, of one that ended before it began the grant. What is still to begin is none of them.
 * @param {any[]} rows @param {number | null} from null: from the beginning on @param {number} until
 */
export function touching(rows, from, until) {
  return rows.flatMap((row) => {
    const start = row.start_ms ?? (row.end_ms === null ? null : row.granted_ms ?? from ?? row.end_ms);
    if (start === null || start > until || from !== null && row.end_ms !== null && row.end_ms < from) return [];
    return [{ ...row, start_ms: start, isOld: row.start_ms === null && row.granted_ms === null }];
  });
}

/**
 * That not all attempts are there; where the log is still being read for them, they are asked for again.
 * @param {{data: any, from?: number | null, again: () => void}} props
 */
export function Cut({ data, from = null, again }) {
  const isMany = data.attempts.length >= ROWS_MAX;
  const isFar = from !== null && data.since_ms > from;
  useEffect(() => {
    if (!isMany && !isFar) again();
  }, [data]);
  return html`<p class="note">${isMany ? `Only the first ${counted(ROWS_MAX, "attempt")} are in it.`
    : isFar ? `Only what ran after ${clock(data.since_ms)} is in it: the log has too many records to look through more of it.`
    : "The log is still being looked through: not all attempts are in it yet."}</p>`;
}

/**
 * Bars in lanes: those on one node one below the other where they overlap.
 * @param {any[]} rows @param {"node" | "job"} by @param {number} until
 */
export function lanes(rows, by, until) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const row of rows) {
    const name = by === "node" ? String(row.node) : "";
    groups.set(name, [...(groups.get(name) ?? []), row]);
  }
  /** @type {{name: string, first: number, count: number}[]} */
  const names = [];
  /** @type {{row: any, lane: number, end: number}[]} */
  const bars = [];
  let lane = 0;
  for (const [name, each] of [...groups].sort(([a], [b]) => a < b ? -1 : 1)) {
    /** @type {number[]} */
    const ends = [];
    for (const row of [...each].sort((a, b) => a.start_ms - b.start_ms)) {
      const end = Math.min(row.end_ms ?? until, until);
      let own = ends.findIndex((busy) => busy <= row.start_ms);
      if (own < 0) own = ends.length;
      ends[own] = Math.max(end, row.start_ms + 1);
      bars.push({ row, lane: lane + own, end });
    }
    names.push({ name, first: lane, count: ends.length });
    lane += ends.length;
  }
  return { names, bars, count: lane };
}

/** @param {{rows: any[], by: "node" | "job", from: number, until: number}} props `rows`: as `touching` has them. */
function Chart({ rows, by, from, until }) {
  const [at, setAt] = useState(/** @type {{x: number, y: number, text: string} | null} */ (null));
  const { names, bars, count } = lanes(rows, by, until);
  const to = by === "job" ? Math.max(from + 1, until) : Math.max(from + 1, ...bars.map((bar) => bar.end));
  const shownLanes = Math.min(count, LANES_MAX);
  const isTall = shownLanes > LANES_OPEN_MAX;
  const top = isTall ? AXIS : 0;
  const left = (/** @type {number} */ wide) => by === "node" ? Math.min(NAMES_MAX, wide * 0.3) : 0;
  const x = (/** @type {number} */ ms, /** @type {number} */ wide) => left(wide) + (Math.max(from, ms) - from) / (to - from) * (wide - left(wide) - 2);

  const { ref, width } = useCanvas((context, wide, high) => {
    const [calm, mid, bad, soft, ink, inkSoft, line, surface] = ["calm", "calm-mid", "accent", "calm-soft", "ink", "ink-soft", "line", "surface"].map(colour);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const step = STEPS_MS.find((each) => (to - from) / each <= Math.max(2, (wide - left(wide)) / 90)) ?? 86_400_000;
    context.fillStyle = /** @type {string} */ (inkSoft);
    context.strokeStyle = /** @type {string} */ (line);
    for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) {
      const at = Math.round(x(ms, wide)) + 0.5;
      context.beginPath();
      context.moveTo(at, 0);
      context.lineTo(at, high - AXIS);
      context.stroke();
      const text = step < 1_000 ? `${clock(ms)}.${String(ms % 1_000).padStart(3, "0")}` : clock(ms);
      if (at + 60 < wide) context.fillText(text, at + 2, high - AXIS / 2);
      if (at + 60 < wide && isTall) context.fillText(text, at + 2, AXIS / 2);
    }
    for (const { name, first, count: tall } of names) {
      if (first >= shownLanes) continue;
      context.fillStyle = /** @type {string} */ (ink);
      context.fillText(cut(context, name, left(wide) - 8), 0, top + first * ROW + ROW / 2);
      context.beginPath();
      context.moveTo(0, top + (first + tall) * ROW + 0.5);
      context.lineTo(wide, top + (first + tall) * ROW + 0.5);
      context.stroke();
    }
    for (const { row, lane, end } of bars) {
      if (lane >= shownLanes) continue;
      const isOver = row.end_ms !== null && row.end_ms <= until;
      const isBad = ["failed", "lost", "unreachable", "timeout"].some((word) => String(row.outcome).includes(word));
      context.fillStyle = /** @type {string} */ (!isOver ? mid : row.outcome === "succeeded" ? calm : isBad ? bad : soft);
      const begin = x(row.start_ms, wide);
      const long = Math.max(1.5, x(end, wide) - begin - 0.5);
      context.fillRect(begin, top + lane * ROW + (ROW - BAR) / 2, long, BAR);
      if (by === "job" && long > NAMED_MIN) {
        context.fillStyle = /** @type {string} */ (isOver && row.outcome === "succeeded" ? surface : ink);
        context.fillText(cut(context, `${row.job}/${row.stage}/${row.index}`, long - 6), begin + 3, top + lane * ROW + ROW / 2 + 0.5);
      }
    }
  }, () => top + shownLanes * ROW + AXIS, [rows, from, until]);

  const find = (/** @type {MouseEvent} */ event) => {
    const lane = Math.floor((event.offsetY - top) / ROW);
    const bar = bars.find((each) => each.lane === lane && x(each.row.start_ms, width) - 2 <= event.offsetX && event.offsetX <= x(each.end, width) + 2);
    setAt(bar ? { x: Math.min(event.offsetX, width - 260), y: top + (lane + 1) * ROW + 4, text: said(bar.row, until) } : null);
  };
  return html`<div class=${`canvas${isTall ? " tall" : ""}`} role=${isTall ? "group" : null} aria-label=${isTall ? "Attempts, by line" : null} tabindex=${isTall ? 0 : null}><canvas ref=${ref} role="img" aria-label=${`${counted(rows.length, "attempt")} from ${clock(from)} to ${clock(to)}, by ${by}`} onMouseMove=${find} onMouseLeave=${() => setAt(null)}></canvas>
    ${at && html`<p class="tip" style=${{ left: `${Math.max(0, at.x)}px`, top: `${at.y}px` }}>${at.text}</p>`}</div>
    ${count > LANES_MAX && html`<p class="note">The first ${LANES_MAX} lines are drawn.</p>`}`;
}

/** @param {any} row @param {number} until */
function said(row, until) {
  const end = row.end_ms ?? until;
  return `${row.job ? `${row.job}/` : ""}${row.stage}/${row.index}, attempt ${row.attempt}, on ${row.node ?? "this node"}: ${row.outcome ?? "runs"}, ${row.isOld ? `until ${clock(end)}, begun before ${clock(row.start_ms)}` : `${duration(end - row.start_ms)} from ${clock(row.start_ms)}`}`;
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} width */
function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = text;
  while (kept.length > 1 && context.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}
