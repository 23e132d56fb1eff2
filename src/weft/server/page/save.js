// Figures as files: SVG, JSON, or one HTML file that needs no network.
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

/** The text of an SVG element as a file of its own: with the colours of files, a background and a font. */
function svgText(element, title, sheet) {
  const copy = element.cloneNode(true);
  const [width, height] = [element.getAttribute('width'), element.getAttribute('height')];
  const [x, y] = (element.getAttribute('viewBox') ?? '0 0').split(' ');
  copy.setAttribute('xmlns', XML);
  copy.setAttribute('viewBox', `${x} ${y} ${width} ${height}`);
  copy.setAttribute('font-family', getComputedStyle(document.body).fontFamily);
  copy.setAttribute('font-size', '13');
  ['tabindex', 'role', 'aria-label', 'style', 'class'].forEach((name) => copy.removeAttribute(name));
  const style = document.createElementNS(XML, 'style');
  style.textContent = `${sheet}text{white-space:pre}`;
  const back = document.createElementNS(XML, 'rect');
  Object.entries({ x, y, width, height, class: 'page' }).forEach(([name, value]) => back.setAttribute(name, value));
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

function htmlText(svg, title, note, data, sheet) {
  const style = `${sheet}:root{color-scheme:light dark}body{margin:0 auto;max-width:1100px;padding:24px 16px 48px;font:16px/1.5 system-ui,sans-serif}` +
    'h1{font-size:20px;margin:0 0 4px}p{font-size:14px;margin:0 0 16px}div{overflow-x:auto}';
  return `<!doctype html><html lang="${document.documentElement.lang}"><head><meta charset="utf-8"><title>${escaped(title)}</title>` +
    '<meta name="viewport" content="width=device-width,initial-scale=1">' +
    `<style>${style}</style></head><body><main><h1>${escaped(title)}</h1>${note ? `<p>${escaped(note)}</p>` : ''}` +
    `<div tabindex="0" role="group" aria-label="${escaped(title)}">${svg}</div></main>` +
    `<script type="application/json" id="data">${embedded(data)}</script></body></html>\n`;
}

/** Saves a figure as "svg", "json" or "html": its element, or an SVG that is a file already. */
export async function saveFigure(kind, { element, svg, title, note, data }) {
  if (kind === 'json') {
    download(fileName(title, 'json'), 'application/json', JSON.stringify(data));
    return;
  }
  const sheet = await (await fetch('page/style/saved.css')).text();
  const file = svg || svgText(element, title, sheet);
  if (kind === 'svg') download(fileName(title, 'svg'), 'image/svg+xml', file);
  else download(fileName(title, 'html'), 'text/html', htmlText(file, title, note, data, sheet));
}
