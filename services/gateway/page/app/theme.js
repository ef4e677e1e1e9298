// Light or dark before anything is drawn. A plain script in the head, so that no page flashes in the other one.
"use strict";
{
  const kept = localStorage.getItem("largesse.theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}
