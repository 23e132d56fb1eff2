// Look: what the probes show of a model, all of them, with their options; for gates and states single units as well.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { get, look, useRequest } from '../api.js';
import { WORDS, partName, useWords } from '../language.js';
import { useParam } from '../location.js';
import { short } from '../numbers.js';
import { valueRange } from '../palette.js';
import { Check, Choice, ModelPicker, NumberBox, Select, TextBox, useModel } from '../components/controls.js';
import { Figure } from '../components/figure.js';
import { Legend } from '../components/legend.js';
import { FigureView, Shown } from '../components/shown.js';
import { Empty, Failure, Result } from '../components/status.js';
import { TokenText } from '../components/token-text.js';

const FIRST = 10; // units that are shown first: those that vary most
const UNITS = ['gates', 'states'];
const APART = ['stack', 'layer', 'direction', 'gate', 'unit', 'order', 'most']; // options with a control of their own
const layerKey = (layer) => [layer.stack, layer.layer, layer.direction].join('/');

/** The name of a probe, an option or a setting in the page's language, or as the server has it. */
const named = (t, kind, name) => (`${kind}-${name}` in WORDS.en ? t(`${kind}-${name}`) : name);

function whereOf(t, layer) {
  return `${layer.stack} ${t('layerNumber', { n: layer.layer })}${layer.direction === 'backward' ? ` ${t('backward')}` : ''}`;
}

function Passages({ model, layer, unit, corpus }) {
  const t = useWords();
  const options = { unit, layer: layer.layer, stack: layer.stack, direction: layer.direction, ...(corpus ? { texts: [corpus] } : { data: 'held-out' }) };
  const request = useRequest((signal) => look(model.name, 'units', '', options, signal).then(([found]) => found), [model.name, JSON.stringify(options)]);
  return html`<${Result} request=${request}>${(found) => {
    const [low, high] = valueRange(found.passages.flatMap((one) => one.values), 'diverging');
    const [tokens, values] = ['tokens', 'values'].map((name) => found.passages.flatMap((one) => [...one[name], name === 'tokens' ? '\n' : null]));
    return html`<${Figure} title=${t('passagesTitle', { unit })} note=${t('passagesNote', { n: found.count.toLocaleString('en-US') })} data=${found} figure=${{ kind: 'ColouredText', tokens, values, label: 'h', scale: 'diverging' }}>
      <div class="passages">${found.passages.map((one) => html`<${TokenText} tokens=${one.tokens} values=${one.values} low=${low} high=${high} scale="diverging"
        label=${t('passage')} notes=${one.values.map(short)} classes=${one.tokens.map((_, at) => (at === one.peak ? 'pointed' : ''))} />`)}</div>
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
  const [low, high] = valueRange(values.flat(), scale);
  const title = t('unitTitle', { unit: picked, part: partName(t, layer, part), where: whereOf(t, layer.name) });
  const drawn = { kind: 'ColouredText', tokens: layer.tokens, values: column, label: part, scale };
  return html`<section class="stack">
    <div class="pair"><${NumberBox} label=${t('unit')} value=${picked ?? ''} min=${0} max=${values[0].length - 1} onChange=${setUnit} />
      ${model.probes.includes('units') ? html`<${TextBox} label=${t('corpus')} value=${corpus} onChange=${setCorpus} rows=${1} placeholder=${t('heldOut')} />` : null}</div>
    ${picked === null ? html`<p class="hint">${t('unitHint')}</p>` : html`
      <${Figure} title=${title} data=${{ layer: layer.name, unit: picked, part, tokens: layer.tokens, values: column }} figure=${drawn} tools=${html`<${Legend} low=${low} high=${high} scale=${scale} />`}>
        <${TokenText} tokens=${layer.tokens} values=${column} low=${low} high=${high} scale=${scale} notes=${column.map(short)} label=${title} /><//>
      ${model.probes.includes('units') ? html`<${Passages} model=${model} layer=${layer.name} unit=${picked} corpus=${corpus} />` : null}`}
  </section>`;
}

