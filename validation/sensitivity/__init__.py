"""Page on where the headline claims of papers hold: data of a study per paper, maps, and texts."""
