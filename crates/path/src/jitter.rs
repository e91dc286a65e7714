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

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(597);

    fn jitter(correlation_ms: u64) -> Jitter {
        Jitter {
            every: Duration::from_millis(50),
            below: Duration::from_millis(33),
            above: Duration::from_millis(28),
            correlation: Duration::from_millis(correlation_ms),
            spikes: None,
        }
    }

    /// The round trip of every step, in ms.
    fn series(jitter: &Jitter, steps: u64, seed: u64) -> Vec<f64> {
        let rtts = jitter.rtts(USUAL, jitter.every * steps, seed);
        let mut current = 0;
        (0..steps)
            .map(|step| {
                let at = Instant::START + jitter.every * step;
                while rtts.get(current + 1).is_some_and(|(next, _)| *next <= at) {
                    current += 1;
                }
                rtts[current].1.as_secs_f64() * 1e3
            })
            .collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn round_trips_are_spread_as_asked_whatever_their_correlation() {
        for correlation_ms in [0, 200, 1_000] {
            let values = series(&jitter(correlation_ms), 200_000, 1);
            let m = mean(&values);
            let sd = mean(&values.iter().map(|v| (v - m).powi(2)).collect::<Vec<_>>()).sqrt();
            // Of a triangle from 564 over 597 to 625 ms.
            assert!((m - 595.33).abs() < 0.5, "{correlation_ms}: {m}");
            assert!((sd - 12.47).abs() < 0.3, "{correlation_ms}: {sd}");
            assert!(values.iter().all(|v| (564.0..=625.0).contains(v)));
            let below = values.iter().filter(|v| **v < 597.0).count() as f64 / values.len() as f64;
            assert!((below - 33.0 / 61.0).abs() < 0.02, "{correlation_ms}: {below}");
        }
    }

    #[test]
    fn the_correlation_is_what_is_asked_for() {
        for (correlation_ms, lag) in [(200, 4), (1_000, 20)] {
            let values = series(&jitter(correlation_ms), 200_000, 2);
            let m = mean(&values);
            let products = |lag: usize| {
                let pairs = values.iter().zip(&values[lag..]);
                mean(&pairs.map(|(a, b)| (a - m) * (b - m)).collect::<Vec<_>>())
            };
            let correlation = products(lag) / products(0);
            assert!(
                (correlation - (-1.0_f64).exp()).abs() < 0.04,
                "{correlation_ms}: {correlation}"
            );
        }
        let values = series(&jitter(0), 100_000, 3);
        let m = mean(&values);
        let next: f64 = values.windows(2).map(|w| (w[0] - m) * (w[1] - m)).sum();
        let own: f64 = values.iter().map(|v| (v - m).powi(2)).sum();
        assert!((next / own).abs() < 0.02, "{}", next / own);
    }

    #[test]
    fn spikes_come_as_often_as_asked_and_last_as_long() {
        let spikes = Spikes {
            per_second: 0.1,
            from: Duration::from_millis(100),
            to: Duration::from_millis(900),
            lasts: Duration::from_millis(500),
        };
        let values = series(&Jitter { spikes: Some(spikes), ..jitter(0) }, 200_000, 4);
        let high: Vec<f64> = values.iter().copied().filter(|v| *v > 650.0).collect();
        let share = high.len() as f64 / values.len() as f64;
        assert!((share - 0.05).abs() < 0.005, "half of one second in ten: {share}");
        assert!(high.iter().all(|v| (664.0..=1_525.0).contains(v)));
        assert!((mean(&high) - 595.0 - 500.0).abs() < 15.0, "{}", mean(&high));
    }

    #[test]
    fn the_same_seed_gives_the_same_and_a_longer_path_begins_with_the_shorter_one() {
        let rtts = |seconds, seed| jitter(200).rtts(USUAL, Duration::from_secs(seconds), seed);
        assert_eq!(rtts(60, 7), rtts(60, 7));
        assert_ne!(rtts(60, 7), rtts(60, 8));
        assert!(rtts(120, 7).starts_with(&rtts(60, 7)));
    }
}