/** Units of a gate or a part of the state over the text; a press on a row chooses a unit. */
function Units({ model, probe, text, layer }) {
  const t = useWords();
  const [part, setPart] = useParam('part', '');
  const [unit, setUnit] = useParam('unit', -1);
  const [all, setAll] = useParam('all', false);
  const [order, setOrder] = useParam('order', 'variance');
  const options = { ...layer, order, ...(all ? {} : { most: FIRST }), ...(part ? { gate: part } : {}) };
  return html`<${Shown} model=${model.name} probe=${probe} text=${text} options=${options}>${({ results, figures: [figure], data }) => {
    const [found] = results[0].layers;
    const parts = probe === 'gates' ? found.gates : found.states;
    const called = partName(t, found, figure.label);
    const title = t('gateTitle', { part: called[0].toUpperCase() + called.slice(1), where: whereOf(t, found.name), cell: found.cell });
    const units = found.states.h[0].length;
    const row = figure.rows.indexOf(String(unit));
    return html`<div class="stack">
      <div class="buttons"><${Choice} label=${t('part')} value=${figure.label} onChange=${setPart} options=${Object.keys(parts).map((one) => [one, partName(t, found, one)])} />
        <${Choice} label=${t('option-order')} value=${order} onChange=${setOrder} options=${['variance', 'similarity', 'number'].map((one) => [one, t(`order-${one}`)])} />
        ${units > FIRST ? html`<${Choice} label=${t('units')} value=${all} onChange=${setAll} options=${[[false, t('firstUnits', { n: FIRST })], [true, t('allUnits', { n: units })]]} />` : null}</div>
      <${FigureView} figure=${figure} title=${title} data=${data} note=${t('gateNote')} picked=${row < 0 ? (figure.rows.length ? null : unit) : row}
        onPick=${(one) => setUnit(figure.rows.length ? Number(figure.rows[one]) : one)} />
      <${Unit} model=${model} layer=${found} part=${figure.label} unit=${unit} setUnit=${setUnit} />
    </div>`;
  }}<//>`;
}

// Titles of figures in the page's language: of a probe one for each of its figures, or a function of what a prediction is about.
const TITLES = {
  surprisal: (t) => [t('surprisalTitle')],
  connectivity: (t) => [(what) => t('influenceTitle', { what })],
  gradient: (t, figures) => figures.map((figure) => (figure.kind === 'Curves' ? t('gradientCurve') : figure.kind === 'ColouredText' ? (what) => t('gradientTitle', { what }) : undefined)),
  posterior: (t, figures) => figures.map((figure, n) => (n === 0 ? t('marginalsTitle') : n === figures.length - 1 ? t('transitionsTitle') : figure.kind === 'StateDiagram' ? t('statesTitle') : t('viterbiTitle'))),
};
const NOTES = {
  surprisal: (t, found) => t(found.context === 'left' ? 'contextLeft' : 'contextBoth'),
  posterior: (t, found) => t('logLikelihood', { value: short(found.log_likelihood) }),
};

/** One option as a control. The text of a number may be empty: then it is left out. */
function OptionControl({ name, schema, value, onChange }) {
  const label = named(useWords(), 'option', name);
  if (schema.type === 'boolean') return html`<${Check} label=${label} value=${value === '1'} onChange=${(on) => onChange(on ? '1' : '')} />`;
  if (schema.enum) return html`<${Select} label=${label} value=${value || schema.default || ''} onChange=${onChange} options=${[...(schema.default ? [] : [['', '–']]), ...schema.enum.map((one) => [one, one])]} />`;
  if (schema.type === 'integer') return html`<${NumberBox} label=${label} value=${value || (schema.default ?? '')} min=${schema.minimum} max=${schema.maximum} onChange=${(number) => onChange(String(number))} />`;
  return html`<${TextBox} label=${label} value=${value} onChange=${onChange} rows=${1} />`;
}

