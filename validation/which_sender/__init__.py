"""Page on which sender serves whom: data of four studies, answers, and the page."""
