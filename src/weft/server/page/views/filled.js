// Blanks of a text: the most probable fills, and which words speak for the one that is chosen.
import { html, useState } from '../vendor/htm-preact-standalone.module.js';
import { look, predict, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { visible } from '../numbers.js';
import { DrawnBars } from '../components/bars.js';
import { EvidenceFigure } from '../components/evidence.js';
import { Figure } from '../components/figure.js';
import { Empty, Result } from '../components/status.js';

const ANSWERS = 10;

function squashed(text) {
  return text.replace(/\s+/g, '').toLowerCase();
}

/** The position of the first fill among the tokens of the filled text. */
function positionOf(tokens, fill, before) {
  const start = squashed(before);
  return tokens.findIndex((token, at) => token === fill && squashed(tokens.slice(0, at).join('')) === start);
}

function FillEvidence({ model, answer, text }) {
  const request = useRequest((signal) => look(model.name, 'surprisal', answer.text, {}, signal).then(([found]) => found), [model.name, answer.text]);
  return html`<${Result} request=${request}>${(found) => {
    const at = positionOf(found.tokens, answer.fills[0], text.slice(0, text.search(/_+/)));
    return at < 0 ? null : html`<${EvidenceFigure} model=${model.name} text=${answer.text} position=${at} mark=${at} />`;
  }}<//>`;
}

function name(fills) {
  return fills.map((fill) => (Array.isArray(fill) ? fill.join('') : visible(fill))).join(' … ');
}

export function Filled({ model, text }) {
  const t = useWords();
  const [selected, select] = useState({ text: '', at: 0 }); // of a text: another one begins with its best answer
  const request = useRequest((signal) => predict(model.name, 'fill', text, { n_best: ANSWERS }, signal), [model.name, text]);
  return html`<${Result} request=${request}>${(found) => {
    if (!found.answers.length) return html`<${Empty} title=${t('nothingFound')} />`;
    const at = selected.text === found.text ? Math.min(selected.at, found.answers.length - 1) : 0;
    const answer = found.answers[at];
    const items = found.answers.map((one) => ({ name: name(one.fills), value: one.probability }));
    return html`<div class="stack">
      <p class="sentence">${answer.text}</p>
      <${Figure} title=${t('fillsTitle')} note=${t('fillsNote')} data=${found}>
        <${DrawnBars} items=${items} best=${items[at].name} title=${t('fillsTitle')} onPick=${(place) => select({ text: found.text, at: place })} /><//>
      ${found.unknown?.length ? html`<p class="hint">${t('unknown', { words: found.unknown.join(', ') })}</p>` : null}
      ${model.probes.includes('evidence') ? html`<${FillEvidence} model=${model} answer=${answer} text=${found.text} />` : null}
    </div>`;
  }}<//>`;
}
