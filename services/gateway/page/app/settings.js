// What a reader chooses, kept in this browser.
import { effect, signal } from "./lib.js";

/** @param {string} name @param {string} otherwise */
function kept(name, otherwise) {
  const key = `largesse.${name}`;
  const value = signal(localStorage.getItem(key) ?? otherwise);
  effect(() => {
    if (value.value === otherwise) localStorage.removeItem(key);
    else localStorage.setItem(key, value.value);
  });
  return value;
}

export const settings = {
  /** `auto`, `light` or `dark`. */
  theme: kept("theme", "auto"),
  /** `local`: times in the reader's zone; `log`: in UTC, as the log has them. */
  zone: kept("zone", "local"),
  /** Who asks, as the log records it; empty: the cell's default. */
  user: kept("user", ""),
};

effect(() => {
  const { theme } = settings;
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

const asked = matchMedia("(prefers-color-scheme: dark)");
/** Counts changes of colours, for what is drawn on a canvas. */
export const colours = signal(0);
asked.addEventListener("change", () => { colours.value += 1; });
effect(() => {
  settings.theme.value;
  colours.value = colours.peek() + 1;
});
