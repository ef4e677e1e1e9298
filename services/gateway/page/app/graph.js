// The graph of a job's stages, from left to right.
import { html } from "./lib.js";
import { Empty } from "./parts.js";
import { counted } from "./text.js";

const STAGES_MAX = 150;
const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [132, 46, 36, 14];

/** @param {{stages: any[]}} props */
export function Graph({ stages }) {
  if (stages.length > STAGES_MAX) return html`<${Empty}>${counted(stages.length, "stage")} are too many to draw: the table below has them.<//>`;
  /** @type {Map<string, number>} */
  const columns = new Map();
  const byName = new Map(stages.map((stage) => [stage.stage, stage]));
  const column = (/** @type {any} */ stage) => {
    const known = columns.get(stage.stage);
    if (known !== undefined) return known;
    const found = stage.after.length ? 1 + Math.max(...stage.after.map((/** @type {string} */ name) => byName.has(name) ? /** @type {number} */ (column(byName.get(name))) : 0)) : 0;
    columns.set(stage.stage, found);
    return found;
  };
  /** @type {number[]} */
  const filled = [];
  const places = new Map(stages.map((stage) => {
    const at = column(stage);
    const row = filled[at] ?? 0;
    filled[at] = row + 1;
    return [stage.stage, { x: at * (WIDTH + GAP_X) + 1, y: row * (HEIGHT + GAP_Y) + 1 }];
  }));
  const width = filled.length * (WIDTH + GAP_X) - GAP_X + 2;
  const height = Math.max(...filled) * (HEIGHT + GAP_Y) - GAP_Y + 2;
  const edges = stages.flatMap((stage) => stage.after.filter((/** @type {string} */ name) => places.has(name)).map((/** @type {string} */ name) => {
    const [from, to] = [places.get(name), places.get(stage.stage)];
    if (!from || !to) return null;
    const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
    const middle = (x1 + x2) / 2;
    return html`<path class="edge" d=${`M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} />`;
  }));
  return html`<div class="graph scrolls" tabindex="0" role="group" aria-label="Stages and what they wait for">
    <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${stages.map((stage) => `${stage.stage}, ${stage.state}${stage.after.length ? `, after ${stage.after.join(" and ")}` : ""}`).join("; ")}>
      ${edges}${stages.map((stage) => html`<${Box} key=${stage.stage} stage=${stage} place=${places.get(stage.stage)} />`)}
    </svg></div>`;
}

/** @param {{stage: any, place: {x: number, y: number}}} props */
function Box({ stage, place }) {
  const { x, y } = place;
  const { total, succeeded, running, starting, failed } = stage.tasks;
  const wide = WIDTH - 16;
  const done = wide * succeeded / total;
  const now = wide * (running + starting) / total;
  const name = stage.stage.length > 17 ? `${stage.stage.slice(0, 16)}…` : stage.stage;
  return html`<g><title>${stage.stage}: ${stage.state}</title>
    <rect class=${`box box-${stage.state}`} x=${x} y=${y} width=${WIDTH} height=${HEIGHT} rx="5" />
    <text x=${x + 8} y=${y + 17}>${name}</text>
    <text class="small" x=${x + 8} y=${y + 31}>${succeeded} of ${total} · ${stage.state}</text>
    <rect class="track" x=${x + 8} y=${y + 37} width=${wide} height="4" />
    <rect class="part" x=${x + 8} y=${y + 37} width=${done} height="4" /><rect class="part-running" x=${x + 8 + done} y=${y + 37} width=${now} height="4" />
    <rect class="part-failed" x=${x + 8 + done + now} y=${y + 37} width=${wide * failed / total} height="4" /></g>`;
}
