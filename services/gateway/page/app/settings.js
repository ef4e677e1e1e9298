// What a reader chooses, kept in this browser.
import { effect, signal } from "./lib.js";

/**
 * What the browser's store answers; undefined where it keeps nothing.
 * @template T
 * @param {(store: Storage) => T} ask
 */
function stored(ask) {
  try {
    return ask(localStorage);
  } catch {
    return undefined;
  }
}

/** @param {string} name @param {string} otherwise */
function kept(name, otherwise) {
  const key = `largesse.${name}`;
  const value = signal(stored((store) => store.getItem(key)) ?? otherwise);
  effect(() => {
    const chosen = value.value;
    stored((store) => (chosen === otherwise ? store.removeItem(key) : store.setItem(key, chosen)));
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

const system = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(system.matches);
system.addEventListener("change", () => { isSystemDark.value = system.matches; });

/** Counts changes of colours, for what is drawn on a canvas. */
export const colours = signal(0);
effect(() => {
  const { theme } = settings;
  document.documentElement.dataset.theme = theme.value !== "auto" ? theme.value : isSystemDark.value ? "dark" : "light";
  colours.value = colours.peek() + 1;
});
