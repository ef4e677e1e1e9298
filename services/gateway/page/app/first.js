// A plain script in the head, before anything is drawn: light or dark, so that no page flashes in the other one; what
// every view asks first, on its way while the modules are read; and another try where those did not arrive.
"use strict";
{
  let kept = null;
  try {
    kept = localStorage.getItem("largesse.theme");
  } catch {
    // A browser that keeps nothing: as the system has it.
  }
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = kept === "light" || kept === "dark" ? kept : system;

  /** Taken by api.js, each once; null: no answer came. @type {Record<string, Promise<Response | null>>} */
  const asked = {};
  for (const where of ["v1/session", "readyz"]) asked[where] = fetch(where, { cache: "no-cache" }).catch(() => null);
  Object.assign(globalThis, { asked });

  const AGAIN_MS = 2_000;
  document.addEventListener("error", (event) => {
    if (event.target instanceof HTMLScriptElement) setTimeout(() => location.reload(), AGAIN_MS);
  }, true);
}
