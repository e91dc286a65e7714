//! Schedule of one direction of a link over time: delay, rate, loss, outages, dismantled hops.

use serde::{Deserialize, Serialize};
use skyhop_model::DuringOutage;
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

use crate::loss::Loss;
use crate::timeline::{Begins, index_at};
use crate::{Background, DamaConfig, ScheduleError};

/// A value that holds from `from` until the next piece begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Piece<T> {
    /// Begin of the piece; the first piece begins at [`Instant::START`].
    pub from: Instant,
    /// The value that holds during the piece.
    pub value: T,
}

/// One-way delay during a piece of time, constant or linear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayPiece {
    /// Begin of the piece; the first piece begins at [`Instant::START`].
    pub from: Instant,
    /// One-way delay of a packet that enters the delay line at `from`.
    pub delay: Duration,
    /// One-way delay at the piece's end: the delay changes linearly from `delay` to this value. It equals
    /// `delay` if the delay is constant, as it is in the last piece.
    pub delay_at_end: Duration,
    /// Whether packets take another route from here on, and so may overtake earlier ones.
    pub new_route: bool,
}

/// Time during which no packet leaves the queue for the delay line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// First instant without service.
    pub from: Instant,
    /// First instant with service again.
    pub until: Instant,
}

/// A hop that ceases to exist at one instant: the packets on it are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dismantled {
    /// Time at which the hop ceases to exist.
    pub at: Instant,
    /// Begin of the hop: a packet is on the hop when it has been in the delay line for at least this long, and
    /// for less than `far`.
    pub near: Duration,
    /// End of the hop: a packet is on the hop when it has been in the delay line for less than this;
    /// [`Duration::MAX`] for the last hop.
    #[serde(with = "nanoseconds")]
    pub far: Duration,
    /// Whether the packets that wait in the queue are lost too, as when Linux takes down the device behind the
    /// queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queue: bool,
}

/// Everything that changes over time on a link, in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSchedule {
    /// One-way delay, ordered by time, never empty.
    pub delay: Vec<DelayPiece>,
    /// Wire rate, ordered by time, never empty.
    pub rate: Vec<Piece<Rate>>,
    /// Random loss, ordered by time, never empty.
    #[serde(with = "crate::loss::exact")]
    pub loss: Vec<Piece<Loss>>,
    /// Outages, ordered by time, not overlapping.
    pub outages: Vec<Outage>,
    /// Hops that cease to exist, ordered by time.
    pub dismantled: Vec<Dismantled>,
    /// Effect of an outage: packets are dropped, or held in the queue.
    pub during_outage: DuringOutage,
    /// Bytes that may leave at once after a pause: size of the bucket of Linux's tbf, which fills at the rate.
    /// At zero every packet takes its wire size divided by the rate.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub burst: Bytes,
    /// Frames and requests through which the transmitter gets its capacity, instead of having it all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dama: Option<DamaConfig>,
    /// Load without packets that takes a part of the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Box<Background>>,
}

