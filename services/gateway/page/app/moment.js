// The moment that the page shows: now, or one of the past.
import { read } from "./api.js";
import { head } from "./changes.js";
import { computed, effect, signal } from "./lib.js";
import { at, go, here } from "./route.js";

/** @typedef {{seq: number, round: number, time: number}} Moment */

/** Whether the past is shown. */
export const past = computed(() => at.value !== null);

const found = signal(/** @type {(Moment & {of: string}) | null} */ (null));

/** The problem of a moment that cannot be shown. */
export const momentProblem = signal(/** @type {Error | null} */ (null));

/** The moment that is shown; null until it is known. */
export const shown = computed(() => (at.value === null ? head.value : found.value));

/** The time by which to reckon how long ago something was. */
export const nowMs = computed(() => shown.value?.time ?? Date.now());

/** Follows the moment of the address, and finds which record a time means. */
export function followMoment() {
  effect(() => {
    const wanted = at.value;
    momentProblem.value = null;
    if (wanted === null || found.peek()?.of === wanted) return undefined;
    const control = new AbortController();
    read(`v1/summary?at=${encodeURIComponent(wanted)}`, control.signal).then(
      ({ seq, round, time }) => { found.value = { of: wanted, seq, round, time }; },
      (error) => { if (error.name !== "AbortError") momentProblem.value = error; },
    );
    return () => control.abort();
  });
}

/** Shows a moment: a seq, a time, or null for now. @param {number | string | null} moment @param {boolean} [replace] */
export function showMoment(moment, replace = false) {
  go(here({ at: moment === null ? null : String(moment) }), { replace });
}

/** @param {number} records */
export function stepRecords(records) {
  const last = head.value?.seq;
  const seq = shown.value?.seq;
  if (last === undefined || seq === undefined) return;
  const next = Math.max(1, seq + records);
  if (next >= last && records > 0) showMoment(null);
  else showMoment(Math.min(next, last), past.value);
}

/** To the closing of a round so far from the one shown. @param {number} rounds */
export async function stepRounds(rounds) {
  const last = head.value;
  const now = shown.value;
  if (!last || !now) return;
  const wanted = now.round + rounds;
  if (wanted > last.round) return showMoment(null);
  if (wanted < 1) return showMoment(1);
  showMoment(await firstOf(wanted, last), past.value);
}

/**
 * The first record at which a round is the last one that the log has opened: rounds only grow, so halving finds it.
 * @param {number} round @param {Moment} last
 */
async function firstOf(round, last) {
  let [low, high] = [1, last.seq];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const { round: there } = await read(`v1/summary?at=${middle}`);
    if (there >= round) high = middle;
    else low = middle + 1;
  }
  return low;
}
