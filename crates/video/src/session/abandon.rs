//! Giving up a chunk that comes too slowly, as dash.js does (AbandonRequestsRule.js).

use skyhop_units::Duration;

use super::Request;
use crate::Film;

/// A chunk is given up if it would take longer than so many times its length (abandonDurationMultiplier).
const MOST_LENGTHS: f64 = 1.8;
/// No chunk is given up before so long (graceTimeThreshold).
const GRACE: Duration = Duration::from_millis(500);
/// The rate is the mean of so many measurements (minThroughputSamplesThreshold).
const MEASUREMENTS: usize = 6;
/// The share of that rate that the new track's bitrate may be (throughputSafetyFactor).
const SAFETY: f64 = 0.7;
/// With so much left to play nothing is given up (bufferTimeDefault).
const STABLE_BUFFER: Duration = Duration::from_secs(18);
/// Measurements are at least so far apart.
const APART: Duration = Duration::from_millis(50);

/// What was measured of the request that is out.
#[derive(Debug, Clone, Default)]
pub(super) struct Abandoning {
    measured_at: Duration,
    bps: Vec<f64>,
}

impl Abandoning {
    /// The track that the chunk had rather be asked for in, if that is less to wait for than what is left of it.
    pub(super) fn rather(
        &mut self,
        film: &Film,
        request: Request,
        elapsed: Duration,
        received: u64,
        buffer: Duration,
    ) -> Option<usize> {
        if elapsed < self.measured_at + APART {
            return None;
        }
        self.measured_at = elapsed;
        self.bps.push(received as f64 * 8.0 / elapsed.as_secs_f64());
        if elapsed < GRACE
            || self.bps.len() < MEASUREMENTS
            || buffer > STABLE_BUFFER
            || request.track == 0
        {
            return None;
        }
        let last = &self.bps[self.bps.len() - MEASUREMENTS..];
        let bps = last.iter().sum::<f64>() / MEASUREMENTS as f64;
        let whole_s = request.size_bytes as f64 * 8.0 / bps;
        if whole_s < MOST_LENGTHS * film.chunk.as_secs_f64() {
            return None;
        }
        let track = film.track_within(bps * SAFETY);
        let left = request.size_bytes - received;
        (track < request.track && left > film.size_bytes(request.chunk, track)).then_some(track)
    }
}
