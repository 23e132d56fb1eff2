// Forecast: a table of series as a file or as text, what was understood of it, and its forecast over the dates.
import { html, useState } from '../vendor/htm-preact-standalone.module.js';
import { look } from '../api.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { count, short } from '../numbers.js';
import { saveText } from '../save.js';
import { Bench, Choice, Fold, ModelPicker, NumberBox, Select, TextBox, useModel } from '../components/controls.js';
import { Figure, FigureView, Shown } from '../components/figure.js';
import { Failure } from '../components/status.js';

const LARGEST = 1e6; // characters of a table, as the server takes them
const LEVELS = ['80', '80,95', '50,80,95'];
const RATES = [['', '–'], ['0.01', '1 : 100'], ['0.001', '1 : 1000']]; // of false alarms
const MOST_STEPS = 10000;

const cell = (value) => (typeof value === 'number' ? String(Number(value.toPrecision(10))) : /[",\n]/.test(value ?? '') ? `"${value.replace(/"/g, '""')}"` : value ?? '');

/** Columns by name as CSV. */
function toCsv(columns) {
  const names = Object.keys(columns);
  const rows = columns[names[0]].map((_, at) => names.map((name) => cell(columns[name][at])).join(','));
  return `${[names.map(cell).join(','), ...rows].join('\n')}\n`;
}

/** A box that takes a file: dropped on it, or chosen. */
function FileBox({ label, onText, onError }) {
  const [over, setOver] = useState(false);
  const take = async (file) => {
    setOver(false);
    if (!file) return;
    if (file.size > LARGEST) onError(file);
    else onText(await file.text());
  };
  return html`<label class=${`drop${over ? ' over' : ''}`} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)}
    onDrop=${(event) => { event.preventDefault(); take(event.dataTransfer.files[0]); }}>
    <input class="hidden" type="file" accept=".csv,.tsv,.txt,.json,.jsonl" onChange=${(event) => { take(event.target.files[0]); event.target.value = ''; }} /><span>${label}</span></label>`;
}

/** What was understood of the table: which column is what, gaps, and what was left out. */
function Reading({ lines }) {
  const t = useWords();
  return lines.length ? html`<section class="reading" aria-label=${t('reading')}><h2>${t('reading')}</h2><ul>${lines.map((line) => html`<li>${line}</li>`)}</ul></section>`
    : html`<p class="hint">${t('ownSeries')}</p>`;
}

/** The forecast as rows, to copy and to download. all(): the columns of the forecasts of all series. */
function Table({ found, all }) {
  const t = useWords();
  const [said, say] = useState('');
  const [error, fail] = useState(null);
  const names = Object.keys(found.table);
  const kind = (name) => (found.table[name].some((value) => typeof value === 'number') ? 'number' : '');
  const copy = () => navigator.clipboard.writeText(toCsv(found.table)).then(() => say(t('copied')), (reason) => fail(reason));
  const save = async () => {
    try {
      fail(null);
      saveText('forecast.csv', 'text/csv', toCsv(found.ids.length > 1 ? await all() : found.table));
    } catch (reason) { fail(reason); }
  };
  const tools = html`<button class="button small" onClick=${copy}>${t('copy')}</button>
    <button class="button small" onClick=${save}>${found.ids.length > 1 ? t('downloadAll', { n: count(found.ids.length) }) : t('download')}</button>`;
  return html`<${Figure} title=${t('forecastTable')} data=${found.table} drawn=${false} tools=${tools}>
    <p class="hidden" role="status">${said}</p>${error ? html`<${Failure} error=${error} />` : null}
    <div class="table-scroll tall" tabindex="0" role="group" aria-label=${t('forecastTable')}><table class="table"><thead><tr>${names.map((name) => html`<th scope="col" class=${kind(name)}>${name}</th>`)}</tr></thead>
      <tbody>${found.table[names[0]].map((_, at) => html`<tr>${names.map((name) => html`<td class=${kind(name)}>${typeof found.table[name][at] === 'number' ? short(found.table[name][at]) : found.table[name][at]}</td>`)}</tr>`)}</tbody></table></div>
  <//>`;
}

export function Forecast({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [table, setTable] = useState('');
  const [tooLarge, refuse] = useState(null);
  const [series, setSeries] = useParam('series', '');
  const [horizon, setHorizon] = useParam('horizon', 0);
  const [level, setLevel] = useParam('level', '80,95');
  const [rate, setRate] = useParam('rate', '');
  const take = (text) => { refuse(null); setSeries(''); setTable(text); };
  const options = { level, ...(series ? { series } : {}), ...(horizon ? { horizon } : {}), ...(rate ? { rate: Number(rate) } : {}) };
  const all = () => look(model.name, 'forecast', table, { ...options, all_series: true }).then(([found]) => found.table);
  return html`<${Bench} panel=${html`
    <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${(name) => { setSeries(''); setModel(name); }} />
    <${FileBox} label=${t('dropTable')} onText=${take} onError=${(file) => refuse(file)} />
    ${tooLarge ? html`<p class="hint" role="alert">${t('tableTooLarge', { name: tooLarge.name, n: count(tooLarge.size), most: count(LARGEST) })}</p>` : null}
    <${TextBox} label=${t('pasteTable')} value=${table} onChange=${take} rows=${6} placeholder=${'unique_id,ds,y\nberlin,2024-01-01,12.5\n…'} />
    ${table ? html`<button class="button small" onClick=${() => take('')}>${t('ownTable')}</button>` : null}
    <${Fold}><${NumberBox} label=${t('horizon')} value=${horizon || model.settings.model.horizon} min=${1} max=${MOST_STEPS} onChange=${setHorizon} onClear=${() => setHorizon(0)} />
      <${Choice} label=${t('levels')} value=${level} onChange=${setLevel} options=${LEVELS.map((one) => [one, one.split(',').map((part) => `${part}%`).join(' ')])} />
      <${Choice} label=${t('alarmRate')} value=${rate} onChange=${setRate} options=${RATES} /><//>`}>
    <${Shown} model=${model.name} probe="forecast" text=${table} options=${options}>${({ figures, data }) => html`<div class="stack">
      <${Reading} lines=${data.reading} />
      ${data.ids.length > 1 ? html`<${Select} label=${t('series')} value=${data.id} onChange=${setSeries} options=${data.ids.map((one) => [one, one])} />` : null}
      ${figures.slice(0, 1).map((figure) => html`<${FigureView} figure=${figure} data=${data} note=${t('fanNote')} />`)}
      <${Table} found=${data} all=${all} />
      ${figures.slice(1).map((figure, place) => html`<${FigureView} key=${`${figure.kind} ${place}`} figure=${figure} data=${data} note=${figure.bands?.length ? t('alarmNote') : place === (rate ? 1 : 0) && figure.kind === 'Curves' ? t('earlierNote') : ''} />`)}</div>`}<//>
  <//>`;
}
