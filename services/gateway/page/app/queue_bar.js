// What a queue holds, as a bar: the same wherever queues are shown.
import { html } from "./lib.js";
import { nowMs } from "./moment.js";
import { Bar } from "./parts.js";
import { percent } from "./text.js";

/** A queue that holds less than its guarantee for longer is told before all that runs has started since. */
const SHORT_MS = 30_000;
/** It has to lack so much of the cell. */
const SHORT_LEAST = 0.005;

/** Whether a queue has held less than its limits guarantee for a while. @param {any} queue */
export function isShort(queue) {
  return queue.breach === null && queue.short_since_ms !== null && Object.keys(queue.limits.guaranteed).length > 0
    && queue.guaranteed - queue.allocated > SHORT_LEAST && nowMs.value - queue.short_since_ms > SHORT_MS;
}

/** Whether a queue is below its guarantee: that is broken, or what is due to the queue still has to end elsewhere. @param {any} queue */
export function isBelow(queue) {
  return queue.breach !== null || isShort(queue);
}

/** What a queue holds of its own, and what it has borrowed. @param {{queue: any}} props */
export function QueueBar({ queue }) {
  const borrowed = Math.min(queue.borrowed ?? 0, queue.allocated);
  const lacking = isBelow(queue) ? queue.guaranteed - queue.allocated : 0;
  const below = isBelow(queue) ? `, below its guarantee of ${percent(queue.guaranteed)}` : "";
  return html`<${Bar} label=${`holds ${percent(queue.allocated)} of the cell${borrowed > 0 ? `, ${percent(borrowed)} of it borrowed` : ""}${below}`}
    parts=${[{ share: queue.allocated - borrowed, look: below ? "bad" : "held" }, { share: borrowed, look: "mid" }, ...lacking > 0 ? [{ share: lacking, look: "lack" }] : []]} marks=${queue.fair === null ? [] : [{ share: queue.fair, look: "fair" }]} />`;
}

/** What the parts of such bars are. */
export function QueueLegend() {
  return html`<p class="legend"><span><i class="held"></i>holds</span><span><i class="mid"></i>of it borrowed</span><span><i class="bad"></i>holds, below its guarantee</span><span><i class="lack"></i>what lacks of it</span><span><i class="fair"></i>fair share</span></p>`;
}
