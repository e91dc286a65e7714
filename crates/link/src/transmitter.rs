//! Transmission times at a rate that changes over time.

use skyhop_model::DuringOutage;
use skyhop_units::{Bytes, Instant, Rate};

use crate::timeline::Timeline;
use crate::{LinkSchedule, Piece};

/// Work of one wire byte, in bits times nanoseconds per second: work divided by a rate in bit/s is a time in
/// ns.
const WORK_PER_BYTE: u64 = 8 * 1_000_000_000;

/// Transmitter behind the queue: it sends one packet at a time, at the rate of the moment.
#[derive(Debug)]
pub(crate) struct Transmitter {
    rate: Timeline<Piece<Rate>>,
    /// Work left over by the last transmission: tokens of the bucket, or the fraction of a nanosecond by which
    /// its end was rounded up.
    spare_work: u64,
    /// Token bucket, which saves unused rate while the link is idle. Boxed, as few links have one.
    bucket: Option<Box<TokenBucket>>,
}

/// Token bucket of Linux's tbf (net/sched/sch_tbf.c), without a peak rate: a packet leaves at once if the
/// bucket holds tokens for its work.
#[derive(Debug)]
struct TokenBucket {
    rate: Timeline<Piece<Rate>>,
    max_work: u64,
    /// Time up to which tokens have been added.
    filled: Instant,
}

impl TokenBucket {
    /// Add the tokens gained since the last fill to the `work` left then; return the content of the bucket at
    /// `until`, in units of work.
    fn fill(&mut self, mut work: u64, until: Instant) -> u64 {
        while self.filled < until {
            let rate = self.rate.seek(self.filled).value.bits_per_second();
            let end = self.rate.until().min(until);
            let gained = rate.saturating_mul(end.saturating_since(self.filled).as_nanos());
            work = work.saturating_add(gained).min(self.max_work);
            self.filled = end;
        }
        work
    }
}

impl Transmitter {
    pub(crate) fn new(schedule: &LinkSchedule) -> Self {
        let bucket = (schedule.burst > Bytes::ZERO).then(|| {
            Box::new(TokenBucket {
                rate: Timeline::new(service_rate(schedule)),
                max_work: schedule.burst.as_u64().saturating_mul(WORK_PER_BYTE),
                filled: Instant::START,
            })
        });
        // The bucket is full at first, as tbf's is.
        let spare_work = bucket.as_ref().map_or(0, |bucket| bucket.max_work);
        Self { rate: Timeline::new(service_rate(schedule)), spare_work, bucket }
    }

    /// Earliest time from `at` on at which a transmission can begin; [`Instant::NEVER`] if the rate stays zero.
    #[inline]
    pub(crate) fn earliest_start(&mut self, at: Instant) -> Instant {
        let mut opens = at;
        while self.rate.seek(opens).value == Rate::ZERO {
            opens = self.rate.until();
            if opens == Instant::NEVER {
                break;
            }
        }
        opens
    }

    /// End of the transmission of `size` bytes that begins at `begins`; [`Instant::NEVER`] if the remaining
    /// schedule never carries them.
    ///
    /// `back_to_back` is true if the packet had to wait and its transmission begins at the moment at which the
    /// previous one ends. The transmission then gets the fraction of a nanosecond that rounding left over.
    #[inline]
    pub(crate) fn transmit(&mut self, begins: Instant, size: Bytes, back_to_back: bool) -> Instant {
        let spare = match &mut self.bucket {
            Some(bucket) => bucket.fill(self.spare_work, begins),
            None if back_to_back => self.spare_work,
            None => 0,
        };
        let ends = self.work_off(begins, size, spare);
        if let Some(bucket) = &mut self.bucket {
            bucket.filled = ends;
        }
        ends
    }

    /// End of the transmission; `spare` of its work is already done.
    #[inline]
    fn work_off(&mut self, begins: Instant, size: Bytes, spare: u64) -> Instant {
        let work = size.as_u64().saturating_mul(WORK_PER_BYTE);
        self.spare_work = spare.saturating_sub(work);
        let mut remaining = work.saturating_sub(spare);
        let mut at = begins;
        while remaining > 0 {
            let rate = self.rate.seek(at).value.bits_per_second();
            let until = self.rate.until();
            if rate > 0 {
                let available_ns = until.saturating_since(at).as_nanos();
                let needed_ns = remaining.div_ceil(rate);
                if needed_ns <= available_ns {
                    // The product may exceed 64 bits, but the difference is below `rate`.
                    self.spare_work = needed_ns.wrapping_mul(rate).wrapping_sub(remaining);
                    return Instant::from_nanos(at.as_nanos() + needed_ns);
                }
                remaining -= available_ns * rate;
            }
            if until == Instant::NEVER {
                return Instant::NEVER;
            }
            at = until;
        }
        at
    }
}

/// Rate at which the queue is served over time: the schedule's, and zero in outages that hold the queue.
fn service_rate(schedule: &LinkSchedule) -> Vec<Piece<Rate>> {
    let held = match schedule.during_outage {
        DuringOutage::Hold => schedule.outages.as_slice(),
        DuringOutage::Drop => &[],
    };
    let mut changes: Vec<Instant> = schedule.rate.iter().map(|piece| piece.from).collect();
    changes.extend(held.iter().flat_map(|outage| [outage.from, outage.until]));
    changes.sort_unstable();
    let serve = |from| {
        let next = held.partition_point(|outage| outage.until <= from);
        let is_held = held.get(next).is_some_and(|outage| outage.from <= from);
        Piece { from, value: if is_held { Rate::ZERO } else { schedule.rate_at(from) } }
    };
    let mut pieces: Vec<Piece<Rate>> = changes.into_iter().map(serve).collect();
    pieces.dedup_by_key(|piece| piece.value);
    pieces
}

