// Any JSON value as people read it: shares as bars, records as tables, numbers with three digits.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { short } from '../numbers.js';
import { Drawn } from './figure.js';

const MOST = 20; // bars that are drawn

const isRecord = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** Shares by name as a figure, the largest first; `best`: the name in colour. */
export function sharesFigure(shares, best) {
  const items = Object.entries(shares).sort((a, b) => b[1] - a[1]).slice(0, MOST);
  const at = items.findIndex(([name]) => name === best);
  return { kind: 'Bars', names: items.map(([name]) => name), values: items.map(([, value]) => value), best: Math.max(0, at) };
}

function areShares(value) {
  const numbers = Object.values(value);
  return numbers.length > 1 && numbers.every((one) => typeof one === 'number' && one >= 0 && one <= 1.0001);
}

/** A name of a field or an option, for people. */
export function called(name) {
  return name.replaceAll('_', ' ');
}

function Rows({ records }) {
  const columns = [...new Set(records.flatMap(Object.keys))];
  return html`<div class="table-scroll"><table class="table"><thead><tr>${columns.map((name) => html`<th scope="col">${called(name)}</th>`)}</tr></thead>
    <tbody>${records.map((one) => html`<tr>${columns.map((name) => html`<td><${Value} value=${one[name]} title=${called(name)} /></td>`)}</tr>`)}</tbody></table></div>`;
}

export function Value({ value, title }) {
  if (value === null || value === undefined || value === '') return '–';
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : short(value);
  if (Array.isArray(value)) {
    if (!value.length) return '–';
    if (value.every(isRecord)) return html`<${Rows} records=${value} />`;
    if (value.some(Array.isArray)) return html`<ul class="list">${value.map((one) => html`<li><span><${Value} value=${one} title=${title} /></span></li>`)}</ul>`;
    return value.map((one) => (typeof one === 'number' && !Number.isInteger(one) ? short(one) : String(one))).join(' · ');
  }
  if (!isRecord(value)) return String(value);
  if (areShares(value)) return html`<${Drawn} figure=${sharesFigure(value)} title=${title} />`;
  return html`<div class="table-scroll"><table class="table record"><tbody>${Object.entries(value).map(([name, one]) => html`<tr><th scope="row">${called(name)}</th>
    <td><${Value} value=${one} title=${called(name)} /></td></tr>`)}</tbody></table></div>`;
}
