// Figures as files: SVG, JSON, or one HTML file that needs no network.

/** Hands a text over as a file. */
export function saveText(name, type, text) {
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

function escaped(text) {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');
}

/** An SVG element of the page as a file of its own: with its title, the colours of files and a background. */
function standalone(element, title, sheet) {
  const [x, y, width, height] = element.getAttribute('viewBox').split(' ');
  const back = `<rect x="${x}" y="${y}" width="${width}" height="${height}" class="page"/>`;
  return new XMLSerializer().serializeToString(element)
    .replace(/^<svg[^>]*>/, (head) => `${head}<title>${escaped(title)}</title><style>${sheet}</style>${back}`);
}

function page(svg, title, note, data, sheet) {
  const style = `${sheet}:root{color-scheme:light dark}body{margin:0 auto;max-width:1100px;padding:24px 16px 48px;font:16px/1.5 system-ui,sans-serif}` +
    'h1{font-size:20px;margin:0 0 4px}p{font-size:14px;margin:0 0 16px}div{overflow-x:auto}';
  const json = JSON.stringify(data).replace(/</g, '\\u003c'); // no text in it may end the element
  return `<!doctype html><html lang="${document.documentElement.lang}"><head><meta charset="utf-8"><title>${escaped(title)}</title>` +
    '<meta name="viewport" content="width=device-width,initial-scale=1">' +
    `<style>${style}</style></head><body><main><h1>${escaped(title)}</h1>${note ? `<p>${escaped(note)}</p>` : ''}` +
    `<div tabindex="0" role="group" aria-label="${escaped(title)}">${svg}</div></main>` +
    `<script type="application/json" id="data">${json}</script></body></html>\n`;
}

/** Saves a figure as "svg", "json" or "html": its element, or an SVG that is a file already. */
export async function saveFigure(kind, { element, file, title, note, data }) {
  if (kind === 'json') {
    saveText(fileName(title, 'json'), 'application/json', JSON.stringify(data));
    return;
  }
  const sheet = await (await fetch('page/style/saved.css')).text();
  const svg = file || standalone(element, title, sheet);
  if (kind === 'svg') saveText(fileName(title, 'svg'), 'image/svg+xml', svg);
  else saveText(fileName(title, 'html'), 'text/html', page(svg, title, note, data, sheet));
}
