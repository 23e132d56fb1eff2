// The frame of every figure: its title, what it shows, and the menu that saves it.
import { html, render, useRef } from '../vendor/htm-preact-standalone.module.js';
import { useWords } from '../language.js';
import { saveFigure } from '../save.js';
import { Menu } from './controls.js';

/**
 * A figure. Its SVG is the first one among the children; a figure that is made of HTML gives `draw`, which returns its
 * SVG for a file. `data` is what is saved as JSON.
 */
export function Figure({ title, note = '', data, draw, tools, children }) {
  const t = useWords();
  const body = useRef(null);
  const save = (kind) => {
    let element = body.current.querySelector('svg.drawing');
    if (draw && kind !== 'json') {
      const box = document.createElement('div');
      render(draw(), box);
      element = box.firstElementChild;
    }
    saveFigure(kind, { element, title, note, data });
  };
  const items = [['svg', t('saveSvg')], ['html', t('saveHtml')], ['json', t('saveJson')]]
    .map(([kind, text]) => [kind, text, () => save(kind)]);
  return html`<figure class="figure">
    <figcaption>
      <div class="figure-head"><h2>${title}</h2>
        <div class="figure-tools">${tools}<${Menu} label=${t('save')} items=${items} /></div></div>
      ${note ? html`<p class="figure-note">${note}</p>` : null}
    </figcaption>
    <div class="figure-body" ref=${body}>${children}</div>
  </figure>`;
}
