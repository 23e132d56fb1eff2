// Look: what the probes show of a model, all of them, with their options; for gates and states single units as well.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { get, look, useRequest } from '../api.js';
import { WORDS, named, partName, useWords } from '../language.js';
import { useParam } from '../location.js';
import { short } from '../numbers.js';
import { valueRange } from '../palette.js';
import { Bench, Choice, ModelPicker, NumberBox, OptionControl, Select, TextBox, parsed, useModel, useOptions } from '../components/controls.js';
import { Figure, FigureView, Shown, TextFigure } from '../components/figure.js';
import { Empty, Failure, Result } from '../components/status.js';
import { TokenText } from '../components/token-text.js';

const FIRST = 10; // units that are shown first: those that vary most
const UNITS = ['gates', 'states'];
const APART = ['stack', 'layer', 'direction', 'gate', 'unit', 'order', 'most', 'texts']; // options with a control of their own
const layerKey = (layer) => [layer.stack, layer.layer, layer.direction].join('/');

function Passages({ model, layer, unit, corpus }) {
  const t = useWords();
  const options = { unit, layer: layer.layer, stack: layer.stack, direction: layer.direction, ...(corpus ? { texts: [corpus] } : { data: 'held-out' }) };
  const request = useRequest((signal) => look(model.name, 'units', '', options, signal).then(([found]) => found), [model.name, JSON.stringify(options)]);
  return html`<${Result} request=${request}>${(found) => {
    const [low, high] = valueRange(found.passages.flatMap((one) => one.values), 'diverging');
    const [tokens, values] = ['steps', 'values'].map((name) => found.passages.flatMap((one) => [...one[name], name === 'steps' ? '\n' : null]));
    return html`<${Figure} title=${t('passagesTitle', { unit })} note=${t('passagesNote', { n: found.count.toLocaleString('en-US') })} data=${found} figure=${{ kind: 'ColouredText', tokens, values, label: 'h', scale: 'diverging' }}>
      <div class="passages">${found.passages.map((one) => html`<${TokenText} tokens=${one.steps} values=${one.values} low=${low} high=${high} scale="diverging"
        label=${t('passage')} notes=${one.values.map(short)} classes=${one.steps.map((_, at) => (at === one.peak ? 'pointed' : ''))} />`)}</div>
    <//>`;
  }}<//>`;
}

/** One unit: its values on the text, and the passages that activate it. layer: as the probe has it; part: the name of its gate or state. */
function Unit({ model, layer, part, unit, setUnit }) {
  const t = useWords();
  const [corpus, setCorpus] = useParam('corpus', '');
  const values = { ...layer.gates, ...layer.states }[part];
  const picked = unit >= 0 && unit < values[0].length ? unit : null;
  const scale = values.some((row) => row.some((value) => value < 0)) ? 'diverging' : 'sequential';
  const column = picked === null ? [] : values.map((row) => row[picked]);
  return html`<section class="stack">
    <div class="pair"><${NumberBox} label=${t('unit')} value=${picked ?? ''} min=${0} max=${values[0].length - 1} onChange=${setUnit} />
      ${model.probes.includes('units') ? html`<${TextBox} label=${t('corpus')} value=${corpus} onChange=${setCorpus} rows=${1} placeholder=${t('heldOut')} />` : null}</div>
    ${picked === null ? html`<p class="hint">${t('unitHint')}</p>` : html`
      <${TextFigure} title=${t('unitTitle', { unit: picked, part: partName(t, layer, part) })} data=${{ layer: layer.name, unit: picked, part, steps: layer.steps, values: column }}
        tokens=${layer.steps} values=${column} range=${valueRange(values.flat(), scale)} scale=${scale} label=${part} />
      ${model.probes.includes('units') ? html`<${Passages} model=${model} layer=${layer.name} unit=${picked} corpus=${corpus} />` : null}`}
  </section>`;
}

/** The choice of a gate or a part of the state. parts: their names. */
function PartChoice({ layer, parts, value, onChange }) {
  const t = useWords();
  return html`<${Choice} label=${t('part')} value=${value} onChange=${onChange} options=${parts.map((one) => [one, partName(t, layer, one)])} />`;
}

/** Tokens of the text that the model reads as unknown. */
function Unread({ words }) {
  const t = useWords();
  return words.length ? html`<p class="hint" role="status">${t('unread', { words: words.join(' ') })}</p>` : null;
}

/** Units of a gate or a part of the state over the text; a press on a row chooses a unit. */
function Units({ model, probe, text, layer }) {
  const t = useWords();
  const [part, setPart] = useParam('part', '');
  const [unit, setUnit] = useParam('unit', -1);
  const [all, setAll] = useParam('all', false);
  const [order, setOrder] = useParam('order', 'variance');
  const options = { ...layer, order, ...(all ? {} : { most: FIRST }), ...(part ? { gate: part } : {}) };
  return html`<${Shown} model=${model.name} probe=${probe} text=${text} options=${options}>${({ results, figures: [figure], data, unknown }) => {
    const [found] = results[0].layers;
    const units = found.states.h[0].length;
    const row = figure.rows.indexOf(String(unit));
    return html`<div class="stack"><${Unread} words=${unknown} />
      <div class="buttons"><${PartChoice} layer=${found} parts=${Object.keys(found[probe])} value=${figure.label} onChange=${setPart} />
        <${Choice} label=${t('option-order')} value=${order} onChange=${setOrder} options=${['variance', 'similarity', 'number'].map((one) => [one, t(`order-${one}`)])} />
        ${units > FIRST ? html`<${Choice} label=${t('units')} value=${all} onChange=${setAll} options=${[[false, t('firstUnits', { n: FIRST })], [true, t('allUnits', { n: units })]]} />` : null}</div>
      <${FigureView} figure=${figure} data=${data} note=${t('gateNote')} picked=${row < 0 ? (figure.rows.length ? null : unit) : row}
        onPick=${(one) => setUnit(figure.rows.length ? Number(figure.rows[one]) : one)} />
      <${Unit} model=${model} layer=${found} part=${figure.label} unit=${unit} setUnit=${setUnit} />
    </div>`;
  }}<//>`;
}

