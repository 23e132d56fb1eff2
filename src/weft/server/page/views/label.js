// Tag, classify, fill: what a model says about a text, how sure it is, and which words speak for it.
import { html, useState } from '../vendor/htm-preact-standalone.module.js';
import { look, predict, useRequest } from '../api.js';
import { named, useWords } from '../language.js';
import { useParam } from '../location.js';
import { percent, visible } from '../numbers.js';
import { Bench, Choice, ModelPicker, TextBox, parsed, useModel } from '../components/controls.js';
import { Drawn, Figure, Shown, TextFigure } from '../components/figure.js';
import { sharesFigure } from '../components/record.js';
import { Empty, Result } from '../components/status.js';

const BLANK = '___';
const ANSWERS = 10; // fills that are shown
const OUTSIDE = 'O'; // the tag of words outside of spans
const LEAST = 0.005; // tags that are nowhere more probable are left out

const size = (values) => values.reduce((sum, value) => sum + Math.abs(value), 0);

/** The methods in the order of the figures: what carries more, the n-grams or the network, comes first. */
function methodsOf({ ngrams, integrated, pooling }) {
  const methods = ['occlusion', 'integrated', ...(pooling ? ['pooling'] : [])];
  if (ngrams) methods.splice(size(ngrams) > size(integrated) ? 0 : 2, 0, 'ngrams');
  return methods;
}

/** Which tokens speak for a prediction (orange) and which against it (blue), by a method of choice. mark: the token that is predicted. */
function Evidence({ model, text, position = -1, mark = null, what = null }) {
  const t = useWords();
  const [chosen, setMethod] = useParam('evidence', '');
  return html`<${Shown} model=${model.name} probe="evidence" text=${text} options=${{ position }}>${({ figures, data }) => {
    const methods = methodsOf(data);
    const method = methods.includes(chosen) ? chosen : methods[0];
    const { tokens, values, label, scale, range } = figures[methods.indexOf(method)];
    const tools = html`<${Choice} quiet label=${t('method')} value=${method} onChange=${setMethod} options=${methods.map((one) => [one, t(`evidence-${one}`)])} />`;
    return html`<${TextFigure} ...${{ tokens, values, label, scale, range, data, tools }} title=${t('evidenceTitle', { what: what ?? visible(data.prediction), p: percent(data.probability) })}
      note=${t(`evidence-${method}-note`, { against: visible(data.against) || '–' })} classes=${tokens.map((_, at) => (at === mark ? 'pointed' : ''))} />`;
  }}<//>`;
}

function Unknown({ words }) {
  const t = useWords();
  return words?.length ? html`<p class="hint">${t('unknown', { words: words.join(', ') })}</p>` : null;
}

function Classified({ model, text, value }) {
  const t = useWords();
  const request = useRequest((signal) => predict(model.name, 'classify', value, {}, signal), [model.name, text]);
  return html`<div class="stack">
    <${Result} request=${request}>${(found) => {
      const [figure, all] = [sharesFigure(found.probabilities, found.label), Object.keys(found.probabilities).length];
      const note = all > figure.names.length ? t('firstOf', { n: figure.names.length, all }) : '';
      return html`<div class="stack"><p class="sentence">${found.label}</p>
        <${Figure} title=${t('labelsTitle')} note=${note} data=${found}><${Drawn} figure=${figure} title=${t('labelsTitle')} /><//></div>`;
    }}<//>
    ${model.probes.includes('evidence') ? html`<${Evidence} model=${model} text=${text} />` : null}
  </div>`;
}

const squashed = (text) => text.replace(/\s+/g, '').toLowerCase();

/** The position of the first fill among the tokens of the filled text. */
function positionOf(tokens, fill, before) {
  const start = squashed(before);
  return tokens.findIndex((token, at) => token === fill && squashed(tokens.slice(0, at).join('')) === start);
}

function FillEvidence({ model, answer, text }) {
  const request = useRequest((signal) => look(model.name, 'surprisal', answer.text, {}, signal).then(([found]) => found), [model.name, answer.text]);
  return html`<${Result} request=${request}>${(found) => {
    const at = positionOf(found.steps, answer.fills[0], text.slice(0, text.search(/_+/)));
    return at < 0 ? null : html`<${Evidence} model=${model} text=${answer.text} position=${at} mark=${at} />`;
  }}<//>`;
}

