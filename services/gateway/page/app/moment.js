// The moment that the page shows: now, or one of the past.
import { address, read } from "./api.js";
import { head } from "./changes.js";
import { computed, effect, signal } from "./lib.js";
import { at, go, here } from "./route.js";
import { isIn } from "./session.js";

/** @typedef {{seq: number, round: number, time: number}} Moment */

/** Whether the past is shown. */
export const past = computed(() => at.value !== null);

/** Whether there is no cell, but only its log. */
export const recorded = computed(() => head.value?.recorded === true);

/** Why nothing can be changed; empty: it can. */
export const fixed = computed(() => (recorded.value ? "this is a recorded log, not a cell" : past.value ? "this is the past" : ""));

const found = signal(/** @type {(Moment & {of: string}) | null} */ (null));

/** The problem of a moment that cannot be shown. */
export const momentProblem = signal(/** @type {Error | null} */ (null));

/** When the first record of the log came; null until it is known. @type {import("../vendor/preact-signals.js").Signal<number | null>} */
export const logBegins = signal(/** @type {number | null} */ (null));

/** The moment that is shown; null until it is known. */
export const shown = computed(() => (at.value === null ? head.value : found.value));

/** Whether the moment of the address has been read for a while, and is not there yet. */
const isLate = signal(false);
/** Steps follow each other faster than this: until then what is shown stays. */
const LATE_MS = 250;

/** Whether it is not known yet which moment the address means, or what the page shows is still of another one. */
export const reading = computed(() => at.value !== null && found.value?.of !== at.value && momentProblem.value === null && (found.value === null || isLate.value));

/** The time that the address names, where that is no record. */
export const asked = computed(() => {
  const ms = at.value === null || /^[0-9]+$/.test(at.value) ? NaN : Date.parse(at.value);
  return Number.isNaN(ms) ? null : ms;
});

/** How long ago the last record came, in steps. */
const sinceMs = signal(0);
const TICK_MS = 5_000;

/** The time by which to reckon how long ago something was: now, that of the last record and what has gone by since. */
export const nowMs = computed(() => {
  if (!shown.value) return asked.value ?? head.value?.time ?? Date.now();
  return shown.value.time + (past.value || recorded.value ? 0 : sinceMs.value);
});

/** Lets time go on also while nothing happens in the cell. */
export function followTime() {
  let came = 0;
  effect(() => {
    came = head.value === null ? 0 : performance.now();
    sinceMs.value = 0;
  });
  setInterval(() => { if (!document.hidden && head.peek()) sinceMs.value = performance.now() - came; }, TICK_MS);
}

/** Follows the moment of the address, and finds which record a time means. */
export function followMoment() {
  effect(() => {
    const wanted = at.value;
    momentProblem.value = null;
    isLate.value = false;
    if (wanted === null) found.value = null;
    if (!isIn.value || wanted === null || found.peek()?.of === wanted) return undefined;
    const control = new AbortController();
    const timer = setTimeout(() => { isLate.value = true; }, LATE_MS);
    read(`v1/summary?at=${encodeURIComponent(wanted)}`, control.signal).then(
      ({ seq, round, time }) => { found.value = { of: wanted, seq, round, time }; },
      (error) => { if (error.name !== "AbortError") momentProblem.value = error; },
    );
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  });
}

/** Shows a moment: a seq, a time, or null for now. @param {number | string | null} moment @param {boolean} [replace] */
export function showMoment(moment, replace = false) {
  go(here({ at: moment === null ? null : String(moment) }), { replace });
}

/** The record that the address names, also where its moment has not been read yet: steps may come faster than answers. */
function seqOfAddress() {
  const wanted = at.value;
  return wanted !== null && /^[0-9]+$/.test(wanted) ? Number(wanted) : shown.value?.seq;
}

/** @param {number} records */
export function stepRecords(records) {
  const last = head.value?.seq;
  const seq = seqOfAddress();
  if (last === undefined || seq === undefined) return;
  const next = Math.max(1, seq + records);
  if (next >= last && records > 0) showMoment(null);
  else showMoment(Math.min(next, last), past.value);
}

/** The seq of the first record that is asked for; null: there is none. @param {Record<string, string | number>} query @returns {Promise<number | null>} */
export async function firstRecord(query) {
  for (let rest = query; ;) {
    const { records, next } = await read(address("v1/records", { ...rest, limit: 1 }));
    if (records.length || next === null) return records[0]?.seq ?? null;
    rest = { ...rest, [query.order === "desc" ? "to" : "from"]: next }; // A page may be empty and have another.
  }
}

/** To the closing of the round before (-1) or after (1) the moment that is shown. @param {number} rounds */
export async function stepRounds(rounds) {
  const last = head.value;
  const seq = seqOfAddress();
  if (!last || seq === undefined) return;
  const way = rounds < 0 ? { to: seq - 1, order: "desc" } : { from: seq + 1 };
  if (rounds > 0 && seq >= last.seq) return;
  try {
    const found = await firstRecord({ type: "RoundClosed", ...way });
    if (found !== null || rounds > 0) showMoment(found, past.value);
  } catch (error) {
    momentProblem.value = /** @type {Error} */ (error);
  }
}
