//! Random jitter of round trips about a base value, as on paths over a geostationary satellite.
//!
//! Publications report the distribution of such round trips, but seldom how fast they change. The correlation time is
//! therefore a parameter: it matters to transports that react to round trips.

use skyhop_units::{Duration, Instant};

use crate::Draw;

/// Random variation of a round trip with a triangular distribution, whose mode is the base value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter {
    /// Time between two values.
    pub every: Duration,
    /// Maximum distance below the base value.
    pub below: Duration,
    /// Maximum distance above the base value, without spikes.
    pub above: Duration,
    /// Time in which the autocorrelation falls to 1/e; zero for independent values.
    pub correlation: Duration,
    /// Rare spikes, which are added to the round trip.
    pub spikes: Option<Spikes>,
}

/// Rare spikes of a round trip, whose heights are uniformly distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spikes {
    /// Probability that a spike begins in a given second.
    pub per_second: f64,
    /// Minimum height of a spike, which is its addition to the round trip.
    pub from: Duration,
    /// Maximum height of a spike.
    pub to: Duration,
    /// Duration of a spike.
    pub lasts: Duration,
}

/// Quantity that is drawn; each has its own random stream, so that the draws are independent.
#[derive(Debug, Clone, Copy)]
enum DrawKind {
    Value = 1,
    Kept,
    Spike,
    SpikeHeight,
}

const SECOND: Duration = Duration::from_secs(1);

impl Jitter {
    /// Return the round trips about `base` from the path's start until `duration`, each with the
    /// time from which on it holds.
    ///
    /// After each interval `every`, the value stays the same with the probability e^(-every/correlation), and a new
    /// one is drawn otherwise. The autocorrelation is then exponential, and the distribution exactly triangular.
    pub fn rtts(&self, base: Duration, duration: Duration, seed: u64) -> Vec<(Instant, Duration)> {
        let kept = match self.correlation {
            Duration::ZERO => 0.0,
            correlation => (-self.every.as_secs_f64() / correlation.as_secs_f64()).exp(),
        };
        let mut rtts: Vec<(Instant, Duration)> = Vec::new();
        let mut value = base;
        for step in 0..duration.as_nanos().div_ceil(self.every.as_nanos().max(1)) {
            let at = Instant::START + self.every * step;
            let draw = |what: DrawKind| Draw::new(seed, at, what as u64).unit();
            if step == 0 || draw(DrawKind::Kept) >= kept {
                value = self.quantile(base, draw(DrawKind::Value));
            }
            let rtt = value + self.spike(at, seed);
            if rtts.last().is_none_or(|(_, last)| *last != rtt) {
                rtts.push((at, rtt));
            }
        }
        rtts
    }

    /// Quantile of the round trip: a share `rank` (0 to 1) of the values is below it.
    fn quantile(&self, base: Duration, rank: f64) -> Duration {
        let [below, above] = [self.below, self.above].map(Duration::as_secs_f64);
        let width = below + above;
        if rank * width < below {
            base.saturating_sub(self.below) + Duration::from_secs_f64((rank * width * below).sqrt())
        } else {
            let to_most = Duration::from_secs_f64(((1.0 - rank) * width * above).sqrt());
            (base + self.above).saturating_sub(to_most)
        }
    }

    /// Height of the highest spike at `at`; zero without a spike.
    fn spike(&self, at: Instant, seed: u64) -> Duration {
        let Some(spikes) = self.spikes else { return Duration::ZERO };
        let since = at - Instant::START;
        let seconds = since.as_nanos() / SECOND.as_nanos();
        let longest = spikes.lasts.as_nanos() / SECOND.as_nanos();
        let may_last = seconds.saturating_sub(longest)..=seconds;
        let heights = may_last.filter_map(|second| {
            let begins = SECOND * second;
            let draw =
                |what: DrawKind| Draw::new(seed, Instant::START + begins, what as u64).unit();
            let is_on = since < begins + spikes.lasts && draw(DrawKind::Spike) < spikes.per_second;
            is_on.then(|| {
                spikes.from + (spikes.to - spikes.from).mul_f64(draw(DrawKind::SpikeHeight))
            })
        });
        heights.max().unwrap_or_default()
    }
}
