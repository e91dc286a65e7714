//! Films: tracks by ascending bitrate, cut into chunks of one length, with the size of each chunk.
//!
//! A film is read from TOML (`toml.rs`), from a DASH manifest (`mpd.rs`) or from Pensieve's lists of sizes
//! (`size_lists.rs`). Some come with skyhop: data/films, embedded at build.

mod generated_sizes;
mod mpd;
mod size_lists;
mod toml;

use include_dir::{Dir, include_dir};
use skyhop_units::{Duration, Quoted, Rate, did_you_mean};
use thiserror::Error;

pub use self::mpd::film_of_mpd;
pub use self::size_lists::film_of_size_lists;
pub use self::toml::{FilmKeys, Ladder, TrackKeys, Variation};

static FILMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../data/films");

/// Largest number of chunks of a film: a day of one second each.
pub const MOST_CHUNKS: usize = 86_400;
/// Largest number of tracks of a film.
pub const MOST_TRACKS: usize = 64;

/// Film as a server offers it. It has at least one track and one chunk, ascending bitrates, and no
/// chunk of size zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Film {
    /// Name of the film: the file's name without its extension.
    pub name: String,
    /// Description in one line.
    pub description: String,
    /// Publication or other source of the film's numbers.
    pub source: String,
    /// Playback length of each chunk.
    pub chunk: Duration,
    /// Tracks in ascending order of bitrate.
    pub tracks: Vec<Track>,
    chunks: usize,
    /// Sizes in bytes: of chunk 0 in each track, then of chunk 1 in each track, and so on.
    sizes: Vec<u64>,
}

/// Track: one of a film's qualities.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Mean bitrate of the track.
    pub bitrate: Rate,
    /// Display name, such as "720p".
    pub name: Option<String>,
}

/// Reasons for which a film cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FilmError {
    /// The text does not conform to the file's format.
    #[error("{origin}{}: {what}", at_line(*line))]
    Syntax {
        /// File name, or a word for the text's origin.
        origin: String,
        /// Line number counted from 1, if known.
        line: Option<usize>,
        /// Problem, and what was expected.
        what: String,
    },
    /// The content does not describe a valid film.
    #[error("{origin}: {what}")]
    NoFilm {
        /// File name, or a word for the text's origin.
        origin: String,
        /// Problem, and what was expected.
        what: String,
    },
    /// No film that comes with skyhop has this name.
    #[error("unknown film {}{}; expected {expected}", Quoted(name), did_you_mean(name, expected.split(", ")))]
    Unknown {
        /// Name that was given.
        name: String,
        /// Names of the films that exist.
        expected: String,
    },
}

fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

impl FilmError {
    fn no_film(origin: &str, what: impl Into<String>) -> Self {
        Self::NoFilm { origin: origin.to_owned(), what: what.into() }
    }
}

