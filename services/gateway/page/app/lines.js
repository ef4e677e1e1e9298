// Lines over time, drawn by uPlot in the page's colours.
import uPlot from "../vendor/uPlot.js";
import { html, useEffect, useRef } from "./lib.js";
import { colours, settings } from "./settings.js";
import { clock, isOfBytes, moment, number, zone } from "./text.js";

/** @typedef {{name: string, look: "held" | "mid" | "ink" | "dashed" | "soft", values: (number | null)[]}} Line */

/** A colour of the style sheet. @param {string} name */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Labels of axes have room for this number of letters at the least, so that charts one below the other begin at the same place. */
const LETTERS_MIN = 10;

/** How much room the longest label of an axis takes. @param {any} _ @param {string[] | null} labels */
function widthOf(_, labels) {
  return 16 + 6.3 * Math.max(LETTERS_MIN, ...(labels ?? []).map((each) => each.length));
}

/** The legend tells of the end, until one points at another moment. @param {any} plot */
function ofTheEnd(plot) {
  plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}

const POWERS = Array.from({ length: 41 }, (_, index) => 2 ** (index + 16));

const COLOURS = { held: "calm", mid: "calm-mid", soft: "calm-mid", ink: "ink-soft", dashed: "ink" };

/**
 * @param {{times: number[], lines: Line[], unit?: (value: number) => string, height?: number, kind?: string, at?: (ms: number) => string}} props `kind`: the resource, whose steps may be powers of two; `at`: words a
 * time, where it is none of the clock.
 */
export function Lines({ times, lines, unit = number, height = 180, kind = "", at }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const shape = `${lines.map((line) => line.name + line.look).join()} ${colours.value} ${settings.zone.value}`;
  const data = [times.map((ms) => ms / 1_000), ...lines.map((line) => line.values)];

  useEffect(() => {
    const into = place.current;
    if (!into) return undefined;
    const [ink, line] = [colour("ink-soft"), colour("line")];
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
    const options = {
      width: into.clientWidth || 300,
      height,
      tzDate: (/** @type {number} */ s) => uPlot.tzDate(new Date(s * 1_000), zone()),
      legend: { markers: { width: 2, dash: (/** @type {any} */ of, /** @type {number} */ index) => of.series[index].dash?.length ? "dashed" : "solid" } },
      hooks: { ready: [ofTheEnd], setCursor: [(/** @type {any} */ of) => { if (of.cursor.idx === null) ofTheEnd(of); }] },
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { time: at === undefined }, y: { range: (/** @type {any} */ _, /** @type {number} */ least, /** @type {number} */ most) => [Math.min(0, least ?? 0), (most || 1) * 1.08] } },
      axes: [{ ...axis, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((s) => at ? at(s * 1_000) : clock(s * 1_000).slice(0, (ticks[1] ?? 0) - (ticks[0] ?? 0) < 60 ? 8 : 5)), space: 70 },
        { ...axis, ...(isOfBytes(kind) ? { incrs: POWERS } : {}), size: widthOf, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((value) => unit(value)) }],
      series: [{ label: at ? "after" : "at", value: (/** @type {any} */ _, /** @type {number | null} */ s) => s === null ? "–" : at ? at(s * 1_000) : moment(s * 1_000) },
        ...lines.map(({ name, look }) => ({
          label: name, stroke: colour(COLOURS[look]), width: look === "held" ? 2 : 1.25, points: { show: false }, dash: look === "dashed" ? [5, 4] : [],
          fill: look === "held" ? `${colour("calm")}22` : undefined,
          value: (/** @type {any} */ _, /** @type {number | null} */ value) => value === null ? "–" : unit(value),
        }))],
    };
    plot.current = new uPlot(/** @type {any} */ (options), /** @type {any} */ (data), into);
    const watch = new ResizeObserver(() => plot.current?.setSize({ width: into.clientWidth, height }));
    watch.observe(into);
    return () => {
      watch.disconnect();
      plot.current?.destroy();
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(data);
    if (plot.current) ofTheEnd(plot.current);
  }, [times, lines]);

  const last = lines.map(({ name, values }) => `${name} ${values.length ? unit(values.at(-1) ?? 0) : "none"}`).join(", ");
  return html`<div class="chart" ref=${place} role="img" aria-label=${`Lines over time; at the end ${last}`}></div>`;
}
