// Look: gates and states of every layer, single units and what activates them, gradients and influence on hover.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { look, useRequest } from '../api.js';
import { partName, useWords } from '../language.js';
import { useParam } from '../location.js';
import { short, visible } from '../numbers.js';
import { valueRange } from '../palette.js';
import { Choice, ModelPicker, NumberBox, Select, TextBox, useModel } from '../components/controls.js';
import { Figure } from '../components/figure.js';
import { HeatMap, cellText } from '../components/heat-map.js';
import { Legend } from '../components/legend.js';
import { Empty, Result } from '../components/status.js';
import { TokenText, drawTokens } from '../components/token-text.js';
import { InfluenceFigure } from './influence.js';
import { Posterior } from './posterior.js';

// What the view shows, by the probe that it needs.
const SHOWN = { gates: 'gates', surprisal: 'surprisal', connectivity: 'connectivity', gradient: 'gradient', posterior: 'posterior' };

const FIRST = 10; // units that are shown first: those that vary most

function layerKey(layer) {
  return [layer.stack, layer.layer, layer.direction].join('/');
}

/** The gates and the parts of the state of a layer, each (T, H). */
function partsOf(layer) {
  return { ...layer.gates, ...layer.states };
}

function transposed(rows) {
  return rows[0].map((_, column) => rows.map((row) => row[column]));
}

function variance(values) {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  return values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
}

/** The numbers of the units that vary most over the text, the first the most. */
function mostVarying(units) {
  const sizes = units.map(variance);
  return sizes.map((_, unit) => unit).sort((a, b) => sizes[b] - sizes[a]).slice(0, FIRST);
}

// Gates lie between 0 and 1; states and candidates on both sides of 0.
function scaleOf(values) {
  const low = Math.min(...values.map((row) => Math.min(...row)));
  if (low >= 0) return ['sequential', 0, Math.max(1, ...values.map((row) => Math.max(...row)))];
  const [from, to] = valueRange(values.flat(), 'diverging');
  return ['diverging', from, to];
}

function Passages({ model, layer, unit, corpus }) {
  const t = useWords();
  const options = { unit, layer: layer.layer, stack: layer.stack, direction: layer.direction, ...(corpus ? { texts: [corpus] } : { data: 'held-out' }) };
  const request = useRequest((signal) => look(model.name, 'units', '', options, signal).then(([found]) => found), [model.name, JSON.stringify(options)]);
  return html`<${Result} request=${request}>${(found) => {
    const all = found.passages.flatMap((one) => one.values);
    const [low, high] = valueRange(all, 'diverging');
    const draw = () => drawTokens({ tokens: found.passages.flatMap((one) => [...one.tokens, '\n']), values: found.passages.flatMap((one) => [...one.values, null]), low, high, scale: 'diverging' });
    return html`<${Figure} title=${t('passagesTitle', { unit })} note=${t('passagesNote', { n: found.count.toLocaleString('en-US') })} data=${found} draw=${draw}>
      <div class="passages">${found.passages.map((one) => html`<${TokenText} tokens=${one.tokens} values=${one.values} low=${low} high=${high} scale="diverging"
        label=${t('passage')} notes=${one.values.map(short)} classes=${one.tokens.map((_, at) => (at === one.peak ? 'pointed' : ''))} />`)}</div>
    <//>`;
  }}<//>`;
}

