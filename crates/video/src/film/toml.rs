//! Films in TOML, and as tables of a scenario.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::plain_error;
use skyhop_units::{Duration, Rate};

use super::{Film, FilmError, MOST_CHUNKS, MOST_TRACKS, Track, drawn};

/// A film as a file of data/films, or of the user's, says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilmKeys {
    /// What it is, in a line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where its numbers come from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// How long each chunk plays.
    pub chunk: Duration,
    /// How many chunks there are; as many as there are `sizes` where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u32>,
    /// Its tracks by ascending bitrate.
    #[serde(default, rename = "track", skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<TrackKeys>,
    /// In place of tracks: bitrates in a fixed ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,
    /// Whether sizes are drawn around bitrate x length; they are just that where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation: Option<Variation>,
}

/// A `[[track]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrackKeys {
    /// Its mean bitrate.
    pub bitrate: Rate,
    /// What it is called, such as "720p".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The size of each chunk in bytes; bitrate x length where not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<u64>,
}

/// `[ladder]`: bitrates each of which is `ratio` times the one below, up to `top`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// The highest bitrate.
    pub top: Rate,
    /// Of neighbours.
    pub ratio: f64,
    /// How many tracks there are.
    pub tracks: u32,
}

/// `[variation]`: how sizes are drawn, the same factor for all tracks of a chunk, log-normal around 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variation {
    /// The factors' standard deviation.
    pub relative_sd: f64,
    /// Of the draws.
    pub seed: u64,
}

impl Film {
    /// Reads the TOML of a film; `origin` is the file's name, for the film's own name and for messages.
    ///
    /// # Errors
    /// The text is not TOML of this form, or says what is no film.
    pub fn of_toml(text: &str, origin: &str) -> Result<Self, FilmError> {
        let keys: FilmKeys = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start).min(text.len());
            let before = &text.as_bytes()[..start];
            let line = Some(1 + before.iter().filter(|byte| **byte == b'\n').count());
            let what = plain_error(error.message());
            FilmError::Syntax { origin: origin.to_owned(), line, what }
        })?;
        Self::of_keys(&keys, origin)
    }

    /// The film that these keys stand for.
    ///
    /// # Errors
    /// They say what is no film.
    pub fn of_keys(keys: &FilmKeys, origin: &str) -> Result<Self, FilmError> {
        let wrong = |what: String| FilmError::no_film(origin, what);
        let tracks = keys.all_tracks().map_err(wrong)?;
        let sizes = keys.sizes(&tracks).map_err(wrong)?;
        let film = Self::new(origin, keys.chunk, tracks, &sizes)?;
        let (description, source) = (keys.description.clone(), keys.source.clone());
        Ok(Self { description, source, ..film })
    }

    /// The keys that stand for this film, with each chunk's size.
    pub fn to_keys(&self) -> FilmKeys {
        let sizes_of = |track| (0..self.chunks()).map(move |chunk| self.size_bytes(chunk, track));
        let tracks = self.tracks.iter().enumerate().map(|(number, track)| TrackKeys {
            bitrate: track.bitrate,
            name: track.name.clone(),
            sizes: sizes_of(number).collect(),
        });
        FilmKeys {
            description: self.description.clone(),
            source: self.source.clone(),
            chunk: self.chunk,
            chunks: None,
            tracks: tracks.collect(),
            ladder: None,
            variation: None,
        }
    }
}

impl FilmKeys {
    fn all_tracks(&self) -> Result<Vec<Track>, String> {
        let Some(ladder) = self.ladder else {
            let track = |keys: &TrackKeys| Track { bitrate: keys.bitrate, name: keys.name.clone() };
            return Ok(self.tracks.iter().map(track).collect());
        };
        if !self.tracks.is_empty() {
            return Err("has [[track]] and [ladder]; expected one of them".to_owned());
        }
        let Ladder { top, ratio, tracks } = ladder;
        if !(ratio > 1.0 && ratio <= 100.0) {
            return Err(format!("ladder.ratio is {ratio}; expected above 1, up to 100"));
        }
        if tracks as usize > MOST_TRACKS {
            return Err(format!("ladder.tracks is {tracks}; expected at most {MOST_TRACKS}"));
        }
        let bps = |below: u32| top.bits_per_second() as f64 / ratio.powi(below as i32);
        let bitrate = |below| Rate::from_bits_per_second(bps(below).round() as u64);
        Ok((0..tracks).rev().map(|below| Track { bitrate: bitrate(below), name: None }).collect())
    }

    fn sizes(&self, tracks: &[Track]) -> Result<Vec<Vec<u64>>, String> {
        let given = self.tracks.iter().filter(|track| !track.sizes.is_empty()).count();
        if given > 0 {
            return self.given_sizes(given);
        }
        let Some(chunks) = self.chunks else {
            return Err("the key `chunks` is missing, and no track has sizes".to_owned());
        };
        let chunks = chunks as usize;
        if chunks > MOST_CHUNKS {
            return Err(format!("the film has {chunks} chunks; expected 1 to {MOST_CHUNKS}"));
        }
        let mut sizes = drawn::constant(tracks, self.chunk, chunks);
        if let Some(variation) = self.variation {
            let sd = variation.relative_sd;
            if !(0.0..=10.0).contains(&sd) {
                return Err(format!("variation.relative_sd is {sd}; expected 0 to 10"));
            }
            drawn::varied(&mut sizes, variation);
        }
        Ok(sizes)
    }

    fn given_sizes(&self, given: usize) -> Result<Vec<Vec<u64>>, String> {
        if given < self.tracks.len() {
            return Err(format!(
                "{given} of {} tracks have sizes; expected all or none",
                self.tracks.len()
            ));
        }
        if self.variation.is_some() {
            return Err("has sizes and [variation]; expected one of them".to_owned());
        }
        let sizes: Vec<Vec<u64>> = self.tracks.iter().map(|track| track.sizes.clone()).collect();
        match self.chunks {
            Some(chunks) if sizes[0].len() != chunks as usize => Err(format!(
                "track 0 has sizes of {} chunks, but chunks = {chunks}",
                sizes[0].len()
            )),
            _ => Ok(sizes),
        }
    }
}
