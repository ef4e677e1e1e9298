// Records of the log as a table, with each as the document that it is.
import { address, read } from "./api.js";
import { useDocument } from "./documents.js";
import { html, useState } from "./lib.js";
import { shown, past } from "./moment.js";
import { Empty, Fact, Shown, Table, Time } from "./parts.js";
import { href } from "./route.js";
import { number } from "./text.js";
import { recordHref } from "./words.js";

const SIZE = 50;
/** Beside other things a few are enough at first. */
export const SIZE_BESIDE = 12;

/**
 * The latest records first, up to the moment that is shown.
 * @param {{query: Record<string, string>, kinds: readonly string[], to?: number | null, from?: number | null, order?: string, size?: number}} props
 */
export function Records({ query, kinds, to = null, from = null, order = "desc", size = SIZE }) {
  const [before, setBefore] = useState(/** @type {number[]} */ ([]));
  const end = before.at(-1) ?? to ?? (past.value ? shown.value?.seq ?? null : null);
  const found = useDocument(address("v1/records", { ...query, from, to: end, limit: size, order }), before.length ? [] : kinds, { timed: false });
  return html`<${Shown} read=${found} what="records">${(/** @type {any} */ data) => {
    const rows = data.records;
    if (!rows.length && data.next !== null) return html`<${Empty}>None in this part of the log. <button type="button" onClick=${() => setBefore([...before, data.next])}>Look further back</button><//>`;
    if (!rows.length) return html`<${Empty}>The log has no such record${past.value ? " up to this moment" : ""}.<//>`;
    return html`<${Table} label="Records" class="records"><thead><tr><th class="num">Record</th><th>When</th><th>Type</th><th>What it says</th><th>The cell</th></tr></thead>
      <tbody>${rows.map((/** @type {any} */ row) => html`<${Row} key=${row.seq} row=${row} />`)}</tbody><//>
      <nav class="window" aria-label="Further records"><button type="button" disabled=${!before.length} onClick=${() => setBefore(before.slice(0, -1))}>Later</button>
        <button type="button" disabled=${data.next === null} onClick=${() => setBefore([...before, data.next])}>Earlier</button></nav>`;
  }}<//>`;
}

/** @param {{row: any}} props */
function Row({ row }) {
  const [whole, setWhole] = useState(/** @type {string | null} */ (null));
  const open = async () => {
    if (whole !== null) return setWhole(null);
    setWhole("Reading …");
    try {
      const data = await read(address("v1/records", { from: row.seq, to: row.seq, whole: 1 }));
      setWhole(JSON.stringify(data.records[0]?.record ?? null, null, 2));
    } catch (error) {
      setWhole(/** @type {Error} */ (error).message);
    }
  };
  return html`<tr><td class="num"><${Fact} kind="record" name=${row.seq} field="seq" value=${row.seq}><a href=${recordHref(row.seq)}>${number(row.seq)}</a><//></td>
    <td class="when"><${Time} ms=${row.time_ms} /></td>
    <td><button type="button" class="sort" aria-expanded=${whole !== null} onClick=${open}>${whole === null ? "▸" : "▾"} ${row.type}</button></td>
    <td class="text">${row.line}${whole !== null && html`<pre tabindex="0" role="group" aria-label=${`Record ${row.seq}`}>${whole}</pre>`}</td>
    <td><a href=${href(["overview"], { at: row.seq })} title="The cell as it was behind this record" aria-label=${`then: the cell behind record ${number(row.seq)}`}>then</a></td></tr>`;
}
