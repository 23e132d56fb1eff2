// Values as colours: the classes of weft.pictures (palette.py), whose style sheet gives each its colour.
const LAST = { sequential: 31, diverging: 30 };
const PREFIX = { sequential: 's', diverging: 'd' };

/** The class of a value between the ends of a scale; "none" where there is no value. */
export function levelClass(value, low, high, scale) {
  if (value === null || value === undefined || !Number.isFinite(value)) return 'none';
  const at = high > low ? (value - low) / (high - low) : 0.5;
  return PREFIX[scale] + Math.min(LAST[scale], Math.max(0, Math.round(at * LAST[scale])));
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
