//! Background load of a link: traffic that takes a part of the rate, and has no packets of its own.

use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Instant, Rate};

use crate::error::ScheduleError;
use crate::schedule::check_pieces;
use crate::timeline::{Timeline, index_at};
use crate::{LinkSchedule, Piece};

/// Background load of one direction of a link: a fluid that shares the link with the packets.
///
/// A queue that is first in, first out serves fluid and packets in the order of their arrival, each at the whole rate, so
/// that the fluid delays packets and takes its place in the queue; what comes while the queue is full is lost. Other
/// disciplines, and links whose queue may be dismantled, serve the packets at the rest of the rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// Load over time, ordered by time, never empty; always below the link's rate.
    pub load: Vec<Piece<Rate>>,
    /// Wire bytes of each packet for which the fluid stands; a limit in packets counts the fluid by it.
    pub packet: Bytes,
    /// Number of packets that arrive together, at random times (a Poisson process); 0 for a fluid without randomness.
    pub burst: u32,
}

impl Background {
    /// Load of the link at `at`.
    fn load_at(&self, at: Instant) -> Rate {
        self.load[index_at(&self.load, at)].value
    }

    /// Check the load of a link with this schedule.
    pub(crate) fn check(&self, schedule: &LinkSchedule) -> Result<(), ScheduleError> {
        check_pieces("background", &self.load)?;
        let [Piece { value: rate, .. }] = schedule.rate[..] else {
            return Err(ScheduleError::SharedRateChanges);
        };
        if !schedule.holds_nothing() || schedule.burst > Bytes::ZERO || schedule.dama.is_some() {
            return Err(ScheduleError::SharedRateChanges);
        }
        match self.load.iter().position(|piece| piece.value >= rate) {
            Some(index) => Err(ScheduleError::Overload { index }),
            None => Ok(()),
        }
    }

    /// Rest that the load leaves of a rate that does not change.
    pub(crate) fn rest_of(&self, rate: Rate) -> Vec<Piece<Rate>> {
        let rest = |piece: &Piece<Rate>| {
            let left_bps = rate.bits_per_second().saturating_sub(piece.value.bits_per_second());
            Piece { from: piece.from, value: Rate::from_bits_per_second(left_bps) }
        };
        self.load.iter().map(rest).collect()
    }
}

/// Bytes of a background load since the start, counted on as time passes.
#[derive(Debug)]
pub struct BackgroundMeter {
    load: Timeline<Piece<Rate>>,
    now: Instant,
    bits: f64,
}

impl BackgroundMeter {
    /// Create the meter of a load at [`Instant::START`].
    pub fn new(background: &Background) -> Self {
        Self { load: Timeline::new(background.load.clone()), now: Instant::START, bits: 0.0 }
    }

    /// Wire bytes of the load until `until`, which must not decrease from call to call.
    pub fn bytes_until(&mut self, until: Instant) -> Bytes {
        self.bits += bits_between(&mut self.load, self.now, until);
        self.now = until;
        Bytes::new((self.bits / 8.0) as u64)
    }
}

/// Bits of a load from one time to another; the cursor has not passed `from`.
pub(crate) fn bits_between(load: &mut Timeline<Piece<Rate>>, from: Instant, until: Instant) -> f64 {
    let (mut at, mut bits) = (from, 0.0);
    while at < until {
        let bps = load.seek(at).value.bits_per_second() as f64;
        let end = load.until().min(until);
        bits += bps * end.saturating_since(at).as_secs_f64();
        at = end;
    }
    bits
}

impl LinkSchedule {
    /// Load at `at`; zero without a background.
    pub fn load_at(&self, at: Instant) -> Rate {
        self.background.as_ref().map_or(Rate::ZERO, |background| background.load_at(at))
    }
}
