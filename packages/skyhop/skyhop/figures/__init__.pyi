from skyhop.figures.sources import comparison_figure as comparison_figure
from skyhop.figures.sources import path_figure as path_figure
from skyhop.figures.sources import run_figure as run_figure
from skyhop.figures.style import Sheet as Sheet
from skyhop.figures.style import png_bytes as png_bytes
from skyhop.figures.style import save as save
