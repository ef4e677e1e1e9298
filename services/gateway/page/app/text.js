// Numbers, amounts and times as people read them.
import { settings } from "./settings.js";

/** @type {Record<string, number>} */
const FACTORS = {
  "": 1, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50,
};
/** Formats by their digits: making one costs far more than using it. @type {Intl.NumberFormat[]} */
const NUMBERS = [];
const BYTES = ["memory", "disk"];
const BITS = ["network", "disk_io"];

/** Whether a resource is counted in bytes. @param {string} resource */
export function isOfBytes(resource) {
  return BYTES.includes(resource);
}

/** An amount in its natural unit: cores, GPUs, bytes, bit/s. @param {string | number | undefined} text */
export function amount(text) {
  const found = /^([0-9.]+)([a-zA-Z]*)$/.exec(String(text ?? "0"));
  return found ? Number(found[1]) * (FACTORS[found[2] ?? ""] ?? NaN) : NaN;
}

/** @param {number} value @param {number} [digits] behind the point at most */
export function number(value, digits = 2) {
  let found = NUMBERS[digits];
  if (!found) NUMBERS[digits] = found = new Intl.NumberFormat("en", { maximumFractionDigits: digits });
  return found.format(value);
}

/** @param {number} value @param {[string, number][]} scale largest first */
function scaled(value, scale) {
  for (const [unit, factor] of scale) {
    if (value >= factor) return `${number(value / factor, value / factor >= 100 ? 0 : value / factor >= 10 ? 1 : 2)} ${unit}`;
  }
  const [unit, factor] = /** @type {[string, number]} */ (scale.at(-1));
  return `${number(value / factor)} ${unit}`;
}

/** An amount with its unit: `1.5 cores`, `7.5 GiB`. @param {string} resource @param {number} value in natural units */
export function measured(resource, value) {
  if (!Number.isFinite(value)) return "?";
  if (BYTES.includes(resource)) return scaled(value, [["PiB", 2 ** 50], ["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20]]);
  if (BITS.includes(resource)) return scaled(value, [["Tbit/s", 1e12], ["Gbit/s", 1e9], ["Mbit/s", 1e6]]);
  if (resource === "cpu") return `${number(value)} ${value === 1 ? "core" : "cores"}`;
  if (resource === "gpu") return `${number(value)} ${value === 1 ? "GPU" : "GPUs"}`;
  return `${number(value)} ${resource}`;
}

/** Several amounts in a line. @param {Record<string, string>} amounts */
export function amounts(amounts) {
  return Object.entries(amounts).map(([resource, text]) => named(resource, text)).join(", ");
}

/** An amount that says what it is of. @param {string} resource @param {string} text */
export function named(resource, text) {
  const shown = measured(resource, amount(text));
  return BYTES.includes(resource) || BITS.includes(resource) ? `${shown} ${label(resource)}` : shown;
}

/** A resource in words. @param {string} resource */
export function label(resource) {
  return { cpu: "CPU", gpu: "GPU", disk_io: "disk I/O" }[resource] ?? resource;
}

/** Resource-time in its largest sensible unit: `2.5 core h`. @param {string} resource @param {string | number} text in seconds */
export function resourceTime(resource, text) {
  const value = typeof text === "number" ? text : amount(text);
  const [time, per] = value >= 3_600 && !BYTES.includes(resource) ? ["h", 3_600] : ["s", 1];
  if (BYTES.includes(resource)) {
    const hours = value / 3_600 >= 2 ** 30;
    return `${measured(resource, hours ? value / 3_600 : value)} ${hours ? "h" : "s"}`;
  }
  const unit = resource === "cpu" ? "core" : resource === "gpu" ? "GPU" : resource;
  return `${number(value / Number(per))} ${unit} ${time}`;
}

/** A part of 1 in per cent. @param {number | null | undefined} part */
export function percent(part) {
  if (part === null || part === undefined) return "–";
  const hundredths = part * 100;
  return `${number(hundredths, hundredths !== 0 && hundredths < 10 ? 1 : hundredths % 1 && hundredths < 99.95 ? 1 : 0)} %`;
}

/** @param {number} count @param {string} one @param {string} [many] */
export function counted(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const s = ms / 1_000;
  if (s < 0.95) return `${Math.round(ms)} ms`;
  if (s < 59.95) return `${number(s, 1)} s`;
  const min = Math.round(s / 6) / 10;
  if (min < 60) return `${number(min, 1)} min`;
  const minutes = Math.round(s / 60);
  if (minutes < 1_440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(minutes / 60);
  return `${number(Math.floor(hours / 24))} d ${hours % 24} h`;
}

/** The zone in which times are shown. */
export function zone() {
  return settings.zone.value === "log" ? "UTC" : OWN_ZONE;
}

const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Formats by zone. @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/** Date and time of day, `2026-11-29 14:03:59`, in the shown zone. @param {number} ms */
function written(ms) {
  const name = zone();
  let found = formats.get(name);
  if (!found) formats.set(name, (found = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone: name })));
  return found.format(ms);
}

/** The date in the shown zone, `2026-11-29`. @param {number} ms */
export function day(ms) {
  return written(ms).slice(0, 10);
}

/** The time of day, `14:03:59`. @param {number} ms */
export function clock(ms) {
  return written(ms).slice(-8);
}

/** A moment: with its day unless that is the day of `beside`. @param {number} ms @param {number} [beside] */
export function moment(ms, beside) {
  return beside !== undefined && day(ms) === day(beside) ? clock(ms) : written(ms);
}

/** Log time, exactly. @param {number} ms */
export function iso(ms) {
  return new Date(ms).toISOString();
}
