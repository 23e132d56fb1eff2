// The tree of a beam search: columns are steps, within a column the hypotheses by their log-probability.
import { html, useMemo, useState } from '../vendor/htm-preact-standalone.module.js';
import { shorten, textWidth } from '../measure.js';
import { visible } from '../numbers.js';

const [ROW, GAP, LEFT, TOP] = [24, 34, 22, 12];

function laidOut(hypotheses, all) {
  const kept = hypotheses.map((one, id) => ({ ...one, id })).filter((one) => all || one.best || ['kept', 'ended', 'cut'].includes(one.status));
  const columns = [];
  kept.forEach((one) => (columns[one.step - 1] ??= []).push(one));
  let x = LEFT + GAP;
  columns.forEach((column) => {
    column.sort((a, b) => b.best - a.best || b.log_prob - a.log_prob);
    const box = Math.min(130, Math.max(...column.map((one) => textWidth(visible(one.token), 13, 600)))) + 52;
    column.forEach((one, row) => Object.assign(one, { x, y: TOP + (row + 0.5) * ROW, box }));
    x += box + GAP;
  });
  return { nodes: kept, width: x - GAP + 12, height: TOP * 2 + ROW * Math.max(1, ...columns.map((column) => column.length)) };
}

function shape(node) {
  if (node.best) return ['line1', 2.4, 'dot1'];
  return ['kept', 'ended', 'cut'].includes(node.status) ? ['line0', 1.3, 'ink'] : ['grid', 1, 'faint'];
}

/** Args: hypotheses as the probe returns them; all: those that were dropped too; describe(node): the line below the tree. */
export function BeamTree({ hypotheses, all, title, root, describe }) {
  const { nodes, width, height } = useMemo(() => laidOut(hypotheses, all), [hypotheses, all]);
  const [pointed, point] = useState(null);
  const by = new Map(nodes.map((node) => [node.id, node]));
  const first = nodes.filter((node) => node.step === 1);
  const rootY = first.length ? first[0].y : TOP;
  const edge = (node) => {
    const from = by.get(node.parent);
    const [x1, y1] = from ? [from.x + from.box - 4, from.y] : [LEFT - 4, rootY];
    const middle = (x1 + node.x) / 2;
    return `M${x1} ${y1}C${middle} ${y1} ${middle} ${node.y} ${node.x} ${node.y}`;
  };
  const shown = pointed ?? nodes.find((node) => node.best && ['ended', 'cut'].includes(node.status));
  return html`<div class="chart">
    <div class="scroll" tabindex="0" role="group" aria-label=${title}>
    <svg class="drawing" width=${Math.ceil(width)} height=${Math.ceil(height)} role="img" aria-label=${title} onMouseLeave=${() => point(null)}>
      ${nodes.map((node) => html`<path class=${shape(node)[0]} stroke-width=${shape(node)[1]} d=${edge(node)} />`)}
      <circle cx=${LEFT - 8} cy=${rootY} r="5" class="dot0"><title>${root}</title></circle>
      ${nodes.map((node) => html`<g onMouseEnter=${() => point(node)}>
        <rect x=${node.x} y=${node.y - ROW / 2 + 1} width=${node.box} height=${ROW - 2} rx="4" class="page" />
        <text x=${node.x + 4} y=${node.y + 5} font-size="13" class=${shape(node)[2]} font-weight=${node.best ? 600 : undefined}>${shorten(visible(node.token), 130, 13)}${['ended', 'cut'].includes(node.status) ? ' ◦' : ''}
          <title>${`${describe(node)}. ${node.reason}`}</title></text>
        <text x=${node.x + node.box - 6} y=${node.y + 4} font-size="10" class="faint" text-anchor="end">${node.log_prob.toFixed(2)}</text>
      </g>`)}
    </svg></div>
    <output class="readout">${shown ? describe(shown) : ''}</output>
  </div>`;
}
