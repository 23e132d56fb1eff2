// The hidden states of an HMM, or the tags of a CRF: their probabilities at each token, and their transitions.
import { html, useMemo } from '../vendor/htm-preact-standalone.module.js';
import { look, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { short, visible } from '../numbers.js';
import { valueRange } from '../palette.js';
import { Figure } from '../components/figure.js';
import { HeatMap, cellText } from '../components/heat-map.js';
import { Result } from '../components/status.js';

function Transitions({ found }) {
  const t = useWords();
  const scale = found.kind === 'hmm' ? 'sequential' : 'diverging';
  const [low, high] = useMemo(() => (found.kind === 'hmm' ? [0, 1] : valueRange(found.transition.flat(), 'diverging')), [found]);
  return html`<${Figure} title=${t('transitionsTitle')} note=${t('transitionsNote')} data=${{ states: found.states, transition: found.transition }}>
    <${HeatMap} values=${found.transition} rows=${found.states} columns=${found.states} low=${low} high=${high} scale=${scale} title=${t('transitionsTitle')} rowHeight=${20}
      describe=${(r, c, value) => cellText([`${found.states[r]} → ${found.states[c]}`], value)} /><//>`;
}

export function Posterior({ model, text }) {
  const t = useWords();
  const request = useRequest((signal) => look(model.name, 'posterior', text, {}, signal).then(([found]) => found), [model.name, text]);
  return html`<${Result} request=${request}>${(found) => html`<div class="stack">
    <${Figure} title=${t('marginalsTitle')} note=${t('logLikelihood', { value: short(found.log_likelihood) })} data=${found}>
      <${HeatMap} values=${found.states.map((_, k) => found.marginals.map((row) => row[k]))} rows=${found.states} columns=${found.tokens} low=${0} high=${1} title=${t('marginalsTitle')} rowHeight=${20}
        describe=${(r, c, value) => cellText([found.tokens[c], found.states[r]], value)} /><//>
    <${Transitions} found=${found} />
    ${found.emissions.length ? html`<section><h2>${t('emissionsTitle')}</h2><ul class="list states">${found.emissions.map((row, k) => html`<li><strong>${found.states[k]}</strong>
      <span>${row.map(([token, p]) => `${visible(token)} ${p.toFixed(2)}`).join(' · ')}</span></li>`)}</ul></section>` : null}
  </div>`}<//>`;
}
