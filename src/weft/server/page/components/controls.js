// A view's panel and its form controls: all with a label, all native elements, so the keyboard works as everywhere.
import { html, useEffect, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { named, useWords } from '../language.js';
import { useParam } from '../location.js';
import { percent, visible } from '../numbers.js';

const WIDE = window.matchMedia('(min-width: 901px)'); // the panel stands beside the results

let made = 0;

function useId() {
  const id = useRef(null);
  if (id.current === null) id.current = `control-${made += 1}`;
  return id.current;
}

/** What goes in beside what comes out. */
export function Bench({ panel, children }) {
  return html`<div class="bench"><div class="panel">${panel}</div><div class="results">${children}</div></div>`;
}

/** Options that are folded where the panel stands above the results. */
export function Fold({ children }) {
  const t = useWords();
  return html`<details class="fold" open=${WIDE.matches}><summary>${t('options')}</summary><div class="fold-body">${children}</div></details>`;
}

export function Field({ label, note, id, children }) {
  return html`<div class="field">
    <label for=${id}>${label}${note ? html` <span class="field-note">${note}</span>` : null}</label>${children}
  </div>`;
}

export function Select({ label, value, options, onChange }) {
  const id = useId();
  return html`<${Field} label=${label} id=${id}>
    <select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}
    </select>
  <//>`;
}

/** A text box whose text is handed on when the writer pauses, leaves it, or presses Ctrl+Enter. */
export function TextBox({ label, value, onChange, onSubmit, rows = 4, placeholder = '', pause = 350 }) {
  const id = useId();
  const [own, set] = useState(value);
  const timer = useRef(0);
  const sent = useRef(value); // the last text that was handed on, or given from outside
  useEffect(() => {
    if (value !== sent.current) set(value); // a text of our own comes back: what was typed since then stays
    sent.current = value;
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const commit = (text) => {
    clearTimeout(timer.current);
    if (text === sent.current) return;
    sent.current = text;
    onChange(text);
  };
  const onInput = (event) => {
    const text = event.target.value;
    set(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => commit(text), pause);
  };
  const onKeyDown = (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    commit(own);
    if (onSubmit) onSubmit(own);
  };
  return html`<${Field} label=${label} id=${id}>
    <textarea id=${id} rows=${rows} value=${own} placeholder=${placeholder} spellcheck=${false} dir="auto"
      onInput=${onInput} onBlur=${() => commit(own)} onKeyDown=${onKeyDown}></textarea>
  <//>`;
}

export function Slider({ label, value, min, max, step, onChange, format = String }) {
  const id = useId();
  return html`<${Field} label=${label} note=${format(value)} id=${id}>
    <input id=${id} type="range" min=${min} max=${max} step=${step} value=${value}
      aria-valuetext=${format(value)} onInput=${(event) => onChange(Number(event.target.value))} />
  <//>`;
}

/** A number that is handed on when it is complete; meanwhile the rest of the page may be drawn anew. */
export function NumberBox({ label, value, min, max, onChange, onClear, whole = true }) {
  const id = useId();
  const [own, set] = useState(value);
  useEffect(() => set(value), [value]);
  const take = ({ target }) => {
    const number = whole ? Math.round(Number(target.value)) : Number(target.value);
    if (target.value === '') onClear?.();
    if (target.value === '' || !Number.isFinite(number)) return set(value);
    const inside = Math.min(max ?? number, Math.max(min ?? number, number));
    set(inside);
    return onChange(inside);
  };
  return html`<${Field} label=${label} id=${id}>
    <input id=${id} type="number" min=${min} max=${max} step=${whole ? 1 : 'any'} value=${own} onInput=${({ target }) => set(target.value)} onChange=${take} />
  <//>`;
}

/** A few choices side by side: radio buttons that look like one control. */
export function Choice({ label, value, options, onChange, quiet = false }) {
  const id = useId();
  return html`<fieldset class=${quiet ? 'choice quiet' : 'choice'}>
    <legend class=${quiet ? 'hidden' : ''}>${label}</legend>
    <div class="choice-row">${options.map(([key, text]) => html`<label key=${key} class=${key === value ? 'on' : ''}>
      <input type="radio" name=${id} value=${key} checked=${key === value} onChange=${() => onChange(key)} />
      <span>${text}</span>
    </label>`)}</div>
  </fieldset>`;
}

export function Check({ label, value, onChange }) {
  return html`<label class="check"><input type="checkbox" checked=${value} onChange=${() => onChange(!value)} />
    <span>${label}</span></label>`;
}

/** A button that opens a small menu; Escape and a press elsewhere close it. */
export function Menu({ label, items }) {
  const ref = useRef(null);
  const close = () => ref.current && ref.current.removeAttribute('open');
  useEffect(() => {
    const outside = (event) => ref.current && !ref.current.contains(event.target) && close();
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, []);
  const onKeyDown = (event) => {
    if (event.key !== 'Escape') return;
    close();
    ref.current.querySelector('summary').focus();
  };
  return html`<details class="menu" ref=${ref} onKeyDown=${onKeyDown}>
    <summary>${label}</summary>
    <div class="menu-items">${items.map(([key, text, act]) => html`<button key=${key} onClick=${() => { close(); act(); }}>${text}</button>`)}</div>
  </details>`;
}

/** A list of choices with their probabilities; each is a button. */
export function ChoiceBars({ items, current, onPick, label }) {
  const most = Math.max(...items.map((item) => item.probability), 1e-9);
  return html`<ul class="bars" aria-label=${label}>${items.map((item) => html`<li key=${item.token}>
    <button class=${item.token === current ? 'bar current' : 'bar'} onClick=${() => onPick(item)}>
      <span class="bar-fill" style=${{ width: `${(100 * item.probability / most).toFixed(1)}%` }}></span>
      <span class="bar-name">${visible(item.token)}</span><span class="bar-value">${percent(item.probability)}</span>
    </button></li>`)}</ul>`;
}

/** The control of an option that the server describes. An empty box, undefined, is the option's default. */
export function OptionControl({ label, schema, value, onChange }) {
  const t = useWords();
  const shown = value ?? schema.default;
  if (schema.type === 'boolean') return html`<${Check} label=${label} value=${Boolean(shown)} onChange=${onChange} />`;
  if (schema.enum) {
    const choices = [...(schema.default === undefined ? [['', t('byDefault')]] : []), ...schema.enum.map((one) => [one, one])];
    return html`<${Select} label=${label} value=${shown ?? ''} onChange=${(one) => onChange(one || undefined)} options=${choices} />`;
  }
  if (schema.type === 'integer' || schema.type === 'number') {
    return html`<${NumberBox} label=${label} value=${shown ?? ''} min=${schema.minimum} max=${schema.maximum} whole=${schema.type === 'integer'} onChange=${onChange} onClear=${() => onChange(undefined)} />`;
  }
  const lines = schema.type === 'array';
  return html`<${TextBox} label=${lines ? t('onePerLine', { name: label }) : label} rows=${lines ? 2 : 1} placeholder=${String(schema.default ?? '')} value=${lines ? (shown ?? []).join('\n') : shown ?? ''}
    onChange=${(text) => onChange(text === '' ? undefined : lines ? text.split('\n').filter(Boolean) : text)} />`;
}

/** The value that a text has as JSON, or undefined. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The options in the address that have one of these schemas and are not the default; and what sets one. */
export function useOptions(schemas) {
  const [given, setGiven] = useParam('options', '{}');
  const differs = ([name, value]) => name in schemas && JSON.stringify(value) !== JSON.stringify(schemas[name].default);
  const set = (name, value) => setGiven((old) => JSON.stringify({ ...parsed(old), [name]: value })); // several may change at once
  return [Object.fromEntries(Object.entries(parsed(given) ?? {}).filter(differs)), set];
}

/** The model that the address names, or another one of the view; how to choose it; its name if the view does not have it. */
export function useModel(models, name = 'model', other = models[0]) {
  const [given, set] = useParam(name, other.name);
  const found = models.find((one) => one.name === given);
  return [found ?? other, set, found ? null : given];
}

/** The runs that suit a view. `missing`: the name of a run that the address asks for and the view does not have. */
export function ModelPicker({ models, value, onChange, label, missing = null }) {
  const t = useWords();
  const options = models.map((one) => [one.name, `${one.name} · ${named(t, 'task', one.task)}`]);
  return html`<div><${Select} label=${label ?? t('model')} value=${value} options=${options} onChange=${onChange} />
    ${missing === null ? null : html`<p class="hint" role="status">${t('missingModel', { model: missing })}</p>`}</div>`;
}
