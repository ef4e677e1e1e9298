// Which cell of the gateway is shown, and the way to the others: each has its page below cells/NAME/.
import { Problem, path, read } from "./api.js";
import { head } from "./changes.js";
import { html, useEffect, useState } from "./lib.js";
import { isIn } from "./session.js";

/** @typedef {{cell: string, cells: {cell: string, ready: boolean}[]}} Cells */

/** So often the list is read. */
const AGAIN_MS = 10_000;

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
    ${found.cells.map(({ cell, ready }) => html`<option key=${cell} value=${cell}>${ready || cell === found.cell ? cell : `${cell} (not ready)`}</option>`)}
  </select>`;
}
