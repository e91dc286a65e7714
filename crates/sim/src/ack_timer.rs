//! RTTs of acknowledgements, as tools that read a capture of the sender's side compute them.

use std::collections::VecDeque;
use std::ops::Range;

use skyhop_record::AckRtts;
use skyhop_units::Instant;

/// Measures the time from the first transmission of the segment with which an acknowledgement ends until the
/// acknowledgement arrives: `tcp.analysis.ack_rtt` of tshark. An acknowledgement that fills a gap ends with a segment
/// that waited behind the gap, and counts that wait. Unlike TCP's own RTT (RFC 6298 3), a segment that was sent
/// again is not left out.
#[derive(Debug, Default)]
pub(crate) struct AckTimer {
    /// Time at which each unacknowledged segment was sent first, from the segment `unacknowledged` on.
    first_sent: VecDeque<Instant>,
    unacknowledged: u64,
    total: AckRtts,
}

impl AckTimer {
    /// Take notice of the segments that are sent and not acknowledged at `now`, by sequence number. Call this whenever
    /// the sender has sent segments or received an acknowledgement.
    #[inline]
    pub(crate) fn update(&mut self, outstanding: Range<u64>, now: Instant) {
        let known = self.unacknowledged + self.first_sent.len() as u64;
        for _ in known..outstanding.end {
            self.first_sent.push_back(now);
        }
        if let Some(last) = outstanding.start.checked_sub(self.unacknowledged + 1) {
            let sent = self.first_sent[last as usize];
            self.first_sent.drain(..=last as usize);
            self.unacknowledged = outstanding.start;
            self.total.sum += now.saturating_since(sent);
            self.total.count += 1;
        }
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
}
