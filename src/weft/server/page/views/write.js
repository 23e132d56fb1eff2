// Write: a language model writes token by token. Each token shows how much it surprised the model; any of them can be
// exchanged, and the text forked there.
import { html, useCallback, useEffect, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { useWords } from '../language.js';
import { link, useParam } from '../location.js';
import { percent, short, visible } from '../numbers.js';
import { Bench, ChoiceBars, Fold, ModelPicker, NumberBox, Slider, TextBox, useModel } from '../components/controls.js';
import { TextFigure } from '../components/figure.js';
import { Popover } from '../components/popover.js';
import { Empty, Failure, Progress } from '../components/status.js';
import { Writer } from './writer.js';

const MOST_NATS = 6; // the end of the scale; fixed, so colours stay as they are while a text grows
const MARK = '\u001f'; // between kept tokens in the address: no token contains it
const SLOW = 300;
const BEGIN = 3; // words of the first prompt

function surprisal(one) {
  return one.logprob === null || one.logprob === undefined ? null : Math.max(0, -one.logprob);
}

/** The first words of an example, for the model to continue. */
function beginning(example) {
  return example.split(' ').slice(0, BEGIN).join(' ');
}

/** The texts, which of them is shown, and what can be done with it. */
function useWriters(model, prompt, kept, settings) {
  const [state, set] = useState({ writers: [], current: 0, error: null, version: 0, busy: false });
  const [attempt, reopen] = useState(0);
  const latest = useRef({});
  latest.current = { ...state, settings, prompt, model };
  const wanted = useRef(null); // the prompt to write on from as soon as its text is open
  const turns = useRef(Promise.resolve()); // what is done with the texts, one thing after the other
  const show = useCallback((more = {}) => set((old) => ({ ...old, ...more, version: old.version + 1 })), []);
  const guard = async (gone, action) => {
    const timer = setTimeout(() => show({ busy: true }), SLOW);
    try {
      await action();
    } catch (error) {
      if (error.name === 'AbortError' || gone()) return; // of a text that nobody sees any more
      if (!('status' in error)) console.error(error);
      show({ error });
    } finally {
      clearTimeout(timer);
      show({ busy: false });
    }
  };
  // Does something with a text when everything before it is done; nothing if the text has been closed by then.
  const next = (one, action) => {
    turns.current = turns.current.then(() => (one.closed ? undefined : guard(() => one.closed, action)));
    return turns.current;
  };
  const writer = () => latest.current.writers[latest.current.current];
  const stream = async (one, count) => {
    show({ error: null });
    let waiting = 0; // a small model writes faster than a screen shows: one update for each frame
    await one.write({ ...latest.current.settings, count }, () => {
      waiting ||= requestAnimationFrame(() => { waiting = 0; show(); });
    });
    cancelAnimationFrame(waiting);
    show();
  };
  const start = (one) => {
    one.started = one.tokens.length;
    return stream(one, latest.current.settings.count);
  };
  const halt = (one) => {
    one.stop();
    show();
  };
  // Another model or prompt is another text. What the address kept is read again, so a link shows the same text.
  useEffect(() => {
    const controller = new AbortController();
    turns.current = Promise.resolve();
    if (wanted.current !== prompt) wanted.current = null;
    set({ writers: [], current: 0, error: null, version: 0, busy: false });
    const timer = setTimeout(() => guard(() => controller.signal.aborted, async () => {
      const opened = await Writer.open(model, prompt, kept, controller.signal);
      if (controller.signal.aborted) {
        opened.close();
        return;
      }
      show({ writers: [opened], current: 0 });
      if (wanted.current === prompt) next(opened, () => start(opened));
      wanted.current = null;
    }), 0);
    return () => {
      clearTimeout(timer);
      controller.abort();
      latest.current.writers.forEach((one) => one.close());
    };
  }, [model, prompt, attempt]);
  // Temperature and the like act at once: the text goes on from where it is with the new ones.
  useEffect(() => {
    const one = writer();
    if (!one?.writing) return undefined;
    const timer = setTimeout(() => {
      if (!one.writing) return; // it has ended meanwhile, or was stopped
      one.stop();
      next(one, async () => {
        const left = latest.current.settings.count - (one.tokens.length - one.started);
        if (left > 0) await stream(one, left);
      });
    }, 120);
    return () => clearTimeout(timer);
  }, Object.values(settings.sampling));
  return {
    ...state,
    writer: writer(),
    reopen: () => reopen((count) => count + 1),
    // Right after an edit of the prompt, or with another model, the text is not open yet: writing starts once it is.
    write: (text = latest.current.prompt) => {
      const one = writer();
      if (one?.model !== latest.current.model || one.prompt !== text) wanted.current = text;
      else if (!one.writing) next(one, () => start(one));
    },
    stop: () => halt(writer()),
    clear: () => { const one = writer(); next(one, () => one.rewind(one.given)); },
    choose: (at, token) => {
      const one = writer();
      halt(one);
      next(one, async () => { await one.choose(at, token); show(); await start(one); });
    },
    fork: (at) => {
      const one = writer();
      halt(one);
      next(one, async () => {
        const made = await one.fork(at);
        if (one.closed) {
          made.close();
          return;
        }
        const writers = [...latest.current.writers, made];
        show({ writers, current: writers.length - 1 });
        await start(made);
      });
    },
    alternatives: (at) => { const one = writer(); return next(one, async () => { await one.alternatives(at); show(); }); },
    select: (current) => { halt(writer()); show({ current }); },
  };
}

function Alternatives({ writer, at, anchor, onClose, onChoose, onFork }) {
  const t = useWords();
  const one = writer.tokens[at];
  const nats = surprisal(one);
  const items = (one.top ?? []).map(([token, value]) => ({ token, probability: Math.exp(value) }));
  return html`<${Popover} anchor=${anchor} label=${t('alternatives')} ready=${Boolean(one.top)} onClose=${onClose}>
    <p class="popover-title">${visible(one.token)}<span>${nats === null ? '' : `${percent(Math.exp(-nats))} · ${short(nats)} ${t('nats')}`}</span></p>
    ${one.top ? html`<${ChoiceBars} items=${items} current=${one.token} label=${t('alternatives')} onPick=${(item) => onChoose(item.token)} />`
      : html`<${Progress} busy=${true} />`}
    <div class="buttons"><button class="button small" onClick=${onFork}>${t('forkHere')}</button></div>
    <p class="hint">${t('chooseHint')}</p>
  <//>`;
}

function branchName(writers, at, t) {
  const tail = writers[at].tokens.slice(-6).map((one) => one.token).join('').replace(/\s+/g, ' ');
  return `${t('branch', { n: at + 1 })} …${tail}`;
}

export function Write({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [prompt, setPrompt] = useParam('text', beginning(model.example));
  const [temperature, setTemperature] = useParam('temperature', 0.8);
  const [topP, setTopP] = useParam('top_p', 1);
  const [minP, setMinP] = useParam('min_p', 0);
  const [typicalP, setTypicalP] = useParam('typical_p', 1);
  const [penalty, setPenalty] = useParam('repetition_penalty', 1);
  const [count, setCount] = useParam('tokens', 120);
  const [seed, setSeed] = useParam('seed', 0);
  const [kept, setKept] = useParam('kept', '');
  const [from, setFrom] = useParam('from', -1); // tokens of the prompt that are left, where one of them was exchanged
  const [open, setOpen] = useState(null);
  const given = { from, tokens: kept ? kept.split(MARK) : [] };
  const sampling = { temperature, top_p: topP, min_p: minP, typical_p: typicalP, repetition_penalty: penalty };
  const writers = useWriters(model.name, prompt, given, { sampling, count, seed });
  const { writer } = writers;
  const writing = Boolean(writer?.writing);
  useEffect(() => {
    if (!writer || writing) return;
    setKept(writer.written.join(MARK));
    setFrom(writer.given < writer.prompted ? writer.given : -1);
  }, [writer, writing, writers.version]);
  const close = useCallback(() => setOpen(null), []);
  const select = (at, anchor) => {
    if (writing) writers.stop();
    setOpen({ at, anchor, writer });
    writers.alternatives(at).then(() => writer.tokens[at]?.top || close()); // without them there is nothing to choose
  };
  const another = (set) => (value) => { setKept(''); setFrom(-1); close(); set(value); };
  const tokens = writer?.tokens ?? [];
  const nats = tokens.map(surprisal);
  const written = nats.filter((value, at) => value !== null && !tokens[at].given);
  const mean = written.length ? written.reduce((a, b) => a + b, 0) / written.length : null;
  const note = mean === null ? '' : t('meanSurprisal', { nats: short(mean), perplexity: short(Math.exp(mean)), n: written.length });
  const started = tokens.some((one) => !one.given);
  const two = (value) => value.toFixed(2);
  return html`<${Bench} panel=${html`
      <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${another(setModel)} />
      <${TextBox} label=${t('prompt')} value=${prompt} onChange=${another(setPrompt)} onSubmit=${writers.write} rows=${3} placeholder=${t('promptEmpty')} />
      <div class="buttons">
        ${writing ? html`<button class="button primary" onClick=${writers.stop}>${t('stop')}</button>`
          : html`<button class="button primary" disabled=${!writer} onClick=${() => { close(); writers.write(); }}>${started ? t('writeOn') : t('write')}</button>`}
        ${started && !writing ? html`<button class="button" onClick=${() => { close(); writers.clear(); }}>${t('clear')}</button>` : null}
      </div>
      <p class="hint"><kbd>Ctrl</kbd>+<kbd>Enter</kbd> ${t('submitHint')}</p>
      <${Fold}>
        <${Slider} label=${t('temperature')} value=${temperature} min="0" max="2" step="0.05" onChange=${setTemperature} format=${(value) => (value === 0 ? t('greedy') : two(value))} />
        <${Slider} label=${t('topP')} value=${topP} min="0.05" max="1" step="0.05" onChange=${setTopP} format=${two} />
        <${Slider} label=${t('minP')} value=${minP} min="0" max="0.5" step="0.01" onChange=${setMinP} format=${two} />
        <${Slider} label=${t('typicalP')} value=${typicalP} min="0.05" max="1" step="0.05" onChange=${setTypicalP} format=${two} />
        <${Slider} label=${t('repetitionPenalty')} value=${penalty} min="1" max="2" step="0.05" onChange=${setPenalty} format=${two} />
        <div class="pair"><${NumberBox} label=${t('length')} value=${count} min=${1} max=${1000} onChange=${setCount} />
          <${NumberBox} label=${t('seed')} value=${seed} min=${0} max=${999999} onChange=${setSeed} /></div>
      <//>`}>
      <div class="result" aria-busy=${String(writers.busy)}>
        <${Progress} busy=${writers.busy && !writing} />
        ${writers.error ? html`<${Failure} error=${writers.error} retry=${writer ? () => writers.write() : writers.reopen} />` : null}
        ${writers.writers.length > 1 ? html`<div class="tabs" role="group" aria-label=${t('branches')}>${writers.writers.map((_, at) => html`
          <button aria-pressed=${String(at === writers.current)} onClick=${() => { close(); writers.select(at); }}>${branchName(writers.writers, at, t)}</button>`)}</div>` : null}
        ${tokens.length && (started || prompt) ? html`
          <${TextFigure} title=${t('surprisalTitle')} note=${note} data=${{ model: model.name, ...sampling, seed, tokens: tokens.map((one, at) => ({ token: one.token, nats: nats[at], given: one.given, top: one.top })) }}
            tokens=${tokens.map((one) => one.token)} values=${nats} range=${[0, MOST_NATS]} label=${t('nats')} selected=${open?.at ?? null} onSelect=${select} classes=${tokens.map((one) => (one.chosen ? 'chosen' : one.given ? 'given' : ''))}>
            ${writing ? html`<span class="caret" aria-label=${t('working')}></span>` : null}
            <div class="figure-foot"><span class="hint">${started ? t('tokenHint') : t('writeHint')}</span>
              <a class="button small" href=${link('look', { model: model.name, text: tokens.map((one) => one.token).join(model.tokenizer === 'word' || model.tokenizer === 'space' ? ' ' : '') })}>${t('lookInside')}</a></div>
          <//>` : writers.error || writers.busy ? null : html`<${Empty} title=${t('writeEmpty')}>${t('writeHint')}<//>`}
      </div>
    <//>
    ${open && open.writer === writer && tokens[open.at] ? html`<${Alternatives} writer=${writer} at=${open.at} anchor=${open.anchor} onClose=${close}
      onChoose=${(token) => { const { at } = open; close(); writers.choose(at, token); }} onFork=${() => { const { at } = open; close(); writers.fork(at); }} />` : null}`;
}
