//! Giving up a chunk that comes too slowly, as dash.js does (AbandonRequestsRule.js of dash.js 5.2.1, with its settings). There it is
//! done once per chunk, too, and the time counts from the first byte.

use skyhop_units::Duration;

use super::Request;
use crate::Film;

/// A chunk is given up if all of it would take longer than so many times its length (abandonDurationMultiplier).
const MOST_LENGTHS: f64 = 1.8;
/// No chunk is given up within so long of its first byte (minSegmentDownloadTimeThresholdInMs).
const GRACE: Duration = Duration::from_millis(500);
/// Nor before so many measurements (minThroughputSamplesThreshold).
const MEASUREMENTS: u32 = 6;
/// With more left to play nothing is given up (bufferTimeDefault).
const STABLE_BUFFER: Duration = Duration::from_secs(18);
/// Measurements are at least so far apart: browsers tell of progress so often.
const APART: Duration = Duration::from_millis(50);

/// What was measured of the request that is out.
#[derive(Debug, Clone, Default)]
pub(super) struct Abandoning {
    /// The first: what had come by then is left out, since the request's own delay is in it.
    first: Option<(Duration, u64)>,
    measured_at: Duration,
    measurements: u32,
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
        let (first_at, first_bytes) = *self.first.get_or_insert((elapsed, received));
        if self.measurements > 0 && elapsed < self.measured_at + APART {
            return None;
        }
        (self.measured_at, self.measurements) = (elapsed, self.measurements + 1);
        let since_first = elapsed.saturating_sub(first_at);
        let is_early = since_first <= GRACE || self.measurements < MEASUREMENTS;
        if is_early || buffer > STABLE_BUFFER || request.track == 0 {
            return None;
        }
        let bps = (received - first_bytes) as f64 * 8.0 / since_first.as_secs_f64();
        let whole_s = request.size_bytes as f64 * 8.0 / bps;
        if whole_s < MOST_LENGTHS * film.chunk.as_secs_f64() {
            return None;
        }
        let track = film.track_within(bps);
        let left = request.size_bytes - received;
        (track < request.track && left > film.size_bytes(request.chunk, track)).then_some(track)
    }
}
