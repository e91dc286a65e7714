//! Films: tracks by ascending bitrate, cut into chunks of one length, and the size of each.
//!
//! A film is read from TOML (`toml.rs`), from a DASH manifest (`mpd.rs`) or from Pensieve's lists of sizes
//! (`size_lists.rs`). Some come with skyhop: data/films, embedded at build.

mod drawn;
mod mpd;
mod size_lists;
mod toml;

use include_dir::{Dir, include_dir};
use skyhop_units::{Duration, Quoted, Rate};
use thiserror::Error;

pub use self::mpd::film_of_mpd;
pub use self::size_lists::film_of_size_lists;
pub use self::toml::{FilmKeys, Ladder, TrackKeys, Variation};

static FILMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../data/films");

/// The most chunks that a film may have: a day of one second each.
pub const MOST_CHUNKS: usize = 86_400;
/// The most tracks that a film may have.
pub const MOST_TRACKS: usize = 64;

/// A film as a server offers it. There is at least one track and one chunk, bitrates ascend, and no size is zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Film {
    /// What it is called: the file's name without its ending.
    pub name: String,
    /// What it is, in a line.
    pub description: String,
    /// Where its numbers come from.
    pub source: String,
    /// How long each chunk plays.
    pub chunk: Duration,
    /// By ascending bitrate.
    pub tracks: Vec<Track>,
    chunks: usize,
    /// Those of chunk 0 by track, then of chunk 1 …
    sizes: Vec<u64>,
}

/// One of a film's qualities.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Its mean bitrate.
    pub bitrate: Rate,
    /// What it is called, such as "720p".
    pub name: Option<String>,
}

/// Why there is no such film.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FilmError {
    /// The text is not of its format.
    #[error("{origin}{}: {what}", at_line(*line))]
    Syntax {
        /// The file, or a word for where the text came from.
        origin: String,
        /// Counted from 1, where it is known.
        line: Option<usize>,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// What it says is no film.
    #[error("{origin}: {what}")]
    NoFilm {
        /// The file, or a word for where the text came from.
        origin: String,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// No film that comes with skyhop is called so.
    #[error("unknown film {}; expected {expected}", Quoted(name))]
    Unknown {
        /// The name given.
        name: String,
        /// Those that there are.
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

/// The names of the films that come with skyhop.
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
    /// The film called `name` that comes with skyhop.
    ///
    /// # Errors
    /// There is none.
    pub fn shipped(name: &str) -> Result<Self, FilmError> {
        let file = FILMS.get_file(format!("{name}.toml"));
        let Some(text) = file.and_then(|file| file.contents_utf8()) else {
            let (name, expected) = (name.to_owned(), film_names().join(", "));
            return Err(FilmError::Unknown { name, expected });
        };
        Self::of_toml(text, &format!("{name}.toml"))
    }

    /// A film of these tracks, with each track's sizes.
    ///
    /// # Errors
    /// There is no track or no chunk, there are too many, bitrates do not ascend, or sizes do not match or are zero.
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

    /// How many chunks it has.
    pub const fn chunks(&self) -> usize {
        self.chunks
    }

    /// The size of a chunk of a track.
    #[inline]
    pub fn size_bytes(&self, chunk: usize, track: usize) -> u64 {
        self.sizes[chunk * self.tracks.len() + track]
    }

    /// The sizes of a chunk by track.
    #[inline]
    pub fn sizes_of(&self, chunk: usize) -> &[u64] {
        let tracks = self.tracks.len();
        &self.sizes[chunk * tracks..(chunk + 1) * tracks]
    }

    /// The bitrate of a track in bits per second.
    #[inline]
    pub fn bitrate_bps(&self, track: usize) -> u64 {
        self.tracks[track].bitrate.bits_per_second()
    }

    /// The number of the highest track.
    pub fn top(&self) -> usize {
        self.tracks.len() - 1
    }

    /// The highest track of which the bitrate is at most `bps`; the lowest where none is.
    pub fn track_within(&self, bps: f64) -> usize {
        let is_within = |track: &Track| track.bitrate.bits_per_second() as f64 <= bps;
        self.tracks.iter().rposition(is_within).unwrap_or(0)
    }

    /// How long it plays.
    pub fn length(&self) -> Duration {
        self.chunk * self.chunks as u64
    }

    /// The same film with all bitrates and sizes scaled so that the top track has this bitrate.
    ///
    /// # Errors
    /// At so low a bitrate tracks or chunks become nothing.
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

/// How many chunks there are, or what is wrong.
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
        // So that sums over all chunks, in bits, stay numbers.
        if let Some(chunk) = sizes.iter().position(|size| *size == 0 || *size > 1 << 40) {
            let size = sizes[chunk];
            return Err(format!(
                "chunk {chunk} of track {number} has {size} B; expected 1 B to 1 TiB"
            ));
        }
    }
    Ok(chunks)
}

/// A file's name without directories and ending.
fn stem(origin: &str) -> String {
    let stem = std::path::Path::new(origin).file_stem();
    stem.map_or_else(|| origin.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
