// Compare: two runs on the same text, the settings in which they differ, their scores, and a paired test of these.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { look, post, predict, useRequest } from '../api.js';
import { metricName, named, useWords } from '../language.js';
import { useParam } from '../location.js';
import { count, percent, short, visible } from '../numbers.js';
import { valueRange } from '../palette.js';
import { Bench, Choice, ModelPicker, TextBox, useModel } from '../components/controls.js';
import { Drawn, Figure, TextFigure } from '../components/figure.js';
import { Value, called } from '../components/record.js';
import { Empty, Result } from '../components/status.js';

const SIGNIFICANT = 0.05;
const FEW = 20; // examples: fewer say nothing, whatever the resamples give
const LEAST_P = 1e-4; // one of the 10,000 resamples

function mean(values) {
  const finite = values.filter((value) => value !== null);
  return finite.length ? finite.reduce((a, b) => a + b, 0) / finite.length : null;
}

/** Surprisal of both, and where they differ if they read the same tokens. */
function Surprisals({ pair, text }) {
  const t = useWords();
  const names = pair.map((model) => model.name);
  const request = useRequest((signal) => Promise.all(names.map((name) => look(name, 'surprisal', text, {}, signal).then(([found]) => found))), [...names, text]);
  return html`<${Result} request=${request}>${([first, second]) => {
    const range = valueRange([...first.nats, ...second.nats], 'sequential');
    const same = JSON.stringify(first.steps) === JSON.stringify(second.steps);
    const difference = same ? first.nats.map((value, at) => (value === null || second.nats[at] === null ? null : value - second.nats[at])) : [];
    const notes = difference.map((_, at) => `${visible(first.steps[at])}: ${short(first.nats[at])} − ${short(second.nats[at])}`);
    return html`<div class="stack">
      <div class="columns">${[first, second].map((one, n) => html`<${TextFigure} title=${t('surprisalOf', { run: names[n] })} note=${t('meanNats', { nats: short(mean(one.nats)) })}
        data=${one} tokens=${one.steps} values=${one.nats} range=${range} label=${t('nats')} />`)}</div>
      ${same ? html`<${TextFigure} title=${t('differenceTitle')} note=${t('differenceNote', { first: names[0], second: names[1] })} data=${{ runs: names, steps: first.steps, difference }}
        tokens=${first.steps} values=${difference} scale="diverging" label=${t('nats')} notes=${notes} />` : html`<p class="hint">${t('otherTokens')}</p>`}
    </div>`;
  }}<//>`;
}

// What a record says in a line, and how sure it is.
const SAID = {
  classify: (found) => [found.label, percent(found.probabilities[found.label])],
  translate: ({ translations: [best] }) => [best?.text ?? '', `log P ${short(best?.log_prob)}`],
  fill: ({ answers: [best] }) => [best?.text ?? '', percent(best?.probability ?? 0)],
  segment: (found) => [found.words.join(' · '), percent(found.probability)],
  tag: (found) => [found.words.map((word, at) => `${word}/${found.tags[at]}`).join(' '), percent(found.probability)],
  generate: (found) => [found.prompt !== undefined && found.text.startsWith(found.prompt) ? found.text : `${found.prompt ?? ''}${found.text}`, ''],
};

function Answers({ pair, text, operation }) {
  const t = useWords();
  const request = useRequest((signal) => Promise.all(pair.map((model) => predict(model.name, operation, text, {}, signal))), [...pair.map((model) => model.name), text, operation]);
  return html`<${Result} request=${request}>${(found) => html`<div class="columns">${found.map((record, n) => {
    const [answer, sure] = SAID[operation]?.(record) ?? [];
    return html`<section><h2>${pair[n].name}</h2>${answer === undefined ? html`<${Value} value=${record} title=${called(operation)} />` : html`<p class="sentence">${answer}</p><p class="hint">${sure}</p>`}</section>`;
  })}</div>
    <p class="hint">${JSON.stringify(SAID[operation]?.(found[0])[0] ?? found[0]) === JSON.stringify(SAID[operation]?.(found[1])[0] ?? found[1]) ? t('sameAnswer') : t('otherAnswer')}</p>`}<//>`;
}

function flat(settings, prefix = '') {
  return Object.entries(settings ?? {}).flatMap(([name, value]) => (value !== null && typeof value === 'object' && !Array.isArray(value)
    ? flat(value, `${prefix}${name}.`) : [[prefix + name, typeof value === 'string' ? value || '–' : JSON.stringify(value)]]));
}

/** Scores, and the settings that both runs have and that differ. */
function Settings({ pair }) {
  const t = useWords();
  const [first, second] = pair.map((model) => new Map(flat(model.settings)));
  const names = [...first.keys()].filter((name) => second.has(name) && first.get(name) !== second.get(name)).sort();
  const same = pair[0].metric === pair[1].metric;
  const best = ({ best: value, metric }) => (value === null ? '–' : same ? short(value) : `${short(value)} ${metricName(t, metric)}`);
  const rows = [
    [t('task'), ...pair.map((model) => named(t, 'task', model.task))],
    [t('weights'), ...pair.map((model) => count(model.weights))],
    [same ? t('bestOf', { metric: metricName(t, pair[0].metric) }) : t('best'), ...pair.map(best)],
    ...names.map((name) => [name, first.get(name), second.get(name)]),
  ];
  return html`<section><h2>${t('settingsTitle')}</h2><div class="table-scroll"><table class="table"><thead><tr><th scope="col">${t('setting')}</th>${pair.map((model) => html`<th scope="col">${model.name}</th>`)}</tr></thead>
    <tbody>${rows.map(([name, one, other]) => html`<tr><th scope="row">${name}</th><td>${one}</td><td>${other}</td></tr>`)}</tbody></table></div></section>`;
}

