//! Records of a session: a row per chunk, and their summary.

use serde::{Deserialize, Serialize};

use crate::Film;
use crate::qoe::Qoe;

/// Record of an arrived chunk. Times count from the session's start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ChunkRow {
    /// Number of the chunk in the film, counted from 0.
    pub chunk: u32,
    /// Track of the chunk, counted from 0.
    pub track: u32,
    /// Bitrate of that track, in bit/s.
    pub bitrate_bps: u64,
    /// Size of the chunk in bytes.
    pub size_bytes: u64,
    /// Time of the request for the chunk that was answered completely, in nanoseconds.
    pub asked_ns: u64,
    /// Time at which the chunk was complete, in nanoseconds.
    pub arrived_ns: u64,
    /// Stall of playback until this chunk arrived; 0 for the first chunk, until which the start-up lasts.
    pub stall_ns: u64,
    /// Playback time in the buffer after the chunk's arrival, the chunk included.
    pub buffer_ns: u64,
    /// Wait of the player before the request, for room in the buffer or because the controller demanded it.
    pub waited_ns: u64,
    /// Bytes of the same chunk that were received in other tracks, in transfers that the player abandoned.
    pub abandoned_bytes: u64,
    /// Throughput that the controller estimated when it chose the track, in bit/s; `None` if it
    /// made no estimate.
    pub predicted_bps: Option<u64>,
}

impl ChunkRow {
    /// Create a row with only the fields that a score depends on: the track and the stall.
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

    /// Throughput of the chunk's transfer, in bit/s.
    pub fn throughput_bps(&self) -> f64 {
        8e9 * self.size_bytes as f64 / (self.arrived_ns - self.asked_ns).max(1) as f64
    }
}

/// Summary of the chunks of a session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of chunks that arrived.
    pub chunks: u64,
    /// Start-up delay: from the session's start until playback.
    pub startup_ns: u64,
    /// Total stall after the start-up.
    pub stall_ns: u64,
    /// Number of stalls after the start-up.
    pub stalls: u64,
    /// Number of chunks whose track differs from that of the chunk before.
    pub switches: u64,
    /// Mean of the chunks' bitrates, in bit/s.
    pub mean_bitrate_bps: f64,
    /// Bytes received in transfers of chunks that the player abandoned.
    pub abandoned_bytes: u64,
}

impl Summary {
    /// Summarize all chunks of a session.
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

/// Mean QoE per chunk of a session, without the start-up. With `without_first` the first chunk is left
/// out too, as in Pensieve's published sums.
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
