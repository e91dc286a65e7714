//! RTTs of acknowledgements, as tools that read a capture of the sender's side compute them.

use std::ops::Range;

use skyhop_record::AckRtts;
use skyhop_units::Instant;

/// Measures the time from the first transmission of the segment with which an acknowledgement ends until the
/// acknowledgement arrives: `tcp.analysis.ack_rtt` of tshark. An acknowledgement that fills a gap ends with a segment
/// that waited behind the gap, and counts that wait. Unlike TCP's own RTT (RFC 6298 3), a segment that was sent
/// again is not left out.
#[derive(Debug, Default)]
pub(crate) struct AckTimer {
    /// Time at which each segment of `outstanding` was sent first, at its number modulo the length, a power of two.
    first_sent: Vec<Instant>,
    /// Segments that are sent and not acknowledged.
    outstanding: Range<u64>,
    total: AckRtts,
}

impl AckTimer {
    /// Take notice of the segments that are sent and not acknowledged at `now`, by sequence number. Call this whenever
    /// the sender has sent segments or received an acknowledgement.
    #[inline]
    pub(crate) fn update(&mut self, outstanding: Range<u64>, now: Instant) {
        while self.outstanding.end < outstanding.end {
            self.push(now);
        }
        if self.outstanding.start < outstanding.start {
            let last = outstanding.start - 1;
            self.total.sum += now.saturating_since(self.first_sent[self.place(last)]);
            self.total.count += 1;
            self.outstanding.start = outstanding.start;
        }
    }

    #[inline]
    fn push(&mut self, now: Instant) {
        let Range { start, end } = self.outstanding;
        if end - start == self.first_sent.len() as u64 {
            self.grow();
        }
        let place = self.place(end);
        self.first_sent[place] = now;
        self.outstanding.end += 1;
    }

    #[inline]
    fn place(&self, segment: u64) -> usize {
        segment as usize & (self.first_sent.len() - 1)
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = vec![Instant::START; (2 * self.first_sent.len()).max(64)];
        let mask = larger.len() - 1;
        for segment in self.outstanding.clone() {
            larger[segment as usize & mask] = self.first_sent[self.place(segment)];
        }
        self.first_sent = larger;
    }

    /// RTTs of all acknowledgements so far.
    pub(crate) fn total(&self) -> AckRtts {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use skyhop_units::Duration;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    #[test]
    fn an_acknowledgement_counts_from_the_first_transmission_of_its_last_segment() {
        let mut timer = AckTimer::default();
        timer.update(0..2, at(0));
        timer.update(0..3, at(10));
        // Segment 0 is lost and sent again at 600 ms; the acknowledgement of all three ends with segment 2.
        timer.update(0..3, at(600));
        timer.update(3..3, at(1200));
        assert_eq!(timer.total(), AckRtts { sum: Duration::from_millis(1190), count: 1 });
        // A duplicate acknowledges nothing.
        timer.update(3..3, at(1250));
        assert_eq!(timer.total().count, 1);
        // The only segment is lost and sent again: the time counts from the first transmission.
        timer.update(3..4, at(1300));
        timer.update(3..4, at(2000));
        timer.update(4..4, at(2600));
        assert_eq!(timer.total(), AckRtts { sum: Duration::from_millis(1190 + 1300), count: 2 });
    }

    #[test]
    fn times_are_kept_however_many_segments_are_outstanding() {
        let mut timer = AckTimer::default();
        for sent in 1..=1_000 {
            timer.update(0..sent, at(sent));
        }
        for acked in 1..=1_000 {
            timer.update(acked..1_000, at(acked + 5_000));
        }
        // Each waits 5 s from its own transmission.
        assert_eq!(timer.total(), AckRtts { sum: Duration::from_secs(5_000), count: 1_000 });
    }
}
