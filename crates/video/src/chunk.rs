//! What is recorded of a session: a row per chunk, and what they amount to.

use serde::{Deserialize, Serialize};

use crate::Film;
use crate::qoe::Qoe;

/// A chunk that has come. Times count from the session's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ChunkRow {
    /// Which of the film's chunks, counted from 0.
    pub chunk: u32,
    /// Its track, counted from 0.
    pub track: u32,
    /// That track's bitrate.
    pub bitrate_bps: u64,
    /// How large it is.
    pub size_bytes: u64,
    /// When the request was sent that was answered in full.
    pub asked_ns: u64,
    /// When all of it had come.
    pub arrived_ns: u64,
    /// How long the picture stood still for want of it; of the first chunk nothing: that is the start-up.
    pub stall_ns: u64,
    /// What was left to play once it had come, itself included.
    pub buffer_ns: u64,
    /// How long the player waited before it asked, for room in its buffer or because the controller wanted to.
    pub waited_ns: u64,
    /// What had come of the same chunk in other tracks when they were given up.
    pub abandoned_bytes: u64,
    /// The rate that the controller believed in as it chose; `None` where it believed in none.
    pub predicted_bps: Option<u64>,
}

impl ChunkRow {
    /// What counts of a chunk: its track, and how long the picture stood still for it.
    pub fn of(film: &Film, chunk: u32, track: u32, stall_ns: u64) -> Self {
        Self {
            chunk,
            track,
            bitrate_bps: film.bitrate_bps(track as usize),
            size_bytes: film.size_bytes(chunk as usize, track as usize),
            asked_ns: 0,
            arrived_ns: 0,
            stall_ns,
            buffer_ns: 0,
            waited_ns: 0,
            abandoned_bytes: 0,
            predicted_bps: None,
        }
    }

    /// At which rate it came.
    pub fn throughput_bps(&self) -> f64 {
        8e9 * self.size_bytes as f64 / (self.arrived_ns - self.asked_ns).max(1) as f64
    }
}

/// What the chunks of a session amount to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many chunks came.
    pub chunks: u64,
    /// From the session's beginning until the picture moved.
    pub startup_ns: u64,
    /// How long it stood still after that.
    pub stall_ns: u64,
    /// How often.
    pub stalls: u64,
    /// How often a chunk had another track than the one before.
    pub switches: u64,
    /// The mean of the chunks' bitrates.
    pub mean_bitrate_bps: f64,
    /// What came for nothing.
    pub abandoned_bytes: u64,
}

impl Summary {
    /// Of all chunks of a session.
    pub fn of(rows: &[ChunkRow]) -> Self {
        let sum = |part: fn(&ChunkRow) -> u64| rows.iter().map(part).sum::<u64>();
        let bits_per_second: f64 = rows.iter().map(|row| row.bitrate_bps as f64).sum();
        Self {
            chunks: rows.len() as u64,
            startup_ns: rows.first().map_or(0, |first| first.arrived_ns),
            stall_ns: sum(|row| row.stall_ns),
            stalls: rows.iter().filter(|row| row.stall_ns > 0).count() as u64,
            switches: rows.windows(2).filter(|pair| pair[0].track != pair[1].track).count() as u64,
            mean_bitrate_bps: if rows.is_empty() {
                0.0
            } else {
                bits_per_second / rows.len() as f64
            },
            abandoned_bytes: sum(|row| row.abandoned_bytes),
        }
    }
}

/// A session's quality of experience per chunk, the start-up left out. `without_first`: nor does the first chunk count, as in
/// Pensieve's published sums.
pub fn score(rows: &[ChunkRow], film: &Film, qoe: &Qoe, without_first: bool) -> f64 {
    let quality = |row: &ChunkRow| qoe.quality(row.track as usize);
    let mut total = 0.0;
    for (index, row) in rows.iter().enumerate().skip(usize::from(without_first)) {
        let stall_s = row.stall_ns as f64 / 1e9;
        let change =
            index.checked_sub(1).map_or(0.0, |before| quality(row) - quality(&rows[before]));
        total += qoe.reward(quality(row), stall_s, change.abs());
    }
    debug_assert!(rows.len() <= film.chunks());
    let counted = rows.len().saturating_sub(usize::from(without_first));
    if counted == 0 { 0.0 } else { total / counted as f64 }
}
