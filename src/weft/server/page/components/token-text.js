// A text whose tokens are tinted by a value. On the page it is text, which wraps and can be read aloud; for a file it is drawn.
import { html, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { useWords } from '../language.js';
import { textWidth } from '../measure.js';
import { visible } from '../numbers.js';
import { levelClass } from '../palette.js';
import { DrawnLegend } from './legend.js';

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

const [MARGIN, SIZE, HEIGHT] = [16, 15, 26];

/** The same text as a drawing. */
export function drawTokens({ tokens, values, low, high, scale = 'sequential', label = '', notes, width = 760 }) {
  const running = isRunning(tokens);
  const inner = running ? 1 : 5;
  let [x, y] = [MARGIN, 44];
  const boxes = tokens.map((token, place) => {
    const shown = running && token === ' ' ? ' ' : visible(token);
    const wide = Math.max(textWidth(shown, SIZE), 4) + 2 * inner;
    if (x + wide > width - MARGIN && x > MARGIN) [x, y] = [MARGIN, y + HEIGHT + 4];
    const found = { x, y, wide, shown, name: levelClass(values[place], low, high, scale), note: notes?.[place] };
    x += wide + (running ? 0 : 4);
    if (token.includes('\n')) [x, y] = [MARGIN, y + HEIGHT + 4];
    return found;
  });
  const height = Math.max(0, ...boxes.map((one) => one.y)) + HEIGHT + MARGIN;
  return html`<svg class="drawing" width=${width} height=${height}>
    <${DrawnLegend} x=${MARGIN - 24} y=${16} low=${low} high=${high} scale=${scale} label=${label} />
    ${boxes.map((one) => html`<g><rect x=${one.x} y=${one.y} width=${one.wide} height=${HEIGHT} rx=${running ? 0 : 4} class=${one.name}>
      ${one.note ? html`<title>${one.note}</title>` : null}</rect>
      <text x=${one.x + inner} y=${one.y + 18} font-size=${SIZE} class=${one.name === 'none' ? 'ink' : `on-${one.name}`}
        textLength=${one.wide - 2 * inner} lengthAdjust="spacingAndGlyphs" pointer-events="none">${one.shown}</text></g>`)}
  </svg>`;
}