/// Names of the films that come with skyhop.
pub fn film_names() -> Vec<String> {
    let mut names: Vec<String> = FILMS
        .files()
        .filter_map(|file| file.path().file_stem())
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

impl Film {
    /// Return the film called `name` that comes with skyhop.
    ///
    /// # Errors
    /// No film has that name.
    pub fn shipped(name: &str) -> Result<Self, FilmError> {
        let file = FILMS.get_file(format!("{name}.toml"));
        let Some(text) = file.and_then(|file| file.contents_utf8()) else {
            let (name, expected) = (name.to_owned(), film_names().join(", "));
            return Err(FilmError::Unknown { name, expected });
        };
        Self::of_toml(text, &format!("{name}.toml"))
    }

    /// Create a film of these tracks, with the sizes of each track's chunks in bytes.
    ///
    /// # Errors
    /// There are no tracks or chunks, or too many; the bitrates do not ascend; or the sizes do not
    /// match the tracks or are zero.
    pub fn new(
        origin: &str,
        chunk: Duration,
        tracks: Vec<Track>,
        sizes_by_track: &[Vec<u64>],
    ) -> Result<Self, FilmError> {
        let chunks = check(chunk, &tracks, sizes_by_track)
            .map_err(|what| FilmError::no_film(origin, what))?;
        let of_chunk = |chunk: usize| sizes_by_track.iter().map(move |sizes| sizes[chunk]);
        Ok(Self {
            name: stem(origin),
            description: String::new(),
            source: String::new(),
            chunk,
            tracks,
            chunks,
            sizes: (0..chunks).flat_map(of_chunk).collect(),
        })
    }

    /// Number of chunks of each track.
    pub const fn chunks(&self) -> usize {
        self.chunks
    }

    /// Size of a chunk of a track, in bytes.
    #[inline]
    pub fn size_bytes(&self, chunk: usize, track: usize) -> u64 {
        self.sizes[chunk * self.tracks.len() + track]
    }

    /// Sizes of a chunk in bytes, by track.
    #[inline]
    pub fn sizes_of(&self, chunk: usize) -> &[u64] {
        let tracks = self.tracks.len();
        &self.sizes[chunk * tracks..(chunk + 1) * tracks]
    }

    /// Bitrate of a track, in bit/s.
    #[inline]
    pub fn bitrate_bps(&self, track: usize) -> u64 {
        self.tracks[track].bitrate.bits_per_second()
    }

    /// Number of the highest track.
    pub fn top(&self) -> usize {
        self.tracks.len() - 1
    }

    /// Highest track whose bitrate is at most `bps`; the lowest track if there is none.
    pub fn track_within(&self, bps: f64) -> usize {
        let is_within = |track: &Track| track.bitrate.bits_per_second() as f64 <= bps;
        self.tracks.iter().rposition(is_within).unwrap_or(0)
    }

    /// Playback length of the film.
    pub fn length(&self) -> Duration {
        self.chunk * self.chunks as u64
    }

    /// Return the film with all bitrates and sizes scaled so that the top track has this bitrate.
    ///
    /// # Errors
    /// The bitrate is so low that tracks or chunks round to zero or coincide.
    pub fn with_top(&self, top: Rate) -> Result<Self, FilmError> {
        let factor = top.bits_per_second() as f64 / self.bitrate_bps(self.top()) as f64;
        let scaled = |number: u64| (number as f64 * factor).round() as u64;
        let tracks = self.tracks.iter().map(|track| Track {
            bitrate: Rate::from_bits_per_second(scaled(track.bitrate.bits_per_second())),
            name: track.name.clone(),
        });
        let sizes: Vec<Vec<u64>> = (0..self.tracks.len())
            .map(|track| {
                (0..self.chunks).map(|chunk| scaled(self.size_bytes(chunk, track))).collect()
            })
            .collect();
        let scaled = Self::new(&self.name, self.chunk, tracks.collect(), &sizes)?;
        let (description, source) = (self.description.clone(), self.source.clone());
        Ok(Self { description, source, ..scaled })
    }
}

/// Check a film's parts; return the number of chunks, or the problem.
fn check(chunk: Duration, tracks: &[Track], sizes: &[Vec<u64>]) -> Result<usize, String> {
    if tracks.is_empty() {
        return Err(
            "the film has no tracks; expected at least one [[track]] with a bitrate".to_owned()
        );
    }
    if tracks.len() > MOST_TRACKS {
        return Err(format!(
            "the film has {} tracks; expected at most {MOST_TRACKS}",
            tracks.len()
        ));
    }
    if chunk < Duration::from_millis(1) || chunk > Duration::from_secs(3_600) {
        return Err(format!("a chunk of {chunk}; expected 1 ms to 1 h"));
    }
    if tracks[0].bitrate == Rate::ZERO {
        return Err("track 0 has a bitrate of 0 bit/s; expected more".to_owned());
    }
    for (number, pair) in (1..).zip(tracks.windows(2)) {
        let [before, bitrate] = [pair[0].bitrate, pair[1].bitrate];
        if bitrate <= before {
            return Err(format!(
                "track {number} has {bitrate}, the track before it {before}; expected ascending bitrates"
            ));
        }
    }
    if sizes.len() != tracks.len() {
        return Err(format!(
            "there are sizes of {} tracks, but {} tracks",
            sizes.len(),
            tracks.len()
        ));
    }
    let chunks = sizes[0].len();
    if !(1..=MOST_CHUNKS).contains(&chunks) {
        return Err(format!("the film has {chunks} chunks; expected 1 to {MOST_CHUNKS}"));
    }
    for (number, sizes) in sizes.iter().enumerate() {
        if sizes.len() != chunks {
            let has = sizes.len();
            return Err(format!("track {number} has sizes of {has} chunks, track 0 of {chunks}"));
        }
        // With this upper limit, sums over all chunks, in bits, are exact.
        if let Some(chunk) = sizes.iter().position(|size| *size == 0 || *size > 1 << 40) {
            let size = sizes[chunk];
            return Err(format!(
                "chunk {chunk} of track {number} has {size} B; expected 1 B to 1 TiB"
            ));
        }
    }
    Ok(chunks)
}

/// File name without directories and extension.
fn stem(origin: &str) -> String {
    let stem = std::path::Path::new(origin).file_stem();
    stem.map_or_else(|| origin.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
