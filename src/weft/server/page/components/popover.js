// A small window beside what was pressed. Escape, a press elsewhere and scrolling close it; the focus goes back.
import { html, useEffect, useLayoutEffect, useRef } from '../vendor/htm-preact-standalone.module.js';

const GAP = 6;

/** Args: anchor: the element that was pressed; ready: whether the choices are there, of which the first gets the focus. */
export function Popover({ anchor, label, ready, onClose, children }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    const [from, own] = [anchor.getBoundingClientRect(), box.current.getBoundingClientRect()];
    const below = from.bottom + GAP + own.height <= window.innerHeight || from.top < own.height;
    const top = below ? from.bottom + GAP : from.top - GAP - own.height;
    const left = Math.min(Math.max(12, from.left), window.innerWidth - own.width - 12);
    box.current.style.top = `${Math.max(8, Math.min(top, window.innerHeight - own.height - 8))}px`;
    box.current.style.left = `${left}px`;
  });
  useEffect(() => {
    const outside = (event) => !box.current.contains(event.target) && !anchor.contains(event.target) && onClose();
    // The event of a scroll that was over before the window opened comes late: it counts if what was pressed has moved.
    const place = anchor.getBoundingClientRect();
    const scrolled = (event) => {
      const now = anchor.getBoundingClientRect();
      if (!box.current.contains(event.target) && Math.hypot(now.x - place.x, now.y - place.y) > 1) onClose();
    };
    document.addEventListener('pointerdown', outside);
    window.addEventListener('scroll', scrolled, true);
    return () => {
      document.removeEventListener('pointerdown', outside);
      window.removeEventListener('scroll', scrolled, true);
    };
  }, [anchor, onClose]);
  useEffect(() => {
    (ready ? box.current.querySelector('button') : box.current).focus({ preventScroll: true });
  }, [anchor, ready]);
  const onKeyDown = (event) => {
    const buttons = [...box.current.querySelectorAll('button:not(:disabled)')];
    const at = buttons.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Escape') {
      event.stopPropagation();
      anchor.focus({ preventScroll: true });
      onClose();
    } else if (step && buttons.length) {
      event.preventDefault();
      buttons[(at + step + buttons.length) % buttons.length].focus();
    }
  };
  return html`<div class="popover" ref=${box} role="dialog" tabindex="-1" aria-label=${label} onKeyDown=${onKeyDown}>${children}</div>`;
}