// Titles of texts by what the prediction at the pointer is about, and notes.
const POINTED = { connectivity: 'influenceTitle', gradient: 'gradientTitle' };
const NOTES = {
  surprisal: (t, found) => t(found.context === 'left' ? 'contextLeft' : 'contextBoth'),
  posterior: (t, found) => t('logLikelihood', { value: short(found.log_likelihood) }),
};

/** Any probe, with a control for each of its options. */
function AnyProbe({ model, probe, described, text, layer }) {
  const t = useWords();
  const [given, setOption] = useOptions(described.options);
  const [unit, setUnit] = useParam('unit', -1);
  const [part, setPart] = useParam('part', '');
  const [at, setAt] = useParam('at', -1); // the prediction that is held, where no option of the probe says it
  const own = Object.entries(described.options).filter(([name]) => !APART.includes(name));
  const has = (name) => name in described.options;
  const options = { ...(has('layer') ? layer : {}), ...(has('gate') && part ? { gate: part } : {}), ...(has('unit') && unit >= 0 ? { unit } : {}), ...given };
  if (probe === 'units' && !['unit', 'label', 'phrase'].some((name) => name in options)) options.unit = 0;
  const hold = has('position') ? { held: given.position ?? -1, onHold: (row) => setOption('position', row) } : { held: at, onHold: setAt };
  return html`<div class="stack">
    ${own.length || has('unit') ? html`<div class="options">${has('unit') ? html`<${NumberBox} label=${t('unit')} value=${unit < 0 ? '' : unit} min=${0} max=${1e6} onChange=${setUnit} />` : null}
      ${own.map(([name, schema]) => html`<${OptionControl} key=${name} label=${named(t, 'option', name)} schema=${schema} value=${given[name]} onChange=${(value) => setOption(name, value)} />`)}</div>` : null}
    <${Shown} model=${model.name} probe=${probe} text=${text} options=${options}>${({ results, figures, data, unknown }) => {
      const found = results[0]?.layers?.[0];
      const order = [...figures].sort((a, b) => (b.kind === 'ColouredText') - (a.kind === 'ColouredText')); // texts first
      const title = (figure) => (figure.about?.length && probe in POINTED ? (what) => t(POINTED[probe], { what }) : figure.title);
      return html`<div class="stack"><${Unread} words=${unknown} />
        ${has('gate') && found ? html`<${PartChoice} layer=${found} parts=${Object.keys({ ...found.states, ...found.gates })} value=${part || Object.keys(found.states)[0]} onChange=${setPart} />` : null}
        ${order.map((figure, place) => html`<${FigureView} key=${`${figure.kind} ${place}`} figure=${figure} title=${title(figure)} data=${data} note=${place === 0 && NOTES[probe] ? NOTES[probe](t, data) : ''} ...${hold} />`)}</div>`;
    }}<//>
  </div>`;
}

export function Look({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [text, setText] = useParam('text', model.example ?? '');
  const [chosen, setShow] = useParam('show', '');
  const [key, setLayer] = useParam('layer', '');
  const [[, setPart], [, setOptions], [, setAt]] = [useParam('part', ''), useParam('options', '{}'), useParam('at', -1)];
  const probes = useRequest((signal) => get('weft/probes', signal), []);
  const first = model.probes.includes('gates') ? 'gates' : model.probes[0];
  const show = model.probes.includes(chosen) ? chosen : first;
  const described = probes.data?.[show];
  const found = model.layers.find((one) => layerKey(one) === key) ?? model.layers[0];
  const layer = found && { stack: found.stack, layer: found.layer, direction: found.direction };
  const moved = (set) => (value) => { setOptions((old) => JSON.stringify({ ...parsed(old), position: undefined })); setAt(-1); set(value); }; // another text has other positions
  const another = (set) => moved((value) => { setPart(''); set(value); }); // and other models and probes other gates
  const Body = UNITS.includes(show) ? Units : AnyProbe;
  return html`<${Bench} panel=${html`
      <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${another(setModel)} />
      <${TextBox} label=${t('text')} value=${text} onChange=${moved(setText)} rows=${4} />
      <${Select} label=${t('show')} value=${show} onChange=${another(setShow)} options=${model.probes.map((one) => [one, named(t, 'show', one)])} />
      <p class="hint">${show ? (`show-${show}-note` in WORDS.en ? t(`show-${show}-note`) : described?.about) : t('noProbes')}</p>
      ${described && 'layer' in described.options && model.layers.length > 1 ? html`<${Select} label=${t('layer')} value=${layerKey(found)} onChange=${setLayer}
        options=${model.layers.map((one) => [layerKey(one), `${one.stack} · ${one.layer} · ${t(one.direction)}`])} />` : null}`}>
      ${!show ? html`<${Empty} title=${t('noProbes')} />` : !text.trim() ? html`<${Empty} title=${t('labelEmpty')}>${t('labelHint')}<//>`
        : html`${probes.error ? html`<${Failure} error=${probes.error} retry=${probes.retry} />` : null}${described ? html`<${Body} key=${`${show} ${model.name}`} ...${{ model, probe: show, described, text, layer }} />` : null}`}
    <//>`;
}