function Gates({ model, text }) {
  const t = useWords();
  const [key, setLayer] = useParam('layer', '');
  const [part, setPart] = useParam('part', '');
  const [unit, setUnit] = useParam('unit', -1);
  const [corpus, setCorpus] = useParam('corpus', '');
  const [all, setAll] = useParam('all', false);
  const request = useRequest((signal) => look(model.name, 'gates', text, {}, signal).then(([found]) => found), [model.name, text]);
  return html`<${Result} request=${request}>${(found) => {
    const layers = found.layers;
    const layer = layers.find((one) => layerKey(one.name) === key) ?? layers[0];
    const parts = partsOf(layer);
    const chosen = part in parts ? part : Object.keys(parts)[0];
    const values = parts[chosen];
    const [scale, low, high] = scaleOf(values);
    const picked = unit >= 0 && unit < values[0].length ? unit : null;
    const where = `${layer.name.stack} ${t('layerNumber', { n: layer.name.layer })}${layer.name.direction === 'backward' ? ` ${t('backward')}` : ''}`;
    const units = transposed(values);
    const few = units.length > FIRST && !all;
    const order = few ? mostVarying(units) : units.map((_, one) => one);
    const row = order.indexOf(picked);
    const called = partName(t, layer, chosen);
    const title = t('gateTitle', { part: called[0].toUpperCase() + called.slice(1), where, cell: layer.cell });
    const column = picked === null ? [] : values.map((row) => row[picked]);
    const unitDrawing = { tokens: layer.tokens, values: column, low, high, scale, notes: column.map(short) };
    return html`<div class="stack">
      <div class="buttons">
        ${layers.length > 1 ? html`<${Select} label=${t('layer')} value=${layerKey(layer.name)} onChange=${setLayer} options=${layers.map((one) => [layerKey(one.name), `${one.name.stack} · ${one.name.layer} · ${t(one.name.direction)}`])} />` : null}
        <${Choice} label=${t('part')} value=${chosen} onChange=${setPart} options=${Object.keys(parts).map((one) => [one, partName(t, layer, one)])} />
      </div>
      <${Figure} title=${title} note=${t(few ? 'fewNote' : 'gateNote', { n: FIRST })} data=${{ ...found, layers: [layer] }}
        tools=${units.length > FIRST ? html`<${Choice} quiet label=${t('units')} value=${all} onChange=${setAll} options=${[[false, t('varyMost', { n: FIRST })], [true, t('allUnits', { n: units.length })]]} />` : null}>
        <${HeatMap} values=${order.map((one) => units[one])} rows=${few ? order.map(String) : []} columns=${layer.tokens} low=${low} high=${high} scale=${scale}
          picked=${row < 0 ? null : row} onPick=${(one) => setUnit(order[one])} title=${title}
          describe=${(one, at, value) => cellText([`${t('unit')} ${order[one]}`, visible(layer.tokens[at]), called], value)} /><//>
      <section class="stack">
        <div class="pair"><${NumberBox} label=${t('unit')} value=${picked ?? ''} min=${0} max=${values[0].length - 1} onChange=${setUnit} />
          ${model.probes.includes('units') ? html`<${TextBox} label=${t('corpus')} value=${corpus} onChange=${setCorpus} rows=${1} placeholder=${t('heldOut')} />` : null}</div>
        ${picked === null ? html`<p class="hint">${t('unitHint')}</p>` : html`
          <${Figure} title=${t('unitTitle', { unit: picked, part: called, where })} data=${{ layer: layer.name, unit: picked, part: chosen, tokens: layer.tokens, values: column }} draw=${() => drawTokens(unitDrawing)}
            tools=${html`<${Legend} low=${low} high=${high} scale=${scale} />`}><${TokenText} ...${unitDrawing} label=${t('unitTitle', { unit: picked, part: called, where })} /><//>
          ${model.probes.includes('units') ? html`<${Passages} model=${model} layer=${layer.name} unit=${picked} corpus=${corpus} />` : null}`}
      </section>
    </div>`;
  }}<//>`;
}

function Surprise({ model, text }) {
  const t = useWords();
  const request = useRequest((signal) => look(model.name, 'surprisal', text, {}, signal).then(([found]) => found), [model.name, text]);
  return html`<${Result} request=${request}>${(found) => {
    const [low, high] = valueRange(found.nats, 'sequential');
    const notes = found.tokens.map((token, at) => (found.nats[at] === null ? t('notPredicted')
      : `${visible(token)}: ${short(found.nats[at])} ${t('nats')}; ${found.alternatives[at].map((one) => `${visible(one.token)} ${one.probability.toFixed(2)}`).join(', ')}`));
    const drawing = { tokens: found.tokens, values: found.nats, low, high, notes };
    return html`<${Figure} title=${t('surprisalTitle')} note=${t(found.context === 'left' ? 'contextLeft' : 'contextBoth')} data=${found} draw=${() => drawTokens({ ...drawing, label: t('nats') })}
      tools=${html`<${Legend} low=${low} high=${high} scale="sequential" label=${t('nats')} />`}><${TokenText} ...${drawing} label=${t('surprisalTitle')} /><//>`;
  }}<//>`;
}

export function Look({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [text, setText] = useParam('text', model.example ?? '');
  const [chosen, setShow] = useParam('show', '');
  const able = Object.keys(SHOWN).filter((one) => model.probes.includes(SHOWN[one]));
  const show = able.includes(chosen) ? chosen : able[0];
  const body = {
    gates: () => html`<${Gates} key=${model.name} model=${model} text=${text} />`,
    surprisal: () => html`<${Surprise} key=${model.name} model=${model} text=${text} />`,
    connectivity: () => html`<${InfluenceFigure} key=${`connectivity ${model.name}`} model=${model} text=${text} kind="connectivity" />`,
    gradient: () => html`<${InfluenceFigure} key=${`gradient ${model.name}`} model=${model} text=${text} kind="gradient" />`,
    posterior: () => html`<${Posterior} key=${model.name} model=${model} text=${text} />`,
  };
  return html`
    <div class="bench">
      <div class="panel">
        <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${setModel} />
        <${TextBox} label=${t('text')} value=${text} onChange=${setText} rows=${5} />
        <${Select} label=${t('show')} value=${show} onChange=${setShow} options=${able.map((one) => [one, t(`show-${one}`)])} />
        <p class="hint">${show ? t(`show-${show}-note`) : t('noProbes')}</p>
      </div>
      <div class="results">${!show ? html`<${Empty} title=${t('noProbes')} />` : text.trim() ? body[show]() : html`<${Empty} title=${t('labelEmpty')}>${t('labelHint')}<//>`}</div>
    </div>`;
}
