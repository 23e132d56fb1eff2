// Words with their tags: spans, the confidence of each, all probabilities of a word, and the evidence for its tag.
import { html, useState } from '../vendor/htm-preact-standalone.module.js';
import { look, predict, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { percent } from '../numbers.js';
import { DrawnBars } from '../components/bars.js';
import { Drawn } from '../components/drawing.js';
import { EvidenceFigure } from '../components/evidence.js';
import { Figure } from '../components/figure.js';
import { Legend } from '../components/legend.js';
import { Result } from '../components/status.js';
import { TokenText } from '../components/token-text.js';

const OUTSIDE = 'O';
const MOST = 12; // tags of one word that are drawn

function kindOf(tag) {
  return tag.replace(/^[BIESLU]-/, '');
}

/** The colour of each kind of tag, in the order of the model's tags; none for words outside of spans. */
function hues(labels) {
  const kinds = [...new Set(labels.map(kindOf))].filter((kind) => kind !== OUTSIDE);
  return (tag) => (tag === OUTSIDE ? null : kinds.indexOf(kindOf(tag)) % 7);
}

function Marginals({ model, text, at, words }) {
  const t = useWords();
  const request = useRequest((signal) => look(model.name, 'posterior', text, {}, signal).then(([found]) => found), [model.name, text]);
  return html`<${Result} request=${request}>${(found) => {
    const columns = found.states.map((_, k) => found.marginals.map((row) => row[k]));
    const shown = columns.map((values, k) => ({ values, name: found.states[k], most: Math.max(...values) })).filter((one) => one.most > 0.005);
    const row = at !== null && found.tokens.length === words.length ? found.marginals[at] : null;
    const items = row ? row.map((value, k) => ({ name: found.states[k], value })).sort((a, b) => b.value - a.value).slice(0, MOST).filter((one) => one.value > 0.0005) : [];
    return html`<div class="stack">
      ${row ? html`<${Figure} title=${t('tagsOfWord', { word: words[at] })} data=${items}><${DrawnBars} items=${items} best=${items[0].name} title=${t('tagsOfWord', { word: words[at] })} /><//>` : null}
      <${Figure} title=${t('marginalsTitle')} note=${t('marginalsNote')} data=${found}>
        <${Drawn} figure=${{ kind: 'HeatMap', values: shown.map((one) => one.values), rows: shown.map((one) => one.name), columns: found.tokens, limits: [0, 1], label: t('probability') }} title=${t('marginalsTitle')} /><//>
    </div>`;
  }}<//>`;
}

export function Tagged({ model, text }) {
  const t = useWords();
  const [selected, select] = useState(null);
  const request = useRequest((signal) => predict(model.name, 'tag', text, {}, signal), [model.name, text]);
  const hue = hues(model.labels ?? []);
  return html`<div class="stack">
    <${Result} request=${request}>${(found) => {
      const at = selected !== null && selected < found.words.length ? selected : null;
      return html`<div class="stack">
        <${Figure} title=${t('tagsTitle')} note=${t('tagsNote', { p: percent(found.probability) })} data=${found}
          figure=${{ kind: 'ColouredText', tokens: found.words.map((word, place) => `${word}/${found.tags[place]}`), values: found.confidence, label: t('probability') }}>
          <div class="words" role="group" aria-label=${t('tagsTitle')}>${found.words.map((word, place) => html`
            <button key=${place} class=${`word ${found.tags[place] === OUTSIDE ? '' : `hue${hue(found.tags[place])}`}`} aria-pressed=${String(place === at)}
              onClick=${() => select(place === at ? null : place)}>${word}<small>${found.tags[place] === OUTSIDE ? '·' : found.tags[place]} ${percent(found.confidence[place])}</small></button>`)}</div>
          ${found.spans?.length ? html`<div class="figure-foot"><div class="table-scroll"><table class="table"><thead><tr><th>${t('span')}</th><th>${t('label')}</th></tr></thead>
            <tbody>${found.spans.map((span) => html`<tr><td>${Array.isArray(span.words) ? span.words.join(' ') : span.words}</td><td><span class=${`hue${hue(span.label)}`}><i class="swatch"></i>${span.label}</span></td></tr>`)}</tbody></table></div></div>` : null}
          <p class="hint">${t('tagHint')}</p>
        <//>
        ${at !== null && model.probes.includes('evidence') ? html`<${EvidenceFigure} model=${model.name} text=${found.text} position=${at} mark=${at} what=${`${found.words[at]}: ${found.tags[at]}`} />` : null}
        ${model.probes.includes('posterior') ? html`<${Marginals} model=${model} text=${found.text} at=${at} words=${found.words} />` : null}
      </div>`;
    }}<//>
  </div>`;
}

export function Segmented({ model, text }) {
  const t = useWords();
  const request = useRequest((signal) => predict(model.name, 'segment', text, {}, signal), [model.name, text]);
  return html`<${Result} request=${request}>${(found) => {
    const notes = found.words.map((word, at) => `${word}: ${percent(found.confidence[at])}`);
    const drawing = { tokens: found.words, values: found.confidence, low: 0, high: 1, notes };
    return html`<${Figure} title=${t('segmentsTitle')} note=${t('tagsNote', { p: percent(found.probability) })} data=${found} figure=${{ kind: 'ColouredText', tokens: found.words, values: found.confidence, label: t('probability') }}
      tools=${html`<${Legend} low=${0} high=${1} scale="sequential" label=${t('probability')} />`}>
      <${TokenText} ...${drawing} label=${t('segmentsTitle')} /><//>`;
  }}<//>`;
}
