// A plain script in the head, before anything is drawn: light or dark, so that no page flashes in the other one; and
// another try where a module did not arrive.
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

  const AGAIN_MS = 2_000;
  document.addEventListener("error", (event) => {
    if (event.target instanceof HTMLScriptElement) setTimeout(() => location.reload(), AGAIN_MS);
  }, true);
}
