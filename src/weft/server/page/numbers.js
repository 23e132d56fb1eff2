// Numbers and tokens as people read them.

/** A number for a label: three digits, without a needless exponent. */
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 10000 || size < 0.001) return value.toExponential(0).replace('e+', 'e');
  return size >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

export function percent(value) {
  if (value > 0 && value < 0.001) return `${short(Number((100 * value).toPrecision(2)))}%`;
  return `${(100 * value).toFixed(value >= 0.9995 || value === 0 ? 0 : 1)}%`;
}

/** A count with thousands separators. */
export function count(value) {
  return value === null || value === undefined ? '–' : value.toLocaleString('en-US');
}

/** A token with its blanks made visible. */
export function visible(token) {
  return token === ' ' ? '␣' : token.replace(/\n/g, '↵').replace(/\t/g, '⇥');
}