/** The most probable fills of blanks, and which words speak for the one that is chosen. */
function Filled({ model, text }) {
  const t = useWords();
  const [selected, select] = useState({ text: '', at: 0 }); // of a text: another one begins with its best answer
  const request = useRequest((signal) => predict(model.name, 'fill', text, { n_best: ANSWERS }, signal), [model.name, text]);
  return html`<${Result} request=${request}>${(found) => {
    if (!found.answers.length) return html`<${Empty} title=${t('nothingFound')} />`;
    const at = selected.text === found.text ? Math.min(selected.at, found.answers.length - 1) : 0;
    const names = found.answers.map((one) => one.fills.map((fill) => (Array.isArray(fill) ? fill.join('') : visible(fill))).join(' … '));
    return html`<div class="stack">
      <p class="sentence">${found.answers[at].text}</p>
      <${Figure} title=${t('fillsTitle')} note=${t('fillsNote')} data=${found}>
        <${Drawn} figure=${{ kind: 'Bars', names, values: found.answers.map((one) => one.probability), best: at }} title=${t('fillsTitle')} onPick=${(place) => select({ text: found.text, at: place })} /><//>
      <${Unknown} words=${found.unknown} />
      ${model.probes.includes('evidence') ? html`<${FillEvidence} model=${model} answer=${found.answers[at]} text=${found.text} />` : null}
    </div>`;
  }}<//>`;
}

/** The colour of each kind of tag, in the order of the model's tags; none for words outside of spans. */
function hues(labels) {
  const kindOf = (tag) => tag.replace(/^[BIESLU]-/, '');
  const kinds = [...new Set(labels.map(kindOf))].filter((kind) => kind !== OUTSIDE);
  return (tag) => (tag === OUTSIDE ? '' : `hue${kinds.indexOf(kindOf(tag)) % 7}`);
}

/** The probability of every tag at every word; all tags of the word that is chosen. */
function Marginals({ model, text, at, words }) {
  const t = useWords();
  const request = useRequest((signal) => look(model.name, 'posterior', text, {}, signal).then(([found]) => found), [model.name, text]);
  return html`<${Result} request=${request}>${({ states, marginals, steps, ...rest }) => {
    const columns = states.map((name, k) => ({ name, values: marginals.map((row) => row[k]) })).filter(({ values }) => Math.max(...values) > LEAST);
    const row = at !== null && steps.length === words.length ? marginals[at] : null;
    const title = t('tagsOfWord', { word: words[at] });
    const shares = row && Object.fromEntries(states.map((name, k) => [name, row[k]]).filter(([, value]) => value > LEAST / 10));
    return html`<div class="stack">
      ${row ? html`<${Figure} title=${title} data=${shares}><${Drawn} figure=${sharesFigure(shares)} title=${title} /><//>` : null}
      <${Figure} title=${t('marginalsTitle')} note=${t('marginalsNote')} data=${{ states, marginals, steps, ...rest }}>
        <${Drawn} figure=${{ kind: 'HeatMap', values: columns.map((one) => one.values), rows: columns.map((one) => one.name), columns: steps, limits: [0, 1], label: t('probability') }} title=${t('marginalsTitle')} /><//>
    </div>`;
  }}<//>`;
}

