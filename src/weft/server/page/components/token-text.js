// A text whose tokens are tinted by a value: it wraps, and can be read aloud.
import { html, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { useWords } from '../language.js';
import { levelClass } from '../palette.js';

/** Whether tokens are to be set without gaps: characters, or pieces that bring their own spaces. */
export function isRunning(tokens) {
  return tokens.every((token) => Array.from(token).length <= 1) || tokens.some((token) => /^\s\S|\S\s$/.test(token));
}

/**
 * Tokens on a colour scale. One of them is in the tab order; arrow keys move along them, Enter selects.
 *
 * Args: tokens; values (null: no value); low, high, scale; selected: a position or null; classes: further classes per token;
 * notes: a text per token for the pointer; onSelect(position, element); onPoint(position or null): pointer or focus.
 */
export function TokenText({ tokens, values, low, high, scale = 'sequential', selected = null, classes, notes, label, onSelect, onPoint }) {
  const t = useWords();
  const box = useRef(null);
  const [focus, setFocus] = useState(0);
  const active = Math.min(focus, tokens.length - 1);
  const move = (to) => {
    const at = Math.min(tokens.length - 1, Math.max(0, to));
    setFocus(at);
    box.current.querySelector(`[data-at="${at}"]`).focus();
  };
  const onKeyDown = (event) => {
    const at = Number(event.target.dataset.at);
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1 };
    if (event.key in steps) {
      event.preventDefault();
      move(steps[event.key]);
    } else if (onSelect && (event.key === 'Enter' || event.key === ' ')) {
      event.preventDefault();
      onSelect(at, event.target);
    }
  };
  const at = (event) => {
    const found = event.target.closest('[data-at]');
    return found ? Number(found.dataset.at) : null;
  };
  const pick = (event) => {
    const place = at(event);
    if (place === null) return;
    setFocus(place);
    if (onSelect) onSelect(place, event.target.closest('[data-at]'));
  };
  const point = onPoint ? (event) => onPoint(at(event)) : undefined;
  const leave = onPoint ? () => onPoint(null) : undefined;
  return html`<div class=${isRunning(tokens) ? 'tokens running' : 'tokens'} ref=${box} role="group" aria-label=${label} dir="auto"
    onKeyDown=${onKeyDown} onClick=${pick} onMouseOver=${point} onMouseLeave=${leave} onFocusIn=${point} onFocusOut=${leave}>
    ${tokens.map((token, place) => html`<span key=${place} data-at=${place} role=${onSelect ? 'button' : undefined}
      tabindex=${place === active ? 0 : -1} title=${notes ? notes[place] : undefined}
      aria-pressed=${onSelect ? String(place === selected) : undefined} aria-label=${onSelect && !token.trim() ? t(token.includes('\n') ? 'lineBreak' : 'space') : undefined}
      class=${`token ${levelClass(values[place], low, high, scale)} ${classes?.[place] ?? ''} ${place === selected ? 'selected' : ''}`}
      >${token.includes('\n') ? '↵' : token}</span>${token.includes('\n') ? html`<br />` : null}`)}
  </div>`;
}
