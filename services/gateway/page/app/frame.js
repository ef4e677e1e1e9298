// What stands around every view: navigation, search, the moment, keys.
import { CellName } from "./cells.js";
import { trouble, head } from "./changes.js";
import { Choices, Keys } from "./choices.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { past, stepRecords, stepRounds, showMoment } from "./moment.js";
import { go, href, route } from "./route.js";
import { may } from "./session.js";
import { settings } from "./settings.js";
import { TimeBar } from "./time_bar.js";

/** Views in the order of the navigation: address, name, key behind `g`. */
export const VIEWS = /** @type {const} */ ([
  ["overview", "Overview", "o"],
  ["queues", "Queues", "q"],
  ["jobs", "Jobs", "j"],
  ["nodes", "Nodes", "n"],
  ["reservations", "Reservations", "r"],
  ["classes", "Classes", "c"],
  ["donations", "Donations", "d"],
  ["log", "Log", "l"],
  ["whatif", "What if", "w"],
]);

/** @param {EventTarget | null} target */
function takesKeys(target) {
  return target instanceof Element && target.closest("input, select, textarea, dialog, [data-keys]") !== null;
}

/** @param {{children?: any}} props */
export function Frame({ children }) {
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const [help, setHelp] = useState(false);
  const { view, parts } = route.value;
  const title = VIEWS.find(([name]) => name === view)?.[1] ?? (view === "series" ? "Series" : "Submit");
  const isBare = head.value?.results === true;

  useEffect(() => {
    let leader = 0;
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || takesKeys(event.target)) return;
      const led = event.timeStamp - leader < 1_500 && leader > 0;
      leader = 0;
      const to = led ? VIEWS.find(([, , key]) => key === event.key) : undefined;
      if (to) go(href([to[0]]));
      else if (event.key === "g") leader = event.timeStamp;
      else if (event.key === "/") search.current?.focus();
      else if (event.key === "?") setHelp(true);
      else if (event.key === "t") settings.zone.value = settings.zone.value === "log" ? "local" : "log";
      else if (event.key === "Home" && past.value) showMoment(null);
      else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        if (document.activeElement?.matches(".scrolls")) return; // There the arrows scroll.
        const way = event.key === "ArrowLeft" ? -1 : 1;
        if (event.shiftKey) stepRounds(way);
        else stepRecords(way);
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);

  const place = [view, ...parts].join("/");
  const cell = head.value?.cell ?? "Largesse";
  useEffect(() => {
    document.title = `${[...parts].reverse().concat(title).join(" · ")} · ${cell}`;
  }, [place, cell]);
  const first = useRef(true);
  useLayoutEffect(() => {
    if (!first.current) {
      scrollTo(0, 0);
      main.current?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [place]);

  const views = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const current = /** @type {HTMLElement | null} */ (views.current?.querySelector("[aria-current]"));
    if (views.current && current) views.current.scrollLeft = current.offsetLeft - (views.current.clientWidth - current.clientWidth) / 2;
  }, [view]);

  return html`
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => { event.preventDefault(); main.current?.focus(); }}>To the content</a>
    <header class="top">
      <p class="brand"><a href=${href(["overview"])}>Largesse</a> <${CellName} /></p>
      <form class="search" role="search" onSubmit=${(/** @type {Event} */ event) => {
        event.preventDefault();
        go(href(["jobs"], { q: search.current?.value.trim() }));
        search.current?.blur();
      }}>
        <label class="unseen" for="search">Search for a job by name, queue or user</label>
        <input id="search" ref=${search} type="search" maxlength="200" placeholder="Search for a job   /" autocomplete="off" spellcheck=${false}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === "Escape") search.current?.blur(); }} />
      </form>
      <${Choices} onKeys=${() => setHelp(true)} />
    </header>
    ${isBare ? html`<nav class="views" aria-label="Views"><ul><li><a href="#/results" aria-current="page">Results</a></li></ul></nav>` : html`<nav class="views" ref=${views} aria-label="Views"><ul>
      ${VIEWS.filter(([name]) => name !== "whatif" || may("operator")).map(([name, label]) => html`<li key=${name}><a href=${href([name])} aria-current=${view === name ? "page" : null}>${label}</a></li>`)}
      ${may("submitter") && html`<li><a href=${href(["submit"])} aria-current=${view === "submit" ? "page" : null}>Submit</a></li>`}
    </ul></nav>
    <${TimeBar} />`}
    ${trouble.value && html`<p class="trouble bar-wide" role="alert"><strong>${trouble.value.message}</strong> What you see is as it was last read.</p>`}
    <main id="main" ref=${main} tabindex="-1">${children}</main>
    ${help && html`<${Keys} onClose=${() => setHelp(false)} />`}
  `;
}
