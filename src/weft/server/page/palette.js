// Colours of values: the same perceptually uniform scales and the same hues as weft.pictures (palette.py).
//
// A scale is a straight line in OKLab (Ottosson 2020), so equal steps look equally large, and its lightness alone carries
// the value. The diverging scale is blue and orange, which no common colour blindness confuses. Figures name levels by
// classes (s0 to s31, d0 to d30), so a change of theme recolours them without drawing them again.

export const LEVELS = { sequential: 32, diverging: 31 };
const PREFIX = { sequential: 's', diverging: 'd' };
export const HUES = {
  light: ['#0066b3', '#d1495b', '#2a7f3f', '#7a4fa3', '#b07d00', '#2a9fd6', '#6b7280'],
  dark: ['#5aa9ff', '#ff8a80', '#6fce8a', '#c39bf5', '#f0c24b', '#7fd7ff', '#b0b7c3'],
};
// Page, text, faint text, grid.
export const PAGE = {
  light: ['#ffffff', '#1d2430', '#5b6472', '#d9dee6'],
  dark: ['#14181f', '#e8ecf2', '#9aa5b5', '#343c49'],
};
export const FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','Noto Sans CJK SC','PingFang SC'," +
  "'Microsoft YaHei','WenQuanYi Micro Hei',sans-serif";

function gamma(value) {
  return value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055;
}

/** A colour of OKLab in polar coordinates (hue in degrees) as #rrggbb, clipped to what a screen shows. */
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180);
  const b = chroma * Math.sin(hue * Math.PI / 180);
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  const linear = [
    4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
    -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
    -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
  ];
  return '#' + linear.map((part) =>
    Math.round(255 * gamma(Math.min(1, Math.max(0, part)))).toString(16).padStart(2, '0')).join('');
}

/** The relative luminance of #rrggbb, by which contrast is measured. */
function luminance(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** The colour of each level, and that of text on it. */
export function colours(scale, theme) {
  const dark = theme === 'dark';
  return Array.from({ length: LEVELS[scale] }, (_, number) => {
    let colour;
    if (scale === 'diverging') {
      const at = 2 * number / (LEVELS[scale] - 1) - 1;
      const lightness = dark ? 0.27 + 0.48 * Math.abs(at) : 0.97 - 0.42 * Math.abs(at);
      colour = oklch(lightness, 0.13 * Math.abs(at), at < 0 ? 255 : 55);
    } else {
      const at = number / (LEVELS[scale] - 1);
      colour = oklch(dark ? 0.25 + 0.60 * at : 0.97 - 0.57 * at, 0.012 + 0.12 * at, 255);
    }
    return [colour, luminance(colour) < 0.18 ? '#ffffff' : '#000000'];
  });
}

/** The class of a value between the ends of a scale; "none" where there is no value. */
export function levelClass(value, low, high, scale) {
  if (value === null || value === undefined || !Number.isFinite(value)) return 'none';
  const at = high > low ? (value - low) / (high - low) : 0.5;
  const last = LEVELS[scale] - 1;
  return PREFIX[scale] + Math.min(last, Math.max(0, Math.round(at * last)));
}

/** The ends of a scale for these values: symmetric around 0, or from 0 (or the least value) up. */
export function valueRange(values, scale) {
  const finite = values.filter((value) => Number.isFinite(value));
  if (!finite.length) return [0, 1];
  const low = finite.reduce((a, b) => Math.min(a, b));
  const high = finite.reduce((a, b) => Math.max(a, b));
  if (scale === 'diverging') {
    const end = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return [-end, end];
  }
  return [Math.min(0, low), high > 0 ? high : 1];
}

// Each rule as [selector, property, light, dark]; written with light-dark() on the page and as plain colours in files.
function rules() {
  const found = [];
  const add = (selector, property, light, dark) => found.push([selector, property, light, dark]);
  const [light, dark] = [PAGE.light, PAGE.dark];
  ['.page', '.ink', '.faint'].forEach((name, at) => add(name, 'fill', light[at], dark[at]));
  add('.grid', 'stroke', light[3], dark[3]);
  add('.axis', 'stroke', light[2], dark[2]);
  HUES.light.forEach((hue, number) => {
    add(`.line${number}`, 'stroke', hue, HUES.dark[number]);
    add(`.dot${number}`, 'fill', hue, HUES.dark[number]);
    add(`.hue${number}`, '--hue', hue, HUES.dark[number]);
  });
  for (const [scale, prefix] of Object.entries(PREFIX)) {
    const onDark = colours(scale, 'dark');
    colours(scale, 'light').forEach(([colour, ink], number) => {
      const name = `.${prefix}${number}`;
      for (const property of ['fill', 'background-color']) add(name, property, colour, onDark[number][0]);
      add(name, 'color', ink, onDark[number][1]);
      add(`.on-${prefix}${number}`, 'fill', ink, onDark[number][1]);
    });
  }
  return found;
}

const FIXED = '.none{fill:none}.grid,.axis,[class^=line]{fill:none}';

/** The rules of all classes for the page, which follow its colour scheme. */
export function pageStyle() {
  const own = rules().map(([selector, property, light, dark]) => `${selector}{${property}:light-dark(${light},${dark})}`);
  return FIXED + own.join('');
}

/** The rules of the classes that a saved figure uses, which follow the setting of its reader. */
export function fileStyle(used) {
  const kept = rules().filter(([selector]) => used.has(selector.slice(1)));
  const text = (at) => kept.map((rule) => `${rule[0]}{${rule[1]}:${rule[at]}}`).join('');
  return `${FIXED}${text(2)}@media (prefers-color-scheme:dark){${text(3)}}`;
}
