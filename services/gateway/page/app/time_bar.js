// The bar of time: which moment is shown, and how to get to another one.
import { read } from "./api.js";
import { head } from "./changes.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { asked, logBegins, momentProblem, past, reading, recorded, showMoment, shown, stepRecords, stepRounds } from "./moment.js";
import { at } from "./route.js";
import { settings } from "./settings.js";
import { clock, day, duration, iso, moment, number, zone } from "./text.js";

const DRAG_MS = 120;
const SPEEDS = [1, 10, 60, 600];

/** A moment as an input for dates has it, in the shown zone. @param {number} ms */
function asInput(ms) {
  return `${day(ms)}T${clock(ms)}`;
}

/** What such an input says, as ISO 8601. @param {string} text */
function asIso(text) {
  return settings.zone.value === "log" ? `${text}Z` : new Date(text).toISOString();
}

export function TimeBar() {
  const last = head.value;
  const now = shown.value;
  const isPast = past.value;
  const [drag, setDrag] = useState(/** @type {number | null} */ (null));
  const [speed, setSpeed] = useState(0);
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  const [open, setOpen] = useState(false);
  const begun = useRef("");
  const timer = useRef(0);
  const [first, setFirst] = useState(1);
  const isRead = last !== null;

  useEffect(() => {
    if (!isRead) return undefined;
    const control = new AbortController();
    // A log may begin in the middle, and what only says that time goes on is left out of lists.
    read("v1/records?limit=1", control.signal).then(({ records }) => {
      setFirst(records[0]?.seq ?? 1);
      logBegins.value = records[0]?.time_ms ?? 0;
    }, () => {});
    return () => control.abort();
  }, [isRead]);

  useEffect(() => {
    if (!speed) return undefined;
    let ms = shown.value?.time ?? 0;
    const step = setInterval(() => {
      ms += speed * 1_000;
      if (head.value && ms >= head.value.time) {
        setSpeed(0);
        showMoment(null, true);
      } else showMoment(iso(ms), true);
    }, 1_000);
    return () => clearInterval(step);
  }, [speed]);

  const seek = (/** @type {number} */ seq) => {
    setSpeed(0);
    setDrag(seq);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      setDrag(null);
      if (last && seq >= last.seq) showMoment(null, past.value);
      else showMoment(seq, past.value);
    }, DRAG_MS);
  };

  /** A time counts once one leaves the field: until then it is half typed. @param {any} event */
  const leave = (event) => {
    const chosen = event.target.value;
    if (chosen && chosen !== begun.current) {
      setSpeed(0);
      showMoment(asIso(chosen));
    }
    setTyped(null);
  };

  if (!last) return html`<section class="time-bar" aria-label="Moment"><p class="note">Reading …</p></section>`;
  const named = at.value !== null && /^[0-9]+$/.test(at.value) ? Number(at.value) : null;
  const seq = drag ?? (reading.value ? named : now?.seq) ?? named ?? null;
  const tense = isPast ? "Past" : recorded.value ? "The end" : "Now";
  const back = recorded.value ? "To the end" : "Back to now";
  const field = asked.value ?? now?.time;
  return html`<section class=${`time-bar${isPast ? " is-past" : ""}${open ? " is-open" : ""}`} aria-label="Moment">
    <p class="which" aria-busy=${reading.value}>
      <strong class="tense">${tense}</strong>
      ${reading.value || !now ? html`<span class="when" role="status">Reading ${named !== null ? `record ${number(named)}` : asked.value !== null ? `${day(asked.value)} ${clock(asked.value)}` : "the moment"} …</span>`
        : html`<${Which} now=${now} last=${last} seq=${drag ?? now.seq} />`}
    </p>
    ${isPast && html`<button type="button" class="to-now" onClick=${() => { setSpeed(0); showMoment(null); }}>${back}</button>`}
    <button type="button" class="more" aria-expanded=${open} onClick=${() => setOpen(!open)}>Other moment</button>
    <div class="slide">
      <input type="range" aria-label="Record of the log" aria-valuetext=${seq === null ? `${tense}: reading` : `${tense}: record ${seq}`} min=${Math.min(first, last.seq)} max=${last.seq} value=${seq ?? last.seq} data-keys
        onInput=${(/** @type {any} */ event) => seek(Number(event.target.value))} />
      <p class="ends">${logBegins.value !== null && html`<span>${moment(logBegins.value, last.time)}</span>`}<span>record by record</span><span>${moment(last.time, logBegins.value ?? last.time)}</span></p>
    </div>
    <div class="steps">
      <button type="button" title="One round back (Shift ←)" aria-label="One round back" onClick=${() => stepRounds(-1)}>«</button>
      <button type="button" title="One record back (←)" aria-label="One record back" onClick=${() => stepRecords(-1)}>‹</button>
      ${isPast && html`<button type="button" title="One record on (→)" aria-label="One record on" onClick=${() => stepRecords(1)}>›</button>
      <button type="button" title="One round on (Shift →)" aria-label="One round on" onClick=${() => stepRounds(1)}>»</button>
      <label><span class="unseen">Play at a speed</span><select value=${speed} onChange=${(/** @type {any} */ event) => setSpeed(Number(event.target.value))}>
        <option value="0">still</option>${SPEEDS.map((each) => html`<option value=${each}>play ${each} ×</option>`)}</select></label>`}
      <label><span class="unseen">Go to a time (${zone()})</span><input type="datetime-local" step="1" value=${typed ?? (field === undefined ? "" : asInput(field))}
        onFocus=${(/** @type {any} */ event) => { begun.current = event.target.value; setTyped(event.target.value); }} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)}
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") /** @type {HTMLElement} */ (event.target).blur(); }} onBlur=${leave} /></label>
      ${typed !== null && html`<span class="hint">Enter goes there</span>`}
    </div>
    ${momentProblem.value && html`<p class="trouble" role="alert">${momentProblem.value.message}</p>`}
  </section>`;
}

/**
 * The moment that is shown: the time that was asked for, the last record before it, and how far that is from the end.
 * @param {{now: import("./moment.js").Moment, last: import("./moment.js").Moment, seq: number}} props
 */
function Which({ now, last, seq }) {
  const ms = asked.value;
  const isBefore = ms !== null && Math.floor(ms / 1_000) > Math.floor(now.time / 1_000);
  const time = (/** @type {number} */ of, /** @type {string} */ text, /** @type {string} */ look) => html`<time class=${look} datetime=${iso(of)} title=${`log time ${iso(of)}`} key=${`${look} ${settings.zone.value}`}>${text}</time>`;
  return html`<span class="when">${isBefore && html`${time(ms, `${day(ms)} ${clock(ms)}`, "asked")} <span class="zone">${zone()}</span>, last record before: `}${time(now.time, isBefore ? moment(now.time, ms) : `${day(now.time)} ${clock(now.time)}`, "is-shown")}${isBefore ? "" : html` <span class="zone">${zone()}</span>`}</span>
    <span class="record">record <data class="fact" value=${seq} data-kind="moment" data-name="shown" data-field="seq" data-value=${seq}>${number(seq)}</data>${past.value ? ` of ${number(last.seq)}` : ""}, round ${number(now.round)}${recorded.value ? ", a recorded log" : ""}</span>
    ${past.value && html`<span class="back">${duration(Math.max(0, last.time - now.time))} before the last record</span>`}`;
}
