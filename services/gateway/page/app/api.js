// Requests to the gateway.
import { NOBODY, session } from "./session.js";
import { settings } from "./settings.js";

/** What a request was refused with: a problem document, or no answer at all (status 0). */
export class Problem extends Error {
  /** @param {number} status @param {any} document */
  constructor(status, document) {
    super(document?.detail || document?.title || `the gateway answered with status ${status}`);
    this.status = status;
    this.field = typeof document?.field === "string" ? document.field : "";
    this.document = document;
  }
}

/** @param {string} path @param {Record<string, string | number | boolean | string[] | null | undefined>} [query] */
export function address(path, query = {}) {
  const named = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") named.append(name, String(each));
    }
  }
  const text = named.toString();
  return text ? `${path}?${text}` : path;
}

/** Parts of a path, each encoded. @param {...(string | number)} parts */
export function path(...parts) {
  return ["v1", ...parts].map((part) => encodeURIComponent(part)).join("/");
}

/** What was asked ahead and is not taken within this is forgotten: it would be old. */
const AHEAD_MS = 3_000;

/** What first.js and the views have asked ahead, each taken once. @returns {Record<string, Promise<Response | null>>} */
function asked() {
  const here = /** @type {{asked?: Record<string, Promise<Response | null>>}} */ (globalThis);
  return here.asked ??= {};
}

/** The answer to what has been asked ahead. @param {string} where @returns {Promise<Response | null> | undefined} */
function early(where) {
  const found = asked()[where];
  delete asked()[where];
  return found;
}

/** Asks for what will be read in a moment. @param {string} where */
export function ahead(where) {
  const answer = asked()[where] ??= fetch(where, { cache: "no-cache" }).catch(() => null);
  setTimeout(() => {
    if (asked()[where] === answer) delete asked()[where];
  }, AHEAD_MS);
}

/**
 * An answer whose status says that all is well. Throws Problem; AbortError where `signal` ended it.
 * @param {string} where @param {RequestInit} [init] @returns {Promise<Response>}
 */
export async function ask(where, init = {}) {
  let answer;
  try {
    answer = (init.method ? null : await early(where)) ?? await fetch(where, { cache: "no-cache", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The gateway does not answer. The page tries again by itself." });
  }
  if (answer.ok) return answer;
  if (answer.status === 401) session.value = NOBODY; // The token has ended: the page asks for another one.
  throw new Problem(answer.status, await answer.json().catch(() => null));
}

/** @param {string} where @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function read(where, signal) {
  return (await ask(where, { signal: signal ?? null })).json();
}

/**
 * A change; in an open cell `user` of the settings is named as the one who asks.
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method @param {string} where
 * @param {string | object} [body] Text goes as YAML; JSON is YAML, too.
 * @returns {Promise<any>}
 */
export async function send(method, where, body) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (settings.user.value && session.value?.open) headers["Largesse-User"] = settings.user.value;
  if (body !== undefined) headers["Content-Type"] = typeof body === "string" ? "application/yaml" : "application/json";
  const sent = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  const answer = await ask(where, { method, headers, body: sent ?? null });
  return answer.status === 204 ? null : answer.json();
}
