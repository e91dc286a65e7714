"""Playback in a real browser with dash.js, over the path of a live run."""
