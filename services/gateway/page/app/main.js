// The page: which view the address asks for.
import { head, listen, trouble } from "./changes.js";
import { Frame } from "./frame.js";
import { effect, html, render } from "./lib.js";
import { followMoment, followTime } from "./moment.js";
import { Empty } from "./parts.js";
import { href, route } from "./route.js";
import { Classes } from "./classes.js";
import { Donations } from "./donations.js";
import { Job } from "./job.js";
import { Jobs } from "./jobs.js";
import { Log, Round } from "./log.js";
import { Node } from "./node.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { Queue } from "./queue.js";
import { Queues } from "./queues.js";
import { isIn, may, session } from "./session.js";
import { askWho, SignIn } from "./sign_in.js";
import { Reservation, Reservations } from "./reservations.js";
import { Series } from "./series.js";
import { Submit } from "./submit.js";
import { ServedResults, WhatIf } from "./what_if.js";

function Page() {
  if (session.value === null) return html`<p class="starting">${trouble.value?.message ?? "Reading the cell."}</p>`;
  if (!isIn.value) return html`<${SignIn} />`;
  const { view, parts } = route.value;
  const [part = ""] = parts;
  if (head.value?.results) return html`<${Frame}><${ServedResults} /><//>`;
  return html`<${Frame}>${shownView(view, part, parts)}<//>`;
}

/** @param {string} view @param {string} part @param {string[]} parts */
function shownView(view, part, parts) {
  const none = html`<h1>There is no such view</h1><${Empty}>Go to the <a href=${href(["overview"])}>overview</a>.<//>`;
  switch (view) {
    case "overview": return html`<${Overview} />`;
    case "queues": return parts.length ? html`<${Queue} key=${parts.join("/")} path=${parts.join("/")} />` : html`<${Queues} />`;
    case "jobs": return part ? html`<${Job} key=${part} name=${part} />` : html`<${Jobs} />`;
    case "nodes": return part ? html`<${Node} key=${part} name=${part} />` : html`<${Nodes} />`;
    case "reservations": return part ? html`<${Reservation} key=${part} name=${part} />` : html`<${Reservations} />`;
    case "classes": return html`<${Classes} />`;
    case "donations": return html`<${Donations} />`;
    case "log": return part === "rounds" && parts[1] ? html`<${Round} key=${parts[1]} round=${parts[1]} />` : html`<${Log} />`;
    case "series": return html`<${Series} key=${part} name=${part} />`;
    case "results": return html`<${ServedResults} />`;
    case "whatif": return may("operator") ? html`<${WhatIf} />` : none;
    case "submit": return may("submitter") ? html`<${Submit} />` : none;
    default: return none;
  }
}

/** @type {() => void} */
let stop = () => {};
effect(() => {
  stop();
  stop = isIn.value ? listen() : () => {};
});
askWho();
followMoment();
followTime();
const root = /** @type {HTMLElement} */ (document.getElementById("page"));
root.replaceChildren();
render(html`<${Page} />`, root);
