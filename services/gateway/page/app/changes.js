// What has changed in the cell: one stream for the whole page, or, where there is none, a look each second.
import { Problem, read } from "./api.js";
import { signal } from "./lib.js";

/** Between two events of the stream, so that what a view reads then is shown within a second. */
const INTERVAL_MS = 500;
/** Between two looks where there is no stream. */
const LOOK_MS = 1_000;
const SILENCE_MS = 10_000;
/** After so many looks without a stream another one is tried. */
const LOOKS = 30;

/** @typedef {{cell: string, seq: number, round: number, time: number, recorded: boolean, results?: boolean}} Head `recorded`: of a log without its cell; `results`: there are only results. */
/** @typedef {Record<string, boolean | {count: number, names: string[], reasons?: boolean}>} Changed */

/** The last record that the gateway has read; null: not known yet. @type {import("../vendor/preact-signals.js").Signal<Head | null>} */
export const head = signal(/** @type {Head | null} */ (null));

/** Why the gateway cannot be asked; null: it answers. */
export const trouble = signal(/** @type {Problem | null} */ (null));

/** For how long no record had come when the gateway was asked last. */
export const silentMs = signal(0);

/** @typedef {(changed: Changed | null) => void} Listener */
/** @type {Set<Listener>} */
const listeners = new Set();

/**
 * Calls back when something changes; null stands for anything. Returns how to stop.
 * @param {Listener} listener
 */
export function onChange(listener) {
  listeners.add(listener);
  return () => { listeners.delete(listener); };
}

/** @param {Changed | null} changed */
function tell(changed) {
  for (const listener of [...listeners]) listener(changed);
}

/**
 * Whether a change is one of these kinds. A kind may have a name behind it, `jobs/etl`: then changes of others do not
 * count, as far as they are named; why a job waits may change with any other.
 * @param {Changed | null} changed @param {readonly string[]} kinds
 */
export function touches(changed, kinds) {
  return changed === null || kinds.some((kind) => {
    const [group = "", ...rest] = kind.split("/");
    const found = changed[group];
    if (found === undefined || found === false || found === true || !rest.length) return Boolean(found);
    return found.reasons || found.names.length < found.count || found.names.includes(rest.join("/"));
  });
}

/** @param {Head | null} next */
function arrived(next) {
  trouble.value = null;
  if (next !== null) head.value = next;
}

/** Asks from time to time whether records come, as long as a view shows it. */
export function watchSilence() {
  const look = () => {
    if (!document.hidden) read("readyz").then(({ silent_ms: ms }) => { silentMs.value = ms; }, () => {});
  };
  look();
  const timer = setInterval(look, SILENCE_MS);
  return () => clearInterval(timer);
}

/** Begins to listen; returns how to stop. */
export function listen() {
  let wanted = true;
  /** @type {EventSource | null} */
  let stream = null;
  let [timer, looks] = [0, 0];

  const look = async () => {
    try {
      const before = head.peek();
      const { cell, seq, round, time, recorded = false } = await read("readyz");
      arrived({ cell, seq, round, time, recorded });
      if (!before || before.seq !== seq) tell(null);
    } catch (error) {
      if (error instanceof Problem) trouble.value = error;
    }
    if (!wanted || stream !== null) return;
    looks += 1;
    timer = setTimeout(looks % LOOKS ? look : open, LOOK_MS);
  };

  /** Reads which cell it is, and where its log stands. */
  const stand = async () => {
    try {
      const { cell, seq, round, time, recorded = false, results = false } = await read("readyz");
      arrived({ cell, seq, round, time, recorded, results });
    } catch (error) {
      if (error instanceof Problem) trouble.value = error;
    }
  };

  const open = async () => {
    await stand();
    if (!wanted || stream !== null || head.peek()?.results) return; // Results do not change.
    if (head.peek() === null) {
      timer = setTimeout(open, LOOK_MS); // The gateway still reads its log, and only that says whether it is a recorded one.
      return;
    }
    stream = new EventSource(`v1/changes?min_interval_ms=${INTERVAL_MS}`);
    stream.addEventListener("changes", (event) => {
      const said = JSON.parse(event.data);
      const before = head.peek();
      arrived({ cell: before?.cell ?? "", round: said.round, seq: said.seq, time: said.time_ms, recorded: before?.recorded ?? false });
      tell(said.all ? null : said.changed);
    });
    stream.addEventListener("error", () => {
      if (stream?.readyState === EventSource.CLOSED) stream = null; // Refused: otherwise it connects again by itself.
      look();
    });
  };

  const close = () => {
    clearTimeout(timer);
    stream?.close();
    stream = null;
  };

  const turn = () => {
    wanted = !document.hidden; // A page that nobody sees asks for nothing.
    close();
    if (wanted) open();
  };
  document.addEventListener("visibilitychange", turn);
  open();
  return () => {
    document.removeEventListener("visibilitychange", turn);
    wanted = false;
    close();
  };
}
