//! Round trips that vary at random about a usual one, as those over a geostationary satellite do.
//!
//! What is published of such round trips is how they are spread, seldom how fast they change; that is a parameter here,
//! for a transport that watches its round trips depends on it.

use skyhop_units::{Duration, Instant};

use crate::Draw;

/// How a round trip varies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter {
    /// The time between two values.
    pub every: Duration,
    /// How far it is below the usual one at the most …
    pub below: Duration,
    /// … and above it; in between the likelier the nearer it is to the usual one (a triangular distribution).
    pub above: Duration,
    /// In which time the autocorrelation falls to 1/e; zero where each value has nothing to do with the one before.
    pub correlation: Duration,
    /// What comes on top now and then.
    pub spikes: Option<Spikes>,
}

/// Rare excursions of a round trip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spikes {
    /// The probability that one begins in a second.
    pub per_second: f64,
    /// The least that it adds …
    pub from: Duration,
    /// … and the most, all equally likely.
    pub to: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

/// What is drawn, so that no draw has to do with another one.
#[derive(Debug, Clone, Copy)]
enum Drawn {
    Value = 1,
    Kept,
    Spike,
    SpikeHeight,
}

const SECOND: Duration = Duration::from_secs(1);

impl Jitter {
    /// The round trip about `usual` from each of the returned moments on, until `duration`. A value is kept with the
    /// probability e^(-every/correlation), else drawn anew: its autocorrelation is an exponential, and its distribution
    /// exactly the one that is asked for.
    pub fn rtts(&self, usual: Duration, duration: Duration, seed: u64) -> Vec<(Instant, Duration)> {
        let kept = match self.correlation {
            Duration::ZERO => 0.0,
            correlation => (-self.every.as_secs_f64() / correlation.as_secs_f64()).exp(),
        };
        let mut rtts: Vec<(Instant, Duration)> = Vec::new();
        let mut value = usual;
        for step in 0..duration.as_nanos().div_ceil(self.every.as_nanos().max(1)) {
            let at = Instant::START + self.every * step;
            let draw = |what: Drawn| Draw::new(seed, at, what as u64).unit();
            if step == 0 || draw(Drawn::Kept) >= kept {
                value = self.about(usual, draw(Drawn::Value));
            }
            let rtt = value + self.spike(at, seed);
            if rtts.last().is_none_or(|(_, last)| *last != rtt) {
                rtts.push((at, rtt));
            }
        }
        rtts
    }

    /// The round trip below which the share `rank` of them is.
    fn about(&self, usual: Duration, rank: f64) -> Duration {
        let [below, above] = [self.below, self.above].map(Duration::as_secs_f64);
        let width = below + above;
        if rank * width < below {
            usual.saturating_sub(self.below)
                + Duration::from_secs_f64((rank * width * below).sqrt())
        } else {
            let to_most = Duration::from_secs_f64(((1.0 - rank) * width * above).sqrt());
            (usual + self.above).saturating_sub(to_most)
        }
    }

    /// What a spike adds now.
    fn spike(&self, at: Instant, seed: u64) -> Duration {
        let Some(spikes) = self.spikes else { return Duration::ZERO };
        let since = at - Instant::START;
        let seconds = since.as_nanos() / SECOND.as_nanos();
        let longest = spikes.lasts.as_nanos() / SECOND.as_nanos();
        let may_last = seconds.saturating_sub(longest)..=seconds;
        let heights = may_last.filter_map(|second| {
            let begins = SECOND * second;
            let draw = |what: Drawn| Draw::new(seed, Instant::START + begins, what as u64).unit();
            let is_on = since < begins + spikes.lasts && draw(Drawn::Spike) < spikes.per_second;
            is_on.then(|| spikes.from + (spikes.to - spikes.from).mul_f64(draw(Drawn::SpikeHeight)))
        });
        heights.max().unwrap_or_default()
    }
}
