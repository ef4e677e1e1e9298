// Which cell of the gateway is shown, and the way to the others: each has its page below cells/NAME/.
import { Problem, path, read } from "./api.js";
import { head } from "./changes.js";
import { html, useEffect, useState } from "./lib.js";
import { isIn } from "./session.js";
import { counted, duration } from "./text.js";

/** @typedef {{silent_ms: number, behind: number, cells: {cell: string, state: string}[]}} Router */
/** @typedef {{cell: string, cells: {cell: string, ready: boolean}[], router: Router | null}} Cells */

/** So often the list is read. */
const AGAIN_MS = 10_000;
/** A router writes every second; one that is silent for so long is not there, or cannot write. */
const SILENT_MS = 10_000;
/** What the router says of a cell that it sends no jobs to. @type {Record<string, string>} */
const UNHEARD = { silent: "silent for the router", unread: "not read by the router" };

/** Where the page of a cell is, seen from the page of any. @param {string} name */
function placeOf(name) {
  const inside = /\/cells\/[^/]+\/$/.test(location.pathname);
  return `${inside ? "../" : "cells/"}${encodeURIComponent(name)}/`;
}

/** The cell's name; a list where the gateway serves several. */
export function CellName() {
  const [found, setFound] = useState(/** @type {Cells | null} */ (null));
  const [asked, setAsked] = useState(0);
  const isAsked = isIn.value && head.value?.results !== true;
  useEffect(() => {
    if (!isAsked) return undefined;
    const ending = new AbortController();
    // Cells are added and removed while the page is open.
    const again = setTimeout(() => setAsked(asked + 1), AGAIN_MS);
    read(path("cells"), ending.signal).then(setFound, (error) => {
      if (error instanceof Problem || error.name === "AbortError") return; // Its name is all that is shown then.
      throw error;
    });
    return () => {
      clearTimeout(again);
      ending.abort();
    };
  }, [isAsked, asked]);
  if (found === null || found.cells.length < 2) return html`<span class="cell" title="cell">${found?.cell ?? head.value?.cell ?? ""}</span>`;
  return html`<select class="cell" aria-label="Cell" value=${found.cell} onChange=${(/** @type {any} */ event) => location.assign(placeOf(event.target.value))}>
    ${found.cells.map(({ cell, ready }) => html`<option key=${cell} value=${cell}>${named(cell, ready || cell === found.cell, found.router)}</option>`)}
  </select>${trouble(found.router)}`;
}

/** @param {string} cell @param {boolean} ready @param {Router | null} router */
function named(cell, ready, router) {
  if (!ready) return `${cell} (not ready)`;
  const unheard = UNHEARD[router?.cells.find((each) => each.cell === cell)?.state ?? ""];
  return unheard === undefined ? cell : `${cell} (${unheard})`;
}

/** Where jobs that name no cell wait for the router, rather than for a cell. @param {Router | null} router */
function trouble(router) {
  if (router === null || router.silent_ms < SILENT_MS) return null;
  const waiting = router.behind ? `, and ${counted(router.behind, "message")} wait${router.behind === 1 ? "s" : ""} for it` : "";
  return html` <span class="warn router" role="status">The router has been silent for ${duration(router.silent_ms)}${waiting}</span>`;
}