function Tagged({ model, text, value }) {
  const t = useWords();
  const [selected, select] = useState(null);
  const request = useRequest((signal) => predict(model.name, 'tag', value, {}, signal), [model.name, text]);
  const hue = hues(model.labels ?? []);
  return html`<${Result} request=${request}>${(found) => {
    const { words, tags, confidence, spans = [] } = found;
    const at = selected !== null && selected < words.length ? selected : null;
    const read = value === text ? found.text : text; // a text as its words are, or a series as JSON
    return html`<div class="stack">
      <${Figure} title=${t('tagsTitle')} note=${t('tagsNote', { p: percent(found.probability) })} data=${found}
        figure=${{ kind: 'ColouredText', tokens: words.map((word, place) => `${word}/${tags[place]}`), values: confidence, label: t('probability') }}>
        <div class="words" role="group" aria-label=${t('tagsTitle')}>${words.map((word, place) => html`
          <button key=${place} class=${`word ${hue(tags[place])}`} aria-pressed=${String(place === at)}
            onClick=${() => select(place === at ? null : place)}>${word}<small>${tags[place] === OUTSIDE ? '·' : tags[place]} ${percent(confidence[place])}</small></button>`)}</div>
        ${spans?.length ? html`<div class="figure-foot"><div class="table-scroll"><table class="table"><thead><tr><th>${t('span')}</th><th>${t('label')}</th></tr></thead>
          <tbody>${spans.map((span) => html`<tr><td>${[span.words].flat().join(' ')}</td><td><span class=${hue(span.label)}><i class="swatch"></i>${span.label}</span></td></tr>`)}</tbody></table></div></div>` : null}
        <p class="hint">${t('tagHint')}</p>
      <//>
      ${at !== null && model.probes.includes('evidence') ? html`<${Evidence} model=${model} text=${read} position=${at} mark=${at} what=${`${words[at]}: ${tags[at]}`} />` : null}
      ${model.probes.includes('posterior') ? html`<${Marginals} model=${model} text=${read} at=${at} words=${words} />` : null}
    </div>`;
  }}<//>`;
}

function Segmented({ model, text }) {
  const t = useWords();
  const request = useRequest((signal) => predict(model.name, 'segment', text, {}, signal), [model.name, text]);
  return html`<${Result} request=${request}>${(found) => html`<${TextFigure} title=${t('segmentsTitle')} note=${t('tagsNote', { p: percent(found.probability) })} data=${found}
    tokens=${found.words} values=${found.confidence} range=${[0, 1]} label=${t('probability')} notes=${found.words.map((word, at) => `${word}: ${percent(found.confidence[at])}`)} />`}<//>`;
}

const KINDS = { tag: Tagged, segment: Segmented, classify: Classified, fill: Filled };

/** A text with a blank in place of its middle word. */
function withBlank(text) {
  const words = text.split(' ');
  return text.includes('_') ? text : words.map((word, at) => (at === Math.floor(words.length / 2) ? BLANK : word)).join(' ');
}

export function Label({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [chosen, setKind] = useParam('as', '');
  const kinds = Object.keys(KINDS).filter((kind) => model.views.includes(kind) || model.capabilities.includes(kind));
  const kind = kinds.includes(chosen) ? chosen : kinds[0];
  const example = model.example ?? '';
  const [text, setText] = useParam('text', kind === 'fill' && example ? withBlank(example) : example);
  const Kind = KINDS[kind];
  const blank = kind === 'fill' && !text.includes('_');
  const ofText = (model.operations[kind]?.input.type ?? 'string') === 'string';
  const value = ofText ? text : parsed(text);
  return html`<${Bench} panel=${html`
    <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${setModel} />
    ${kinds.length > 1 ? html`<${Choice} label=${t('use')} value=${kind} onChange=${setKind} options=${kinds.map((one) => [one, named(t, 'task', one)])} />` : null}
    <${TextBox} label=${t(ofText ? 'text' : 'jsonInput')} value=${text} onChange=${setText} rows=${5} />
    ${kind === 'fill' ? html`<button class="button small" onClick=${() => setText(`${text.trimEnd()} ${BLANK}`.trimStart())}>${t('addBlank')}</button>
      <p class="hint">${t('blankHint')}</p>` : null}`}>
    ${value === undefined ? html`<${Empty} title=${t('noJson')} />`
      : text.trim() && !blank ? html`<${Kind} key=${`${model.name} ${kind}`} model=${model} text=${text} value=${value} />`
      : html`<${Empty} title=${blank ? t('noBlank') : t('labelEmpty')}>${blank ? t('blankHint') : t('labelHint')}<//>`}
  <//>`;
}
