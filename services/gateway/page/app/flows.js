// What was given and what was received over a span, drawn as flows: givers on the left, receivers on the right. What is
// given belongs to nobody in between, so no flow leads from one queue to another.
import { html } from "./lib.js";
import { queueHref } from "./route.js";

const [HEIGHT, GAP, BAND, LEFT, WIDE] = [260, 6, 10, 180, 760];
const SHOWN_MAX = 12;

/** @typedef {{name: string, value: number}} End */

/** The ends with most, and the others together. @param {End[]} ends @returns {End[]} */
function most(ends) {
  const sorted = ends.filter((end) => end.value > 0).sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
  const rest = sorted.slice(SHOWN_MAX);
  return rest.length ? [...sorted.slice(0, SHOWN_MAX), { name: "", value: rest.reduce((sum, end) => sum + end.value, 0) }] : sorted;
}

/** Where each end lies, from top to bottom. @param {End[]} ends @param {number} scale */
function placed(ends, scale) {
  let top = 0;
  return ends.map((end) => {
    const high = Math.max(1.5, end.value * scale);
    const place = { ...end, top, high };
    top += high + GAP;
    return place;
  });
}

/** @param {{givers: End[], receivers: End[], text: (value: number) => string, gave?: string, got?: string, label?: string}} props */
export function Flows({ givers, receivers, text: amountText, gave = "gave", got: received = "got", label = "Flows between queues" }) {
  const [from, to] = [most(givers), most(receivers)];
  const sum = (/** @type {End[]} */ ends) => ends.reduce((all, end) => all + end.value, 0);
  const [given, got] = [sum(from), sum(to)];
  if (!given && !got) return null;
  const room = HEIGHT - GAP * Math.max(from.length, to.length);
  const scale = room / Math.max(given, got);
  const [left, right] = [placed(from, scale), placed(to, scale)];
  const high = Math.max(HEIGHT / 3, ...[...left, ...right].map((each) => each.top + each.high));
  const middle = WIDE / 2;
  const band = Math.max(given, got) * scale;
  const text = (/** @type {End} */ end) => end.name || "all others";
  const ribbon = (/** @type {number} */ x1, /** @type {number} */ top1, /** @type {number} */ x2, /** @type {number} */ top2, /** @type {number} */ thick) => {
    const bend = (x1 + x2) / 2;
    return `M${x1} ${top1} C${bend} ${top1} ${bend} ${top2} ${x2} ${top2} L${x2} ${top2 + thick} C${bend} ${top2 + thick} ${bend} ${top1 + thick} ${x1} ${top1 + thick} Z`;
  };
  const [startLeft, startRight] = [(high - given * scale) / 2, (high - got * scale) / 2];
  let [offLeft, offRight] = [startLeft, startRight];
  const spoken = `${left.map((end) => `${text(end)} ${gave} ${amountText(end.value)}`).join(", ")}; ${right.map((end) => `${text(end)} ${received} ${amountText(end.value)}`).join(", ")}`;
  const end = (/** @type {any} */ each, /** @type {"left" | "right"} */ side) => {
    const x = side === "left" ? LEFT : WIDE - LEFT - BAND;
    const says = html`<text class=${`flow-${side}`} x=${side === "left" ? x - 8 : x + BAND + 8} y=${each.top + Math.max(each.high, 12) / 2}>${cut(text(each))}<tspan class="small"> ${amountText(each.value)}</tspan></text>`;
    return html`<g key=${`${side}${each.name}`}><title>${text(each)}</title><rect class=${side === "left" ? "held" : "mid"} x=${x} y=${each.top} width=${BAND} height=${each.high} rx="2" />${each.name ? html`<a href=${queueHref(each.name)}>${says}</a>` : says}</g>`;
  };
  return html`<div class="flows scrolls" role="group" tabindex="0" aria-label=${label}><svg viewBox=${`0 0 ${WIDE} ${high + 22}`} role="img" aria-label=${spoken}>
    ${left.map((each) => {
      const path = ribbon(LEFT + BAND, each.top, middle - BAND / 2, offLeft, each.value * scale);
      offLeft += each.value * scale;
      return html`<path key=${`l${each.name}`} class="ribbon" d=${path} />`;
    })}
    ${right.map((each) => {
      const path = ribbon(middle + BAND / 2, offRight, WIDE - LEFT - BAND, each.top, each.value * scale);
      offRight += each.value * scale;
      return html`<path key=${`r${each.name}`} class="ribbon" d=${path} />`;
    })}
    <rect class="pool" x=${middle - BAND / 2} y=${(high - band) / 2} width=${BAND} height=${band} rx="2" />
    ${left.map((each) => end(each, "left"))}${right.map((each) => end(each, "right"))}
    <text class="small flow-middle" x=${middle} y=${high + 16}>free for anybody</text>
  </svg></div>`;
}

/** @param {string} name */
function cut(name) {
  return name.length > 13 ? `${name.slice(0, 5)}…${name.slice(-7)}` : name;
}
