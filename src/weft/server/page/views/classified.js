// The label of a text: probabilities of all labels, and the evidence.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { predict, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { DrawnBars } from '../components/bars.js';
import { EvidenceFigure } from '../components/evidence.js';
import { Figure } from '../components/figure.js';
import { Result } from '../components/status.js';

const MOST = 20; // labels that are drawn

export function Classified({ model, text }) {
  const t = useWords();
  const request = useRequest((signal) => predict(model.name, 'classify', text, {}, signal), [model.name, text]);
  return html`<div class="stack">
    <${Result} request=${request}>${(found) => {
      const items = Object.entries(found.probabilities).map(([name, value]) => ({ name, value })).sort((a, b) => b.value - a.value);
      return html`<div class="stack"><p class="sentence">${found.label}</p>
        <${Figure} title=${t('labelsTitle')} note=${items.length > MOST ? t('firstOf', { n: MOST, all: items.length }) : ''} data=${found}>
          <${DrawnBars} items=${items.slice(0, MOST)} best=${found.label} title=${t('labelsTitle')} /><//></div>`;
    }}<//>
    ${model.probes.includes('evidence') ? html`<${EvidenceFigure} model=${model.name} text=${text} />` : null}
  </div>`;
}
