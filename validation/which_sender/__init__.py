"""Page on which sender serves whom: data of three studies, answers, and the page."""
