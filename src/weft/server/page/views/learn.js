// Learn: training curves of the runs below a folder, live while they train.
import { html, useEffect, useState } from '../vendor/htm-preact-standalone.module.js';
import { get, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { count, short } from '../numbers.js';
import { Check, Choice } from '../components/controls.js';
import { Curves } from '../components/curves.js';
import { Figure } from '../components/figure.js';
import { Empty, Failure, Result } from '../components/status.js';

const EVERY = 2000; // ms between looks at runs that train
const MARK = '\u001f';
const FIRST = 3; // runs that are shown before any is chosen: the newest of one task
const OPTIMIZATION = ['grad_norm', 'learning_rate'];

/** Asks again and again: often while something trains, rarely otherwise, not at all while the page is hidden. */
function useTicks(training) {
  const [tick, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && set((old) => old + 1), training ? EVERY : 5 * EVERY);
    return () => clearInterval(timer);
  }, [training]);
  return tick;
}

const path = (name) => name.split('/').map(encodeURIComponent).join('/');

function age(date, t) {
  const minutes = Math.max(0, (Date.now() / 1000 - date) / 60);
  if (minutes < 1) return t('justNow');
  if (minutes < 60) return t('minutesAgo', { n: Math.round(minutes) });
  return minutes < 48 * 60 ? t('hoursAgo', { n: Math.round(minutes / 60) }) : t('daysAgo', { n: Math.round(minutes / 1440) });
}

function RunTable({ runs, selected, toggle, hues }) {
  const t = useWords();
  return html`<div class="table-scroll"><table class="table runs"><thead><tr><th>${t('run')}</th><th>${t('state')}</th><th>${t('task')}</th><th>${t('data')}</th><th class="number">${t('step')}</th>
    <th class="number">${t('best')}</th><th class="number">${t('weights')}</th><th class="number">${t('changed')}</th></tr></thead>
    <tbody>${runs.map((run) => html`<tr key=${run.name}><td><label class="check"><input type="checkbox" checked=${selected.includes(run.name)} onChange=${() => toggle(run.name)} />
        <span>${selected.includes(run.name) ? html`<i class=${`swatch hue${hues.indexOf(run.name) % 7}`}></i>` : null}${run.name}</span></label></td>
      <td><span class=${`state ${run.state}`}>${t(`state-${run.state}`)}</span></td><td>${t(`task-${run.task}`)}</td><td>${run.data ?? '–'}</td><td class="number">${count(run.step)}</td>
      <td class="number">${run.best === null ? '–' : `${short(run.best)} ${run.metric}`}</td><td class="number">${count(run.weights)}</td><td class="number">${age(run.date, t)}</td></tr>`)}</tbody></table></div>`;
}

// Curves of one picture: the loss in training (dashed) belongs beside the held-out one of the same name.
function groups(curvesByRun) {
  const names = new Set(Object.values(curvesByRun).flatMap((curves) => Object.keys(curves)));
  const found = {};
  names.forEach((name) => {
    const base = name.replace(/^train_/, '');
    const key = names.has(base) || names.has(`train_${base}`) ? base : name;
    (found[key] ??= []).push(name);
  });
  return found;
}

function RunCurves({ runs, selected, tick, log }) {
  const t = useWords();
  const [which, setWhich] = useParam('curves', 'quality');
  const request = useRequest(
    (signal) => Promise.all(selected.map((name) => get(`weft/runs/${path(name)}/curves`, signal))).then((all) => Object.fromEntries(all.map((one, n) => [selected[n], one]))),
    [selected.join(MARK), selected.some((name) => runs.find((run) => run.name === name)?.state === 'training') ? tick : 0],
  );
  return html`<${Result} request=${{ ...request, busy: request.busy && !request.data }}>${(found) => {
    const pictures = Object.entries(groups(found)).filter(([name]) => OPTIMIZATION.includes(name) === (which === 'optimization'));
    if (!Object.values(found).some((curves) => Object.keys(curves).length)) return html`<${Empty} title=${t('noCurves')} />`;
    return html`<div class="stack"><${Choice} label=${t('curves')} value=${which} onChange=${setWhich} options=${[['quality', t('quality')], ['optimization', t('optimization')]]} />
      <div class="charts">${pictures.map(([name, parts]) => {
        const curves = selected.flatMap((run, hue) => parts.filter((part) => found[run]?.[part]).map((part) => ({
          name: part.startsWith('train_') && parts.length > 1 ? t('inTraining', { run }) : run, x: found[run][part].steps, y: found[run][part].values, best: found[run][part].best,
          hue, dashed: part.startsWith('train_') && parts.length > 1,
        })));
        return html`<${Figure} key=${name} title=${name.replace(/_/g, ' ')} data=${curves.map(({ name: run, x, y, best }) => ({ run, steps: x, values: y, best }))}>
          <${Curves} curves=${curves} xLabel=${t('step')} log=${log && curves.every((curve) => curve.y.every((value) => value === null || value > 0))} title=${name} /><//>`;
      })}</div></div>`;
  }}<//>`;
}

export function Learn() {
  const t = useWords();
  const [chosen, setChosen] = useParam('runs', '');
  const [log, setLog] = useParam('log', false);
  const [training, setTraining] = useState(true);
  const tick = useTicks(training);
  const request = useRequest((signal) => get('weft/runs', signal), [tick]);
  const [kept, keep] = useState(null);
  useEffect(() => {
    if (!request.data) return;
    keep(request.data.runs);
    setTraining(request.data.runs.some((run) => run.state === 'training'));
  }, [request.data]);
  const runs = kept ?? [];
  const newest = [...runs].sort((a, b) => (b.state === 'training') - (a.state === 'training') || b.date - a.date);
  const asked = chosen ? chosen.split(MARK).filter((name) => runs.some((run) => run.name === name)) : [];
  const selected = asked.length || chosen === MARK ? asked : newest.filter((run) => run.task === newest[0]?.task).slice(0, FIRST).map((run) => run.name);
  const toggle = (name) => setChosen((selected.includes(name) ? selected.filter((one) => one !== name) : [...selected, name]).join(MARK) || MARK);
  const error = request.error && !kept ? request.error : null;
  return html`
    <div class="view-head"><h2>${t('view-learn')}</h2><p>${t('learnIntro')}</p></div>
    ${error ? (error.status === 404 ? html`<${Empty} title=${t('noRunsFolder')}>${t('noRunsHint')} <code>weft serve RUN --runs runs</code><//>` : html`<${Failure} error=${error} retry=${request.retry} />`)
      : kept && !runs.length ? html`<${Empty} title=${t('noRuns')}>${t('noRunsYet')}<//>`
        : kept ? html`<div class="stack">
          <section><${RunTable} runs=${newest} selected=${selected} toggle=${toggle} hues=${selected} />
            <div class="figure-foot"><span class="hint" role="status">${training ? t('live') : t('notLive')}</span><${Check} label=${t('logScale')} value=${log} onChange=${setLog} /></div></section>
          ${selected.length ? html`<${RunCurves} runs=${runs} selected=${selected} tick=${tick} log=${log} />` : html`<${Empty} title=${t('chooseRuns')} />`}
        </div>` : html`<${Result} request=${request}>${() => null}<//>`}`;
}