/** Any probe, with a control for each of its options. */
function AnyProbe({ model, probe, described, text, layer }) {
  const t = useWords();
  const own = Object.entries(described.options).filter(([name, schema]) => !APART.includes(name) && schema.type !== 'array');
  const values = own.map(([name, schema]) => [name, schema, ...useParam(name, '')]); // the same ones as long as the probe is
  const [unit, setUnit] = useParam('unit', -1);
  const [part, setPart] = useParam('part', '');
  const has = (name) => name in described.options;
  const given = values.filter(([, , value]) => value !== '').map(([name, { type }, value]) => [name, type === 'integer' ? Number(value) : type === 'boolean' ? value === '1' : value]);
  const options = { ...(has('layer') ? layer : {}), ...(has('gate') && part ? { gate: part } : {}), ...(has('unit') && unit >= 0 ? { unit } : {}), ...Object.fromEntries(given) };
  if (probe === 'units' && unit < 0 && !given.some(([name]) => name === 'label' || name === 'phrase')) options.unit = 0;
  const [at, setAt] = useParam('at', -1); // the prediction that is held, where no option of the probe says it
  const hold = values.find(([name]) => name === 'position');
  return html`<div class="stack">
    ${own.length || has('unit') ? html`<div class="options">${has('unit') ? html`<${NumberBox} label=${t('unit')} value=${unit < 0 ? '' : unit} min=${0} max=${1e6} onChange=${setUnit} />` : null}
      ${values.map(([name, schema, value, set]) => html`<${OptionControl} key=${name} name=${name} schema=${schema} value=${value} onChange=${set} />`)}</div>` : null}
    <${Shown} model=${model.name} probe=${probe} text=${text} options=${options}>${({ results, figures, data }) => {
      const [titles, found] = [TITLES[probe]?.(t, figures) ?? [], results[0]?.layers?.[0]];
      const order = figures.map((_, n) => n).sort((a, b) => (figures[b].kind === 'ColouredText') - (figures[a].kind === 'ColouredText')); // texts first
      return html`<div class="stack">
        ${has('gate') && found ? html`<${Choice} label=${t('part')} value=${part || Object.keys(found.states)[0]} onChange=${setPart} options=${Object.keys({ ...found.states, ...found.gates }).map((one) => [one, partName(t, found, one)])} />` : null}
        ${order.map((n, place) => html`<${FigureView} key=${n} figure=${figures[n]} title=${titles[n] ?? figures[n].title} data=${data} note=${place === 0 && NOTES[probe] ? NOTES[probe](t, data) : ''}
          held=${!hold ? at : hold[2] === '' ? -1 : Number(hold[2])} onHold=${hold ? (row) => hold[3](String(row)) : setAt} />`)}</div>`;
    }}<//>
  </div>`;
}

export function Look({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [text, setText] = useParam('text', model.example ?? '');
  const [chosen, setShow] = useParam('show', '');
  const [key, setLayer] = useParam('layer', '');
  const [[, setPart], [, setPosition], [, setAt]] = [useParam('part', ''), useParam('position', ''), useParam('at', -1)];
  const probes = useRequest((signal) => get('weft/probes', signal), []);
  const first = model.probes.includes('gates') ? 'gates' : model.probes[0];
  const show = model.probes.includes(chosen) ? chosen : first;
  const described = probes.data?.[show];
  const found = model.layers.find((one) => layerKey(one) === key) ?? model.layers[0];
  const layer = found && { stack: found.stack, layer: found.layer, direction: found.direction };
  const moved = (set) => (value) => { setPosition(''); setAt(-1); set(value); }; // another text has other positions
  const another = (set) => moved((value) => { setPart(''); set(value); }); // and other models and probes other gates
  const Body = UNITS.includes(show) ? Units : AnyProbe;
  return html`
    <div class="bench">
      <div class="panel">
        <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${another(setModel)} />
        <${TextBox} label=${t('text')} value=${text} onChange=${moved(setText)} rows=${5} />
        <${Select} label=${t('show')} value=${show} onChange=${another(setShow)} options=${model.probes.map((one) => [one, named(t, 'show', one)])} />
        <p class="hint">${show ? (`show-${show}-note` in WORDS.en ? t(`show-${show}-note`) : described?.about) : t('noProbes')}</p>
        ${described && 'layer' in described.options && model.layers.length > 1 ? html`<${Select} label=${t('layer')} value=${layerKey(found)} onChange=${setLayer}
          options=${model.layers.map((one) => [layerKey(one), `${one.stack} · ${one.layer} · ${t(one.direction)}`])} />` : null}
      </div>
      <div class="results">${!show ? html`<${Empty} title=${t('noProbes')} />` : !text.trim() ? html`<${Empty} title=${t('labelEmpty')}>${t('labelHint')}<//>`
        : html`${probes.error ? html`<${Failure} error=${probes.error} retry=${probes.retry} />` : null}${described ? html`<${Body} key=${`${show} ${model.name}`} ...${{ model, probe: show, described, text, layer }} />` : null}`}</div>
    </div>`;
}
