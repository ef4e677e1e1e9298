// Nodes as cells of a canvas: the fuller a node, the darker. Arrows move from node to node, Enter opens one.
import { useCanvas } from "./canvas.js";
import { html, useState } from "./lib.js";
import { colour } from "./lines.js";
import { go, href } from "./route.js";
import { measured, percent } from "./text.js";

const [CELL_MIN, CELL_MAX, GAP] = [11, 34, 2];
/** A map does not get higher than this as long as its cells can be smaller. */
const HEIGHT_MAX = 420;

/** @typedef {{node: string, state: string, running: number, of: Map<string, {capacity: number, used: number}>}} Mapped A node of the map. */

/** How full a node is of a resource. @param {Mapped} node @param {string} resource */
export function fullness(node, resource) {
  const found = node.of.get(resource);
  return found && found.capacity > 0 ? found.used / found.capacity : null;
}

/** @param {number} count @param {number} width */
function layout(count, width) {
  for (let size = CELL_MAX; size > CELL_MIN; size -= 1) {
    const columns = Math.max(1, Math.floor((width + GAP) / (size + GAP)));
    if (Math.ceil(count / columns) * (size + GAP) <= HEIGHT_MAX) return { size, columns };
  }
  return { size: CELL_MIN, columns: Math.max(1, Math.floor((width + GAP) / (CELL_MIN + GAP))) };
}

/** @param {{nodes: Mapped[], resource: string}} props */
export function HeatMap({ nodes, resource }) {
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const { ref, width } = useCanvas(draw, (wide) => {
    const { size, columns } = layout(nodes.length, wide);
    return Math.ceil(nodes.length / columns) * (size + GAP);
  }, [nodes, resource, at]);

  /** @param {CanvasRenderingContext2D} context @param {number} wide */
  function draw(context, wide) {
    const { size, columns } = layout(nodes.length, wide);
    const [empty, full, bad, ink, line] = ["sunken", "calm", "accent", "ink", "line-strong"].map(colour);
    nodes.forEach((node, index) => {
      const [x, y] = [(index % columns) * (size + GAP), Math.floor(index / columns) * (size + GAP)];
      const part = fullness(node, resource);
      context.globalAlpha = 1;
      context.fillStyle = /** @type {string} */ (empty);
      context.fillRect(x, y, size, size);
      if (part !== null && node.state !== "lost") {
        context.globalAlpha = Math.min(1, part);
        context.fillStyle = /** @type {string} */ (full);
        context.fillRect(x, y, size, size);
      }
      context.globalAlpha = 1;
      if (node.state !== "ready") {
        context.strokeStyle = /** @type {string} */ (node.state === "lost" || node.state === "unschedulable" ? bad : ink);
        context.lineWidth = 1.5;
        context.beginPath();
        context.moveTo(x + 1, y + size - 1);
        context.lineTo(x + size - 1, y + 1);
        if (node.state === "lost") {
          context.moveTo(x + 1, y + 1);
          context.lineTo(x + size - 1, y + size - 1);
        }
        context.stroke();
        context.strokeRect(x + 0.75, y + 0.75, size - 1.5, size - 1.5);
      } else if (part === null) {
        context.strokeStyle = /** @type {string} */ (line);
        context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      }
      if (index === at) {
        context.strokeStyle = /** @type {string} */ (ink);
        context.lineWidth = 2;
        context.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
      }
    });
  }

  const find = (/** @type {MouseEvent} */ event) => {
    const { size, columns } = layout(nodes.length, width);
    const [column, row] = [Math.floor(event.offsetX / (size + GAP)), Math.floor(event.offsetY / (size + GAP))];
    const index = row * columns + column;
    return column < columns && index < nodes.length ? index : null;
  };
  const open = (/** @type {number | null} */ index) => {
    if (index !== null && nodes[index]) go(href(["nodes", nodes[index].node]));
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    const { columns } = layout(nodes.length, width);
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setAt(at === null ? 0 : Math.max(0, Math.min(nodes.length - 1, at + step)));
    } else if (event.key === "Enter") open(at);
    else if (event.key === "Escape") setAt(null);
  };
  const node = at === null ? null : nodes[at];
  const { size, columns } = layout(nodes.length, width || 1);
  const says = node && `${node.node}: ${node.state}, ${tip(node, resource)}, ${node.running} tasks`;
  const place = at === null ? {} : { left: `${Math.max(0, Math.min((at % columns) * (size + GAP), width - 240))}px`, top: `${(Math.floor(at / columns) + 1) * (size + GAP) + 2}px` };
  return html`<div class="canvas" tabindex="0" role="application" aria-label=${`Map of ${nodes.length} nodes; arrows move, Enter opens a node`} data-keys
      onKeyDown=${press} onBlur=${() => setAt(null)}>
    <canvas ref=${ref} role="img" aria-label=${`${nodes.length} nodes by how full they are`} onMouseMove=${(/** @type {MouseEvent} */ event) => setAt(find(event))} onMouseLeave=${() => setAt(null)} onClick=${(/** @type {MouseEvent} */ event) => open(find(event))}></canvas>
    ${says && html`<p class="tip" style=${place}>${says}</p>`}<p class="unseen" role="status">${says}</p></div>`;
}

/** @param {Mapped} node @param {string} resource */
function tip(node, resource) {
  const part = fullness(node, resource);
  if (part === null) return `no ${resource}`;
  const { used, capacity } = /** @type {{used: number, capacity: number}} */ (node.of.get(resource));
  return `${measured(resource, used)} of ${measured(resource, capacity)} held (${percent(part)})`;
}