fn is_zero(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

/// Serde format of durations that may be [`Duration::MAX`], which has no text form: nanoseconds as a number.
mod nanoseconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use skyhop_units::Duration;

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(time.as_nanos())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

impl LinkSchedule {
    /// Wire bytes that the rate lets through until `until`, outages not subtracted.
    pub fn bytes_until(&self, until: Instant) -> f64 {
        let bits = self.rate.iter().enumerate().map(|(index, piece)| {
            let next = self.rate.get(index + 1).map_or(until, |next| next.from.min(until));
            let held = next.saturating_since(piece.from).as_secs_f64();
            piece.value.bits_per_second() as f64 * held
        });
        bits.sum::<f64>() / 8.0
    }

    /// Schedule in which nothing ever changes, without outages; losses are independent.
    pub fn fixed(delay: Duration, rate: Rate, loss: Ratio) -> Self {
        let from = Instant::START;
        Self {
            delay: vec![DelayPiece { from, delay, delay_at_end: delay, new_route: false }],
            rate: vec![Piece { from, value: rate }],
            loss: vec![Piece { from, value: loss.into() }],
            outages: Vec::new(),
            dismantled: Vec::new(),
            during_outage: DuringOutage::Drop,
            burst: Bytes::ZERO,
            dama: None,
            background: None,
        }
    }

    /// Add outages, and join those that overlap or meet.
    pub fn add_outages(&mut self, outages: impl IntoIterator<Item = Outage>) {
        let mut all = std::mem::take(&mut self.outages);
        all.extend(outages);
        all.sort_by_key(|outage| (outage.from, outage.until));
        for outage in all {
            match self.outages.last_mut() {
                Some(last) if outage.from <= last.until => {
                    last.until = last.until.max(outage.until)
                }
                _ => self.outages.push(outage),
            }
        }
    }

    /// Check the rules of a schedule: delay, rate and loss begin at [`Instant::START`] and each
    /// piece is later than the one before; the last delay piece is constant; outages are in order and
    /// do not overlap; dismantled hops are in order; a background goes with one rate, and is below it. Outages and hops of zero length are allowed.
    ///
    /// # Errors
    /// The first rule that is broken, with the field and the entry.
    pub fn validate(&self) -> Result<(), ScheduleError> {
        check_pieces("delay", &self.delay)?;
        check_pieces("rate", &self.rate)?;
        check_pieces("loss", &self.loss)?;
        if self.delay.last().is_some_and(|last| last.delay != last.delay_at_end) {
            return Err(ScheduleError::EndlessSlope);
        }
        self.check_outages()?;
        self.check_dismantled()?;
        self.background.as_ref().map_or(Ok(()), |background| background.check(self))
    }

    /// One-way delay of a packet that enters the delay line at `at`; the schedule must be valid.
    ///
    /// Binary search, O(log n); a running link uses a cursor instead.
    pub fn delay_at(&self, at: Instant) -> Duration {
        delay_at(&self.delay, at)
    }

    /// Wire rate at `at`, outages ignored; the schedule must be valid.
    pub fn rate_at(&self, at: Instant) -> Rate {
        self.rate[index_at(&self.rate, at)].value
    }

    /// Random loss of packets that leave the queue at `at`; the schedule must be valid.
    pub fn loss_at(&self, at: Instant) -> Loss {
        self.loss[index_at(&self.loss, at)].value
    }

    /// Outage that covers `at`, if there is one.
    pub fn outage_at(&self, at: Instant) -> Option<Outage> {
        let next = self.outages.partition_point(|outage| outage.until <= at);
        self.outages.get(next).copied().filter(|outage| outage.from <= at)
    }

    /// Whether no outage holds the queue.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.outages.is_empty() || self.during_outage == DuringOutage::Drop
    }

    fn check_outages(&self) -> Result<(), ScheduleError> {
        let list = "outages";
        let mut free_from = Instant::START;
        for (index, outage) in self.outages.iter().enumerate() {
            if outage.until < outage.from {
                return Err(ScheduleError::Reversed { list, index });
            }
            if outage.from < free_from {
                return Err(ScheduleError::Order { list, index, at: outage.from });
            }
            free_from = outage.until;
        }
        Ok(())
    }

    fn check_dismantled(&self) -> Result<(), ScheduleError> {
        let list = "dismantled";
        let mut last = Instant::START;
        for (index, hop) in self.dismantled.iter().enumerate() {
            if hop.far < hop.near {
                return Err(ScheduleError::Reversed { list, index });
            }
            if hop.at < last {
                return Err(ScheduleError::Order { list, index, at: hop.at });
            }
            last = hop.at;
        }
        Ok(())
    }
}

impl DelayPiece {
    /// Delay at `at`, inside a piece that ends at `until`.
    ///
    /// The change since the piece began is rounded down to whole nanoseconds.
    #[inline]
    pub(crate) fn delay_at(&self, at: Instant, until: Instant) -> Duration {
        if self.delay == self.delay_at_end {
            return self.delay;
        }
        let elapsed_ns = (at - self.from).as_nanos();
        let length_ns = (until - self.from).as_nanos();
        if self.delay_at_end > self.delay {
            self.delay + scaled(self.delay_at_end - self.delay, elapsed_ns, length_ns)
        } else {
            self.delay - scaled(self.delay - self.delay_at_end, elapsed_ns, length_ns)
        }
    }
}

/// Delay at `at`, in pieces that begin at [`Instant::START`].
pub(crate) fn delay_at(pieces: &[DelayPiece], at: Instant) -> Duration {
    let index = index_at(pieces, at);
    let until = pieces.get(index + 1).map_or(Instant::NEVER, |next| next.from);
    pieces[index].delay_at(at, until)
}

/// Compute `change * elapsed / length`, rounded down.
fn scaled(change: Duration, elapsed_ns: u64, length_ns: u64) -> Duration {
    let scaled_ns = match change.as_nanos().checked_mul(elapsed_ns) {
        Some(product) => product / length_ns,
        None => {
            let product = u128::from(change.as_nanos()) * u128::from(elapsed_ns);
            (product / u128::from(length_ns)) as u64
        }
    };
    Duration::from_nanos(scaled_ns)
}

pub(crate) fn check_pieces<T: Begins>(
    list: &'static str,
    pieces: &[T],
) -> Result<(), ScheduleError> {
    let first = pieces.first().ok_or(ScheduleError::Empty { list })?;
    if first.begins() != Instant::START {
        return Err(ScheduleError::LateStart { list, at: first.begins() });
    }
    for (before, pair) in pieces.windows(2).enumerate() {
        if pair[1].begins() <= pair[0].begins() {
            return Err(ScheduleError::Order { list, index: before + 1, at: pair[1].begins() });
        }
    }
    Ok(())
}
