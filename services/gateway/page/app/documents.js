// Documents of the API in a view: read, read again when they change, and given up when the view is left.
import { ahead, read } from "./api.js";
import { head, onChange, touches } from "./changes.js";
import { useEffect, useRef, useState } from "./lib.js";
import { at } from "./route.js";

const AGAIN_MS = 700;
/** What takes long to read is read again only after as many times that: no page may keep a cell busy. */
const REST = 8;

/**
 * @template T
 * @typedef {{data: T | null, problem: Error | null, busy: boolean, again: () => void}} Read
 */

/** An address at the moment that the page shows. @param {string} where @param {string | null} moment */
function atMoment(where, moment) {
  return moment === null ? where : `${where}${where.includes("?") ? "&" : "?"}at=${encodeURIComponent(moment)}`;
}

/**
 * Asks for what the parts of a view read first while the view still reads its own document.
 * @param {string[]} wheres Addresses as the parts give them.
 */
export function useAhead(wheres) {
  useEffect(() => {
    for (const where of wheres) ahead(atMoment(where, at.peek()));
  }, []);
}

/**
 * A document at the moment that the page shows. What was read last stays until the next has come.
 * @param {string | null} where The address, without `at`; null: nothing is to be read.
 * @param {readonly string[]} kinds Changes of these kinds have it read again.
 * @param {{timed?: boolean, everyMs?: number, shared?: boolean}} [how] `timed`: false where the address takes no moment;
 * `shared`: the gateway makes one answer for all pages that ask at a time.
 * @returns {Read<any>}
 */
export function useDocument(where, kinds, { timed = true, everyMs = AGAIN_MS, shared = false } = {}) {
  const moment = at.value;
  const full = where === null || !timed ? where : atMoment(where, moment);
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
    let [running, wanted, timer, begun, took] = [false, false, 0, 0, 0];
    const load = async () => {
      [running, wanted, begun] = [true, false, performance.now()];
      try {
        const behind = shared && moment === null && head.peek() ? `${full.includes("?") ? "&" : "?"}behind=${head.peek()?.seq}` : "";
        const data = await read(`${full}${behind}`, control.signal);
        took = performance.now() - begun;
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
      }, Math.max(0, begun + Math.max(everyMs, took * REST) - performance.now()));
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
