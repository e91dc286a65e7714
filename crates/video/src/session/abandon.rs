//! Abandonment of chunks that arrive too slowly, as in dash.js (AbandonRequestsRule.js of dash.js 5.2.1, with
//! its default settings). As in dash.js, a chunk is abandoned at most once, and times are counted from the
//! first byte.

use skyhop_units::Duration;

use super::Request;
use crate::Film;

/// Longest transfer of a chunk, as a multiple of the chunk's playback length: a chunk whose
/// transfer would take longer is abandoned (abandonDurationMultiplier).
const MOST_LENGTHS: f64 = 1.8;
/// Time after the first byte in which no chunk is abandoned (minSegmentDownloadTimeThresholdInMs).
const GRACE: Duration = Duration::from_millis(500);
/// Minimum number of measurements before a chunk is abandoned (minThroughputSamplesThreshold).
const MEASUREMENTS: u32 = 6;
/// Buffer level above which no chunk is abandoned (bufferTimeDefault).
const STABLE_BUFFER: Duration = Duration::from_secs(18);
/// Shortest interval between measurements: the interval at which browsers report progress.
const APART: Duration = Duration::from_millis(50);

/// Progress measurements of the outstanding request.
#[derive(Debug, Clone, Default)]
pub(super) struct TransferProgress {
    /// Time and bytes of the first measurement. These bytes are excluded from the throughput, because the
    /// time in which they arrived includes the request's delay.
    first: Option<(Duration, u64)>,
    measured_at: Duration,
    measurements: u32,
}

impl TransferProgress {
    /// Return the lower track in which to request the chunk again, if the chunk in that track is smaller
    /// than the missing rest of the current transfer.
    pub(super) fn lower_track(
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
