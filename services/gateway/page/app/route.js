// Addresses of the page: `#/view/part/part?name=value`, the moment in `at`.
import { computed, signal } from "./lib.js";

/** @typedef {{view: string, parts: string[], query: URLSearchParams}} Route */

/** @param {string} hash @returns {Route} */
export function parsed(hash) {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view = "", ...parts] = path.split("/").map(decoded);
  return { view: view || "overview", parts: parts.filter((part) => part !== ""), query: new URLSearchParams(query) };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // A stray %: it names nothing, and the view says so.
  }
}

export const route = signal(parsed(location.hash));

addEventListener("hashchange", () => {
  route.value = parsed(location.hash);
});

/** The moment that the address names: a seq or a time, null for now. */
export const at = computed(() => route.value.query.get("at"));

/**
 * An address in the page, at the moment that is shown now unless `query` names another (null: now).
 * @param {string[]} parts @param {Record<string, string | number | null | undefined>} [query]
 */
export function href(parts, query = {}) {
  const kept = { at: at.value, ...query };
  const named = Object.entries(kept).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(named.map(([name, value]) => [name, String(value)])).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The address of this view with other parameters. @param {Record<string, string | number | null>} query */
export function here(query) {
  const { view, parts, query: old } = route.value;
  return href([view, ...parts], { ...Object.fromEntries(old), ...query });
}

/** @param {string} address @param {{replace?: boolean}} [how] `replace`: no step for the back button. */
export function go(address, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", address);
    route.value = parsed(address);
  } else {
    location.hash = address;
  }
}

/** The address of a queue. @param {string} path */
export function queueHref(path) {
  return href(["queues", ...path.split("/").filter((part) => part !== "")]);
}
