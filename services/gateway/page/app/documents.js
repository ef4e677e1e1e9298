// Documents of the API in a view: read, read again when they change, and given up when the view is left.
import { read } from "./api.js";
import { onChange, touches } from "./changes.js";
import { useEffect, useRef, useState } from "./lib.js";
import { at } from "./route.js";

const AGAIN_MS = 700;

/**
 * @template T
 * @typedef {{data: T | null, problem: Error | null, busy: boolean, again: () => void}} Read
 */

/**
 * A document at the moment that the page shows. What was read last stays until the next has come.
 * @param {string | null} where The address, without `at`; null: nothing is to be read.
 * @param {readonly string[]} kinds Changes of these kinds have it read again.
 * @param {{timed?: boolean, everyMs?: number}} [how] `timed`: false where the address takes no moment.
 * @returns {Read<any>}
 */
export function useDocument(where, kinds, { timed = true, everyMs = AGAIN_MS } = {}) {
  const moment = at.value;
  const full = where === null || !timed || moment === null ? where
    : `${where}${where.includes("?") ? "&" : "?"}at=${encodeURIComponent(moment)}`;
  const [state, setState] = useState(/** @type {{data: any, problem: Error | null, busy: boolean}} */ (
    { data: null, problem: null, busy: true }));
  const again = useRef(() => {});
  const names = JSON.stringify(kinds);

  useEffect(() => {
    if (full === null) {
      setState({ data: null, problem: null, busy: false });
      return undefined;
    }
    const control = new AbortController();
    let [running, wanted, timer, begun] = [false, false, 0, 0];
    const load = async () => {
      [running, wanted, begun] = [true, false, performance.now()];
      try {
        const data = await read(full, control.signal);
        if (control.signal.aborted) return;
        setState({ data, problem: null, busy: false });
      } catch (error) {
        if (control.signal.aborted) return;
        setState((old) => ({ data: old.data, problem: /** @type {Error} */ (error), busy: false }));
        wanted ||= "status" in /** @type {object} */ (error) && /** @type {any} */ (error).status % 500 < 4;
      }
      running = false;
      if (wanted) later();
    };
    const later = () => {
      wanted = true;
      if (running || timer) return;
      timer = setTimeout(() => {
        timer = 0;
        load();
      }, Math.max(0, begun + everyMs - performance.now()));
    };
    setState((old) => ({ ...old, busy: true }));
    load();
    again.current = later;
    const stop = timed && moment !== null ? () => {}
      : onChange((changed) => { if (touches(changed, JSON.parse(names))) later(); });
    return () => {
      stop();
      clearTimeout(timer);
      control.abort();
    };
  }, [full, names]);

  return { ...state, again: () => again.current() };
}