/** The interval of a test, with its numbers, and who is better in words. */
function interval(test, t) {
  const signed = (value) => (value === null ? '–' : `${value < 0 ? '−' : '+'}${short(Math.abs(value))}`);
  const marked = test.examples >= FEW && test.p_value < SIGNIFICANT && test.better !== 'neither';
  const sure = test.examples < FEW ? t('tooFew') : marked ? t('isBetter', { run: test[test.better] }) : t('notSignificant');
  const p = test.p_value < LEAST_P ? `p < ${LEAST_P}` : `p = ${test.p_value.toFixed(4)}`;
  const note = `${signed(test.difference)} [${signed(test.low)}, ${signed(test.high)}] · ${p}`;
  return { name: `${named(t, 'metric', test.metric)}: ${sure}`, value: test.difference, low: test.low, high: test.high, note, marked };
}

/** Do two runs differ on their held-out data? A paired bootstrap test of each metric. It takes a while, so it starts when it is asked for. */
function PairedTests({ pair }) {
  const t = useWords();
  const [wanted, want] = useParam('test', false);
  const [first, second] = pair.map((model) => model.name);
  const request = useRequest(wanted ? (signal) => post('weft/compare', { first, second }, signal) : null, [wanted, first, second]);
  if (!wanted) return html`<div class="buttons"><button class="button" onClick=${() => want(true)}>${t('testRun')}</button><p class="hint">${t('testHint')}</p></div>`;
  return html`<${Result} request=${request}>${(found) => {
    if (!found.tests.length) return html`<p class="hint">${t('noTest', { reason: found.reason })}</p>`;
    const intervals = found.tests.map((test) => interval(test, t));
    return html`<${Figure} title=${t('testTitle')} note=${t('testNote', { n: count(found.tests[0].examples), first, second })} data=${found}>
      <${Drawn} figure=${{ kind: 'Intervals', intervals }} title=${`${t('testTitle')}. ${intervals.map((one) => `${one.name}, ${one.note}`).join('. ')}`} /><//>`;
  }}<//>`;
}

/** The operations that both have, by name and by what they take; a model that writes answers everything, so that comes last. */
function common(first, second) {
  const same = (name) => JSON.stringify(first.operations[name].input) === JSON.stringify(second.operations[name]?.input);
  return Object.keys(first.operations).filter(same).sort((a, b) => (a === 'generate') - (b === 'generate'));
}

export function Compare({ models }) {
  const t = useWords();
  const partner = (one, more = () => true) => models.find((other) => other.name !== one.name && other.task === one.task && more(other));
  const [first, setFirst, missingFirst] = useModel(models, 'model', models.find((one) => partner(one)) ?? models[0]);
  const others = models.filter((one) => one.name !== first.name);
  const guess = partner(first, (other) => other.tokenizer === first.tokenizer) ?? partner(first) ?? others.find((one) => common(first, one).length) ?? others[0] ?? first;
  const [second, setSecond, missingSecond] = useModel(models, 'with', guess);
  const [text, setText] = useParam('text', first.example ?? '');
  const [chosen, setOperation] = useParam('operation', '');
  const pair = [first, second];
  const reads = pair.every((model) => model.probes.includes('surprisal'));
  const operations = common(first, second);
  const operation = operations.includes(chosen) ? chosen : operations[0];
  const ready = text.trim() !== '';
  return html`<${Bench} panel=${html`
      <${ModelPicker} label=${t('firstRun')} models=${models} value=${first.name} missing=${missingFirst} onChange=${setFirst} />
      <${ModelPicker} label=${t('secondRun')} models=${models} value=${second.name} missing=${missingSecond} onChange=${setSecond} />
      <${TextBox} label=${t('text')} value=${text} onChange=${setText} rows=${5} />
      ${operations.length > 1 ? html`<${Choice} label=${t('operation')} value=${operation} onChange=${setOperation} options=${operations.map((one) => [one, called(one)])} />` : null}`}>
      ${models.length < 2 ? html`<${Empty} title=${t('oneRun')}>${t('oneRunHint')} <code>weft serve runs/a runs/b</code><//>` : !ready ? html`<${Empty} title=${t('labelEmpty')}>${t('labelHint')}<//>` : null}
      ${ready && operation && !(operation === 'fill' && !text.includes('_')) ? html`<${Answers} key=${operation} pair=${pair} text=${text} operation=${operation} />` : null}
      ${ready && reads ? html`<${Surprisals} pair=${pair} text=${text} />` : null}
      ${ready && !reads && !operation ? html`<p class="hint">${t('nothingCommon')}</p>` : null}
      ${first.name !== second.name && first.task === second.task ? html`<${PairedTests} pair=${pair} />` : null}
      <${Settings} pair=${pair} />
    <//>`;
}
