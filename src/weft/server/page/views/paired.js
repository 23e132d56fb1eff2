// Do two runs differ on their held-out data? A paired bootstrap test of each metric, as intervals around 0.
import { html, useRef } from '../vendor/htm-preact-standalone.module.js';
import { post, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { shorten, textWidth, ticks, useWidth } from '../measure.js';
import { count, short } from '../numbers.js';
import { Figure } from '../components/figure.js';
import { Result } from '../components/status.js';

const [ROW, SIDE, SMALL] = [96, 22, 11];
const SIGNIFICANT = 0.05;
const FEW = 20; // examples: fewer say nothing, whatever the resamples give
const LEAST_P = 1e-4; // one of the 10,000 resamples

function signed(value) {
  return value === null ? '–' : `${value < 0 ? '−' : '+'}${short(Math.abs(value))}`;
}

function significant(test) {
  return test.examples >= FEW && test.p_value < SIGNIFICANT && test.better !== 'neither';
}

/** The words of a test: its difference, its interval, its p-value, who is better. */
function said(test, t) {
  const sure = test.examples < FEW ? t('tooFew') : significant(test) ? t('isBetter', { run: test[test.better] }) : t('notSignificant');
  const p = test.p_value < LEAST_P ? `p < ${LEAST_P}` : `p = ${test.p_value.toFixed(4)}`;
  return [`${signed(test.difference)} [${signed(test.low)}, ${signed(test.high)}] · ${p}`, sure];
}

/** Every metric has a scale of its own, with 0 in the middle. */
function Intervals({ tests, title }) {
  const t = useWords();
  const box = useRef(null);
  const width = Math.min(640, useWidth(box));
  const name = (test) => test.metric.replace(/_/g, ' ');
  const row = (test, at) => {
    const end = 1.15 * Math.max(Math.abs(test.low), Math.abs(test.high), Math.abs(test.difference), 1e-9);
    const x = (value) => SIDE + (value + end) / (2 * end) * (width - 2 * SIDE);
    const [top, y] = [at * ROW, at * ROW + 54];
    const [figures, sure] = said(test, t);
    const hue = significant(test) ? 1 : 0;
    return html`<g>
      <text x="0" y=${top + 15} class="ink" font-size="13" font-weight="600">${name(test)}: ${shorten(sure, width - textWidth(name(test), 13, 600) - 20)}</text>
      <text x="0" y=${top + 33} class="faint" font-size="12">${figures}</text>
      <line x1=${SIDE} x2=${width - SIDE} y1=${y} y2=${y} class="grid" />
      ${ticks(-end, end, 4).map((tick) => html`<text x=${x(tick)} y=${y + 21} class="faint" font-size=${SMALL} text-anchor="middle">${tick ? signed(tick) : '0'}</text>`)}
      <line x1=${x(0)} x2=${x(0)} y1=${y - 9} y2=${y + 9} class="axis" />
      <line x1=${x(test.low)} x2=${x(test.high)} y1=${y} y2=${y} class=${`line${hue}`} stroke-width="6" stroke-linecap="round" stroke-opacity="0.45" />
      <circle cx=${x(test.difference)} cy=${y} r="5" class=${`dot${hue}`} />
    </g>`;
  };
  const label = `${title}. ${tests.map((test) => `${name(test)}: ${said(test, t).join(', ')}`).join('. ')}`;
  return html`<div class="chart" ref=${box}><svg class="drawing" width=${width} height=${tests.length * ROW - 8} role="img" aria-label=${label}>${tests.map(row)}</svg></div>`;
}

/** It takes a while, so it starts when it is asked for. */
export function PairedTests({ pair }) {
  const t = useWords();
  const [wanted, want] = useParam('test', false);
  const [first, second] = pair.map((model) => model.name);
  const request = useRequest(wanted ? (signal) => post('weft/compare', { first, second }, signal) : null, [wanted, first, second]);
  if (!wanted) return html`<div class="buttons"><button class="button" onClick=${() => want(true)}>${t('testRun')}</button><p class="hint">${t('testHint')}</p></div>`;
  return html`<${Result} request=${request}>${(found) => (found.tests.length ? html`
    <${Figure} title=${t('testTitle')} note=${t('testNote', { n: count(found.tests[0].examples), first, second })} data=${found}>
      <${Intervals} tests=${found.tests} title=${t('testTitle')} /><//>` : html`<p class="hint">${t('noTest', { reason: found.reason })}</p>`)}<//>`;
}
