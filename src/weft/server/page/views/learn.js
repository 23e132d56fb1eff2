// Learn: training curves of the runs below a folder, live while they train.
import { html, useEffect, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { get, useRequest } from '../api.js';
import { metricName, named, useWords } from '../language.js';
import { useParam } from '../location.js';
import { count, short } from '../numbers.js';
import { Check, Choice } from '../components/controls.js';
import { Drawn, Figure } from '../components/figure.js';
import { Empty, Failure, Progress } from '../components/status.js';

const EVERY = 2000; // ms between looks at runs that train
const MARK = '\u001f';
const FIRST = 3; // runs that are shown before any is chosen: the newest of one task
const OPTIMIZATION = ['grad_norm', 'learning_rate'];

const path = (name) => name.split('/').map(encodeURIComponent).join('/');

function age(date, t) {
  const minutes = Math.max(0, (Date.now() / 1000 - date) / 60);
  if (minutes < 1) return t('justNow');
  if (minutes < 60) return t('minutesAgo', { n: Math.round(minutes) });
  return minutes < 48 * 60 ? t('hoursAgo', { n: Math.round(minutes / 60) }) : t('daysAgo', { n: Math.round(minutes / 1440) });
}

function RunTable({ runs, selected, toggle }) {
  const t = useWords();
  return html`<div class="table-scroll"><table class="table runs"><thead><tr><th>${t('run')}</th><th>${t('state')}</th><th>${t('task')}</th><th>${t('data')}</th><th class="number">${t('step')}</th>
    <th class="number">${t('best')}</th><th class="number">${t('weights')}</th><th class="number">${t('changed')}</th></tr></thead>
    <tbody>${runs.map((run) => html`<tr key=${run.name}><td><label class="check"><input type="checkbox" checked=${selected.includes(run.name)} onChange=${() => toggle(run.name)} />
        <span>${selected.includes(run.name) ? html`<i class=${`swatch hue${selected.indexOf(run.name) % 7}`}></i>` : null}${run.name}</span></label></td>
      <td><span class=${`state ${run.state}`}>${t(`state-${run.state}`)}</span></td><td>${named(t, 'task', run.task)}</td><td>${run.data ?? '–'}</td><td class="number">${count(run.step)}</td>
      <td class="number">${run.best === null ? '–' : `${short(run.best)} ${metricName(t, run.metric)}`}</td><td class="number">${count(run.weights)}</td><td class="number">${age(run.date, t)}</td></tr>`)}</tbody></table></div>`;
}

// The curves of each picture, by its title. The loss in training (dashed) belongs beside the held-out one of the same name.
// Scores and losses of runs share an axis where they are of the same held-out data.
function pictures({ selected, runs, curves: byRun }, optimization, t) {
  const found = {};
  const names = [...new Set(selected.flatMap((name) => Object.keys(byRun[name])))];
  const dataOf = Object.fromEntries(runs.map((run) => [run.name, run.held_out ?? run.name]));
  const several = new Set(selected.map((name) => dataOf[name])).size > 1;
  selected.forEach((run, hue) => Object.entries(byRun[run]).forEach(([name, { steps, values, best, label }]) => {
    const base = name.replace(/^train_/, '');
    const loss = name !== base && names.includes(base);
    const key = loss ? base : name;
    if (OPTIMIZATION.includes(name) !== optimization) return;
    const { metric } = runs.find((one) => one.name === run);
    const curve = { name: loss ? t('inTraining', { run }) : run, x: steps, y: values, best, hue, dashed: loss, mark: t(base === metric ? 'bestPoint' : 'keptPoint') };
    const picture = found[`${key} ${several && !optimization ? dataOf[run] : ''}`] ??= { name: key, label: label === name ? '' : label, curves: [] };
    picture.curves.push(curve);
  }));
  return Object.values(found);
}

function RunCurves({ found, log }) {
  const t = useWords();
  const [which, setWhich] = useParam('curves', 'quality');
  if (!found.selected.length) return html`<${Empty} title=${t('chooseRuns')} />`;
  if (!Object.values(found.curves).some((curves) => Object.keys(curves).length)) return html`<${Empty} title=${t('noCurves')} />`;
  return html`<div class="stack"><div><${Choice} label=${t('curves')} value=${which} onChange=${setWhich} options=${[['quality', t('quality')], ['optimization', t('optimization')]]} />
    <p class="hint">${t(which === 'quality' ? 'qualityNote' : 'optimizationNote')}</p></div>
    <div class="charts">${pictures(found, which === 'optimization', t).map(({ name, label, curves }) => {
      const figure = { kind: 'Curves', curves, x_label: t('step'), y_label: label, log: log && curves.every((curve) => curve.y.every((value) => value === null || value > 0)) };
      return html`<${Figure} key=${`${name} ${curves[0].name}`} title=${named(t, 'metric', name)} data=${curves.map(({ name: run, x, y, best }) => ({ run, steps: x, values: y, best }))}>
        <${Drawn} figure=${figure} title=${named(t, 'metric', name)} /><//>`;
    })}</div></div>`;
}

/** The runs that the address names; without any, the newest of one task. */
function selection(runs, chosen) {
  const asked = chosen ? chosen.split(MARK).filter((name) => runs.some((run) => run.name === name)) : [];
  if (asked.length || chosen === MARK) return asked;
  return runs.filter((run) => run.task === runs[0]?.task && run.held_out === runs[0]?.held_out).slice(0, FIRST).map((run) => run.name);
}

/** All runs, those that train and the newest first, and the curves of the selected ones. */
async function fetchRuns(chosen, signal) {
  const found = await get('weft/runs', signal);
  const runs = found.runs.sort((a, b) => (b.state === 'training') - (a.state === 'training') || b.date - a.date);
  const selected = selection(runs, chosen);
  const none = (error) => { if (error.status === 404) return {}; throw error; }; // removed since it was listed
  const curves = await Promise.all(selected.map((name) => get(`weft/runs/${path(name)}/curves`, signal).catch(none)));
  return { runs, selected, curves: Object.fromEntries(selected.map((name, n) => [name, curves[n]])) };
}

export function Learn() {
  const t = useWords();
  const [chosen, setChosen] = useParam('runs', '');
  const [log, setLog] = useParam('log', false);
  const [tick, ask] = useState(0);
  const request = useRequest((signal) => fetchRuns(chosen, signal), [chosen, tick]);
  const last = useRef(null); // stays when the server does not answer for a while
  if (request.data) last.current = request.data;
  const found = last.current;
  const training = Boolean(found?.runs.some((run) => run.state === 'training'));
  // Asks again some time after each answer: often while something trains, not while the page is hidden.
  useEffect(() => {
    if (!request.data && !request.error) return undefined;
    let timer;
    const wait = () => {
      timer = setTimeout(() => (document.hidden ? wait() : ask((old) => old + 1)), training ? EVERY : 5 * EVERY);
    };
    wait();
    return () => clearTimeout(timer);
  }, [request.data, request.error]);
  const selected = found ? selection(found.runs, chosen) : [];
  const toggle = (name) => setChosen((selected.includes(name) ? selected.filter((one) => one !== name) : [...selected, name]).join(MARK) || MARK);
  return html`
    ${request.error ? html`<${Failure} error=${request.error} retry=${request.retry} />` : null}
    ${!found ? html`<${Progress} busy=${request.busy} />`
      : !found.runs.length ? html`<${Empty} title=${t('noRuns')}>${t('noRunsYet')}<//>`
        : html`<div class="stack">
          <section><${RunTable} runs=${found.runs} selected=${selected} toggle=${toggle} />
            <div class="figure-foot"><span class="hint" role="status">${training ? t('live') : t('notLive')}</span><${Check} label=${t('logScale')} value=${log} onChange=${setLog} /></div></section>
          <${RunCurves} found=${found} log=${log} />
        </div>`}`;
}
