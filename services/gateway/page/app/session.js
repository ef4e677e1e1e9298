// Who reads the page, and what they may do, as the gateway says.
import { computed, signal } from "./lib.js";

const ROLES = ["viewer", "submitter", "operator", "admin"];

/** `open`: the cell has no token, and asks nobody. @typedef {{open: boolean, user: string | null, role: string | null, roles: string[], token: string | null}} Session */

/** @type {Session} */
export const NOBODY = { open: false, user: null, role: null, roles: [], token: null };

/** Null: not known yet. @type {import("../vendor/preact-signals.js").Signal<Session | null>} */
export const session = signal(/** @type {Session | null} */ (null));

/** Whether the cell answers this reader at all. */
export const isIn = computed(() => session.value !== null && session.value.role !== null);

/** Whether the reader may do what a role may. @param {string} role */
export function may(role) {
  return ROLES.indexOf(session.value?.role ?? "") >= ROLES.indexOf(role);
}

/** Whether the reader may change what is of a user, in a queue. @param {string} user @param {string} queue */
export function mayChange(user, queue) {
  if (may("operator")) return true;
  const roles = (session.value?.roles ?? []).filter((role) => role.startsWith("submitter"));
  return user === session.value?.user && roles.some((role) => {
    const [, queues = ""] = role.split(/:(.*)/s);
    return !queues || queues.split(",").some((path) => queue === path || queue.startsWith(`${path}/`));
  });
}
