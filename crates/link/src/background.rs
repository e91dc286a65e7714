//! Background load of a link: traffic that takes a part of the rate, and has no packets of its own.

use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Duration, Instant, Rate};

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
    /// Lines over which parts of the load reach the link. No line limits the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
}

/// Line over which a part of a background load reaches a link, as packets from the same node do.
///
/// A line carries no more than its rate, packets and background together. What has come over a single line as fast as the
/// link therefore does not queue again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Node from which the line comes; the packets from it have the same number ([`Via`]).
    pub from: u32,
    /// Rate of the line. A slower line counts as one with the link's rate.
    pub rate: Rate,
    /// Loads over time, ordered by time, never empty.
    pub load: Vec<Piece<LineLoad>>,
}

/// Load of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineLoad {
    /// Part that goes on over the link.
    pub here: Rate,
    /// Load of the whole line, at least that.
    pub all: Rate,
}

/// Way on which a packet has reached a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Via {
    /// Node from which the packet comes.
    pub from: u32,
    /// Distance to the background ahead of the packet on its line.
    pub headway: Headway,
}

/// Number of no node, from which packets come that begin at the link.
pub const NO_NODE: u32 = u32::MAX;

impl Via {
    /// Way of a packet that begins at the link.
    pub const NOWHERE: Self = Self { from: NO_NODE, headway: Headway::UNKNOWN };
}

/// Time from the arrival of a background's last packet ahead of a packet to the arrival of the packet itself, over a line.
///
/// A small packet behind a large one waits for it at every link: it has arrived whole while the large one is still being
/// sent. So what is directly ahead on one line is directly ahead on the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Headway(u32);

impl Headway {
    /// Headway behind no known packet.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// Create a headway; one of more than four seconds is unknown.
    pub(crate) fn new(time: Duration) -> Self {
        Self(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX))
    }

    pub(crate) fn known(self) -> Option<Duration> {
        (self != Self::UNKNOWN).then(|| Duration::from_nanos(self.0.into()))
    }
}

impl Default for Headway {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl Background {
    /// Load of the link at `at`.
    fn load_at(&self, at: Instant) -> Rate {
        self.load[index_at(&self.load, at)].value
    }

    /// Check the load of a link with this schedule.
    pub(crate) fn check(&self, schedule: &LinkSchedule) -> Result<(), ScheduleError> {
        check_pieces("background", &self.load)?;
        self.lines.iter().try_for_each(|line| check_pieces("background", &line.load))?;
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
        self.bits += bits_between(&mut self.load, |load| load, [self.now, until]);
        self.now = until;
        Bytes::new((self.bits / 8.0) as u64)
    }
}

/// Bits of a load from one time to another; the cursor has not passed `from`.
pub(crate) fn bits_between<L: Copy>(
    load: &mut Timeline<Piece<L>>,
    rate: impl Fn(L) -> Rate,
    [from, until]: [Instant; 2],
) -> f64 {
    let (mut at, mut bits) = (from, 0.0);
    while at < until {
        let bps = rate(load.seek(at).value).bits_per_second() as f64;
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
