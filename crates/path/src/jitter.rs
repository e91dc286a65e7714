//! Random jitter of round trips about those of a path, as over a geostationary satellite.
//!
//! Publications report the distribution of such round trips, but seldom how fast they change. The correlation time is
//! therefore a parameter: it matters to transports that react to round trips.

use skyhop_model::End;
use skyhop_units::{Duration, Instant};

use crate::trace::{BetweenFrames, Frame, PathTrace};
use crate::{Draw, States};

/// Random variation of a round trip with a triangular distribution, whose mode is the path's own round trip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter {
    /// Time between two values.
    pub every: Duration,
    /// Maximum distance below the path's round trip.
    pub below: Duration,
    /// Maximum distance above the path's round trip, without spikes.
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
    /// Return `path` with the deviations added to its round trips, half in each direction.
    pub fn over(&self, path: &PathTrace, seed: u64) -> PathTrace {
        let deviations = self.deviations(Duration::from_nanos(path.header.duration_ns), seed);
        let (mut states, mut left) = (States::new(path), path.frames.iter().peekable());
        let (mut next, mut deviation_ns) = (deviations.iter().peekable(), 0);
        let mut frames = Vec::with_capacity(path.frames.len() + deviations.len());
        loop {
            let times = [left.peek().map(|frame| frame.at), next.peek().map(|(at, _)| *at)];
            let Some(at) = times.into_iter().flatten().min() else { break };
            let own = left.next_if(|frame| frame.at == at);
            if let Some((_, new_ns)) = next.next_if(|(time, _)| *time == at) {
                deviation_ns = *new_ns;
            }
            let mut frame = states.at(at);
            frame.events = own.map(|frame| frame.events.clone()).unwrap_or_default();
            deviate(&mut frame, deviation_ns, path.header.dish.unwrap_or_default());
            frames.push(frame);
        }
        let mut header = path.header.clone();
        header.between_frames = BetweenFrames::Step;
        header.step_ns = header.step_ns.min(self.every.as_nanos());
        PathTrace { header, frames }
    }

    /// Return the deviations from the path's start until `duration`, ns, each with the time from which on it holds.
    ///
    /// After each interval `every`, the value stays the same with the probability e^(-every/correlation), and a new
    /// one is drawn otherwise. The autocorrelation is then exponential, and the distribution exactly triangular.
    pub fn deviations(&self, duration: Duration, seed: u64) -> Vec<(Instant, i64)> {
        let kept = match self.correlation {
            Duration::ZERO => 0.0,
            correlation => (-self.every.as_secs_f64() / correlation.as_secs_f64()).exp(),
        };
        let mut deviations: Vec<(Instant, i64)> = Vec::new();
        let mut value_ns = 0;
        for step in 0..duration.as_nanos().div_ceil(self.every.as_nanos().max(1)) {
            let at = Instant::START + self.every * step;
            let draw = |what: DrawKind| Draw::new(seed, at, what as u64).unit();
            if step == 0 || draw(DrawKind::Kept) >= kept {
                value_ns = self.quantile_ns(draw(DrawKind::Value));
            }
            let deviation_ns = value_ns + self.spike(at, seed).as_nanos() as i64;
            if deviations.last().is_none_or(|(_, last_ns)| *last_ns != deviation_ns) {
                deviations.push((at, deviation_ns));
            }
        }
        deviations
    }

    /// Quantile of the deviation without spikes, ns: a share `rank` (0 to 1) of the values is below it.
    fn quantile_ns(&self, rank: f64) -> i64 {
        let [below, above] = [self.below, self.above].map(Duration::as_secs_f64);
        let width = below + above;
        if rank * width < below {
            let from_least = Duration::from_secs_f64((rank * width * below).sqrt());
            from_least.as_nanos() as i64 - self.below.as_nanos() as i64
        } else {
            let to_most = Duration::from_secs_f64(((1.0 - rank) * width * above).sqrt());
            self.above.as_nanos() as i64 - to_most.as_nanos() as i64
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

/// Add a deviation to a frame's round trip, half in each direction.
fn deviate(frame: &mut Frame, deviation_ns: i64, end: End) {
    let (Some(there), Some(back)) = (frame.delay, frame.delay_back) else { return };
    let rtt_ns = (there + back).as_nanos() as i64;
    // An odd round trip of a path without jitter has its last nanosecond in the direction back.
    let half_ns = (rtt_ns + deviation_ns).div_euclid(2) - rtt_ns.div_euclid(2);
    frame.add_delays([half_ns, deviation_ns - half_ns], end);
}
