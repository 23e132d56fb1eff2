// Which tokens speak for a prediction (orange) and which against it (blue), in log-odds against the best other class.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { look, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { percent, short, visible } from '../numbers.js';
import { valueRange } from '../palette.js';
import { Choice } from './controls.js';
import { Figure } from './figure.js';
import { Legend } from './legend.js';
import { Result } from './status.js';
import { TokenText } from './token-text.js';

const LEAST = 1; // the log-odds at the ends of the scale at least, as in weft.probes.evidence

const size = (values) => values.reduce((sum, value) => sum + Math.abs(value), 0);

// What carries more comes first: the n-grams or the network.
function methodsOf({ ngrams, integrated, pooling }) {
  const methods = ['occlusion', 'integrated', ...(pooling ? ['pooling'] : [])];
  if (ngrams) methods.splice(size(ngrams) > size(integrated) ? 0 : 2, 0, 'ngrams');
  return methods;
}

export function EvidenceFigure({ model, text, position = -1, mark = null, what = null }) {
  const t = useWords();
  const [chosen, setMethod] = useParam('evidence', '');
  const request = useRequest((signal) => look(model, 'evidence', text, { position }, signal).then(([found]) => found), [model, text, position]);
  return html`<${Result} request=${request}>${(found) => {
    const methods = methodsOf(found);
    const method = methods.includes(chosen) ? chosen : methods[0];
    const scale = method === 'pooling' ? 'sequential' : 'diverging';
    const values = found[method];
    const [low, high] = valueRange(values, scale, LEAST);
    const notes = found.tokens.map((token, at) => `${visible(token)}: ${short(values[at])}`);
    const title = t('evidenceTitle', { what: what ?? visible(found.prediction), p: percent(found.probability) });
    const limits = scale === 'diverging' ? { limits: [low, high] } : {};
    const label = t(method === 'pooling' ? 'weight' : 'logOdds');
    const tools = html`<${Choice} quiet label=${t('method')} value=${method} onChange=${setMethod} options=${methods.map((one) => [one, t(`evidence-${one}`)])} />`;
    return html`<${Figure} title=${title} note=${t(`evidence-${method}-note`, { against: visible(found.against) || '–' })} data=${found} tools=${tools} figure=${{ kind: 'ColouredText', tokens: found.tokens, values, label, scale, ...limits }}>
      <${TokenText} tokens=${found.tokens} ...${{ values, low, high, scale, notes }} label=${title} classes=${found.tokens.map((_, at) => (at === mark ? 'pointed' : ''))} />
      <div class="figure-foot"><${Legend} low=${low} high=${high} scale=${scale} label=${label} /></div>
    <//>`;
  }}<//>`;
}
