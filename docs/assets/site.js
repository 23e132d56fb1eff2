// What the theme adds to a page can be used without a mouse: names for its toolbars, focus for what scrolls.
const improve = () => {
  document.querySelectorAll('.md-code__nav').forEach((tools, n) => { tools.ariaLabel = `Code ${n + 1}`; });
  for (const part of document.querySelectorAll('.md-typeset__scrollwrap, .md-typeset p:has(> img[src$=".svg"])')) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
};
new MutationObserver(improve).observe(document.body, { childList: true, subtree: true });
window.addEventListener('resize', improve);
window.addEventListener('load', improve);
