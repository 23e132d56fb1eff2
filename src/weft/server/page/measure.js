// Sizes that drawing needs: the width of a text, the width of an element, the numbers of an axis.
import { useEffect, useState } from './vendor/htm-preact-standalone.module.js';

const FONT = getComputedStyle(document.body).fontFamily;
const canvas = document.createElement('canvas').getContext('2d');

/** The width of a text in pixels. */
export function textWidth(text, size = 13, weight = 400) {
  canvas.font = `${weight} ${size}px ${FONT}`;
  return canvas.measureText(text).width;
}

/** The text, cut with an ellipsis where it is wider than `most` pixels. */
export function shorten(text, most, size = 13) {
  if (textWidth(text, size) <= most) return text;
  let kept = Array.from(text);
  while (kept.length && textWidth(`${kept.join('')}…`, size) > most) kept = kept.slice(0, -1);
  return `${kept.join('')}…`;
}

/** The width of an element, followed as the window changes. */
export function useWidth(ref, initial = 640) {
  const [width, set] = useState(initial);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => set(Math.floor(entry.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** Round numbers between two ends. */
export function ticks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => power * factor).find((one) => one >= rough * (1 - 1e-9));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}
