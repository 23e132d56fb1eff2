// Figures as files: SVG, JSON, or one HTML file that needs no network.
import { FONT, PAGE, fileStyle } from './palette.js';

const XML = 'http://www.w3.org/2000/svg';

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const anchor = document.createElement('a');
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function fileName(title, ending) {
  const words = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 60);
  return `${words || 'figure'}.${ending}`;
}

/** The text of an SVG element as a file of its own: with the colours that it uses, a background and a font. */
function svgText(element, title) {
  const copy = element.cloneNode(true);
  const [width, height] = [element.getAttribute('width'), element.getAttribute('height')];
  copy.setAttribute('xmlns', XML);
  copy.setAttribute('viewBox', `0 0 ${width} ${height}`);
  copy.setAttribute('font-family', FONT);
  copy.setAttribute('font-size', '13');
  ['tabindex', 'role', 'aria-label', 'style', 'class'].forEach((name) => copy.removeAttribute(name));
  copy.querySelectorAll('.live').forEach((part) => part.remove()); // marks of the pointer
  const used = new Set(['page', 'ink', 'faint']);
  copy.querySelectorAll('[class]').forEach((part) => part.getAttribute('class').split(/\s+/).forEach((one) => used.add(one)));
  const style = document.createElementNS(XML, 'style');
  style.textContent = fileStyle(used) + 'text{white-space:pre}';
  const back = document.createElementNS(XML, 'rect');
  back.setAttribute('width', width);
  back.setAttribute('height', height);
  back.setAttribute('class', 'page');
  const name = document.createElementNS(XML, 'title');
  name.textContent = title;
  copy.prepend(name, style, back);
  return new XMLSerializer().serializeToString(copy);
}

// JSON inside a script element: no text in it may end the element.
function embedded(data) {
  return JSON.stringify(data).replace(/</g, '\\u003c');
}

function escaped(text) {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');
}

function htmlText(svg, title, note, data, language) {
  const [light, dark] = [PAGE.light, PAGE.dark];
  const style = `:root{color-scheme:light dark}body{margin:0 auto;max-width:1100px;padding:24px 16px 48px;` +
    `font:16px/1.5 ${FONT};background:${light[0]};color:${light[1]}}h1{font-size:20px;margin:0 0 4px}` +
    `p{color:${light[2]};font-size:14px;margin:0 0 16px}div{overflow-x:auto}` +
    `@media (prefers-color-scheme:dark){body{background:${dark[0]};color:${dark[1]}}p{color:${dark[2]}}}`;
  return `<!doctype html><html lang="${language}"><head><meta charset="utf-8"><title>${escaped(title)}</title>` +
    '<meta name="viewport" content="width=device-width,initial-scale=1">' +
    `<style>${style}</style></head><body><main><h1>${escaped(title)}</h1>${note ? `<p>${escaped(note)}</p>` : ''}` +
    `<div tabindex="0" role="group" aria-label="${escaped(title)}">${svg}</div></main>` +
    `<script type="application/json" id="data">${embedded(data)}</script></body></html>\n`;
}

/** Saves a figure as "svg", "json" or "html". */
export function saveFigure(kind, { element, title, note, data }) {
  if (kind === 'json') {
    download(fileName(title, 'json'), 'application/json', JSON.stringify(data));
    return;
  }
  const svg = svgText(element, title);
  if (kind === 'svg') download(fileName(title, 'svg'), 'image/svg+xml', svg);
  else download(fileName(title, 'html'), 'text/html', htmlText(svg, title, note, data, document.documentElement.lang));
}
