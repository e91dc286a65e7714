//! Films in TOML files, and as tables of a scenario.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{line_at, one_line, with_hint};
use skyhop_units::{Duration, Rate};

use super::{Film, FilmError, MOST_CHUNKS, MOST_TRACKS, Track, generated_sizes};

/// Keys of a film's TOML file, in data/films or the user's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilmKeys {
    /// Description in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Publication or other source of the film's numbers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Playback length of each chunk, 1 ms to 1 h.
    pub chunk: Duration,
    /// Number of chunks, 1 to 86400. Default: the number of `sizes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u32>,
    /// Tracks by ascending bitrate, at most 64.
    #[serde(default, rename = "track", skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<TrackKeys>,
    /// Bitrates in a fixed ratio, in place of tracks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,
    /// Random variation of chunk sizes around bitrate x length. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation: Option<Variation>,
}

/// `[[track]]`: one quality of the film.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrackKeys {
    /// Mean bitrate of the track; above 0.
    pub bitrate: Rate,
    /// Display name, such as "720p".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Size of each chunk in bytes, 1 B to 1 TiB. Default: bitrate x length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<u64>,
}

/// `[ladder]`: bitrates up to `top`, each of which is `ratio` times the one below.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// Highest bitrate of the ladder.
    pub top: Rate,
    /// Ratio of neighbouring bitrates, above 1 and up to 100.
    pub ratio: f64,
    /// Number of tracks, at most 64.
    pub tracks: u32,
}

/// `[variation]`: random factors of the chunk sizes, log-normal with mean 1. One factor applies to
/// a chunk in all tracks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variation {
    /// Standard deviation of the factors, 0 to 10.
    pub relative_sd: f64,
    /// Seed of the random draws.
    pub seed: u64,
}

impl Film {
    /// Parse the TOML of a film; `origin` is the file's name, which messages state and from which the
    /// film's name is derived.
    ///
    /// # Errors
    /// The text is not TOML with these keys, or does not describe a valid film.
    pub fn of_toml(text: &str, origin: &str) -> Result<Self, FilmError> {
        let keys: FilmKeys = toml::from_str(text).map_err(|error| {
            let line = Some(line_at(text, error.span().map_or(0, |span| span.start)));
            let what = one_line(&with_hint(error.message()));
            FilmError::Syntax { origin: origin.to_owned(), line, what }
        })?;
        Self::of_keys(&keys, origin)
    }

    /// Create the film that these keys describe.
    ///
    /// # Errors
    /// The keys do not describe a valid film.
    pub fn of_keys(keys: &FilmKeys, origin: &str) -> Result<Self, FilmError> {
        let wrong = |what: String| FilmError::no_film(origin, what);
        let tracks = keys.all_tracks().map_err(wrong)?;
        let sizes = keys.sizes(&tracks).map_err(wrong)?;
        let film = Self::new(origin, keys.chunk, tracks, &sizes)?;
        let (description, source) = (keys.description.clone(), keys.source.clone());
        Ok(Self { description, source, ..film })
    }

    /// Return keys that describe this film, including the size of each chunk.
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
        let mut sizes = generated_sizes::constant(tracks, self.chunk, chunks);
        if let Some(variation) = self.variation {
            let sd = variation.relative_sd;
            if !(0.0..=10.0).contains(&sd) {
                return Err(format!("variation.relative_sd is {sd}; expected 0 to 10"));
            }
            generated_sizes::varied(&mut sizes, variation);
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
