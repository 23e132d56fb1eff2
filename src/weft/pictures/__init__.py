"""Pictures: plain data as SVG, HTML or coloured text in a terminal.

figures.py     the kinds of figures as data: ColouredText, HeatMap, Curves, Bars, Tree and others
palette.py     perceptually uniform, colour-blind-safe colours for light and dark pages
svg.py         a small SVG layer
draw_*.py      figures as SVG
page.py        to_svg, and to_html: one file without network access
terminal.py    print_figure: colours in a terminal, tab-separated values elsewhere
save.py        .html, .svg, .png, .json by the name of a file
"""

from weft.pictures.figures import (
    Alignment,
    Band,
    Bars,
    ColouredText,
    Curve,
    Curves,
    Figure,
    HeatMap,
    Interval,
    Intervals,
    StateDiagram,
    Tree,
    TreeNode,
)
from weft.pictures.page import to_html, to_svg
from weft.pictures.terminal import plain_lines, print_figure