#[cfg(test)]
mod tests {
    use skyhop_units::{Duration, Ratio};

    use super::*;
    use crate::Outage;

    fn ms(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    /// Schedule of 12 Mbit/s, so that 1500 bytes take 1 ms, then of other rates (bit/s) from the given
    /// milliseconds on.
    fn schedule(changes: &[(u64, u64)]) -> LinkSchedule {
        let rate = Rate::from_bits_per_second(12_000_000);
        let mut schedule = LinkSchedule::fixed(Duration::ZERO, rate, Ratio::ZERO);
        schedule.rate.extend(changes.iter().map(|&(from_ms, bps)| Piece {
            from: ms(from_ms),
            value: Rate::from_bits_per_second(bps),
        }));
        schedule
    }

    #[test]
    fn a_rate_change_takes_effect_in_the_middle_of_a_packet() {
        let mut transmitter = Transmitter::new(&schedule(&[(1, 6_000_000), (3, 24_000_000)]));
        // 2 ms of work at 12 Mbit/s: 1 ms there, then the other half takes 2 ms at 6 Mbit/s.
        assert_eq!(transmitter.transmit(ms(0), Bytes::new(3000), false), ms(3));
        assert_eq!(transmitter.transmit(ms(3), Bytes::new(3000), true), ms(4));
    }

    #[test]
    fn nothing_progresses_at_rate_zero() {
        let mut transmitter = Transmitter::new(&schedule(&[(1, 0), (5, 12_000_000), (9, 0)]));
        assert_eq!(transmitter.transmit(ms(0), Bytes::new(3000), false), ms(6));
        assert_eq!(transmitter.earliest_start(ms(6)), ms(6));
        assert_eq!(transmitter.transmit(ms(8), Bytes::new(1500), false), ms(9));
        assert_eq!(transmitter.earliest_start(ms(9)), Instant::NEVER);
    }

    #[test]
    fn a_held_outage_pauses_a_transmission() {
        let mut schedule = schedule(&[]);
        schedule.during_outage = DuringOutage::Hold;
        schedule.outages = vec![
            Outage { from: ms(1), until: ms(4) },
            Outage { from: ms(4), until: ms(6) },
            Outage { from: ms(9), until: ms(9) },
        ];
        let mut transmitter = Transmitter::new(&schedule);
        assert_eq!(transmitter.transmit(ms(0), Bytes::new(3000), false), ms(7));
        assert_eq!(transmitter.transmit(ms(7), Bytes::new(4500), true), ms(10));
    }

    #[test]
    fn a_saturated_transmitter_loses_nothing_to_rounding() {
        let mut schedule = schedule(&[]);
        schedule.rate[0].value = Rate::from_bits_per_second(7_000_000_000);
        let mut transmitter = Transmitter::new(&schedule);
        let mut at = Instant::START;
        for _ in 0..7_000 {
            at = transmitter.transmit(at, Bytes::new(1514), true);
        }
        assert_eq!(at.as_nanos(), 1514 * 8 * 1_000);
    }

    #[test]
    fn a_bucket_lets_saved_bytes_leave_at_once() {
        let mut schedule = schedule(&[(20, 6_000_000)]);
        schedule.burst = Bytes::new(4500);
        let mut transmitter = Transmitter::new(&schedule);
        let size = Bytes::new(1500);
        // The bucket is full at first: three packets leave at once, the fourth takes its millisecond.
        let mut ends = || [0; 4].map(|_| transmitter.transmit(ms(0), size, false));
        assert_eq!(ends(), [ms(0), ms(0), ms(0), ms(1)]);
        // Two milliseconds save two packets; a long pause saves no more than three, at half the rate as well.
        assert_eq!(transmitter.transmit(ms(3), size, false), ms(3));
        assert_eq!(transmitter.transmit(ms(3), size, false), ms(3));
        assert_eq!(transmitter.transmit(ms(3), size, false), ms(4));
        let mut ends = || [19, 19, 19, 19].map(|at| transmitter.transmit(ms(at), size, false));
        assert_eq!(ends(), [ms(19), ms(19), ms(19), ms(20)]);
        assert_eq!(transmitter.transmit(ms(21), size, false), ms(22));
        assert_eq!(transmitter.transmit(ms(22), size, true), ms(24));
    }

    #[test]
    fn several_packets_end_in_one_nanosecond_where_the_rate_is_that_high() {
        let mut schedule = schedule(&[]);
        schedule.rate[0].value = Rate::from_bits_per_second(u64::MAX);
        let mut transmitter = Transmitter::new(&schedule);
        let first = transmitter.transmit(ms(0), Bytes::new(1514), false);
        assert_eq!(first.as_nanos(), 1);
        assert_eq!(transmitter.transmit(first, Bytes::new(1514), true), first);
        assert_eq!(transmitter.transmit(first, Bytes::new(1514), false).as_nanos(), 2);
    }
}
