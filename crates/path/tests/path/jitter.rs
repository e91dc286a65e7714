//! Round trips that vary at random.

use skyhop_path::{Jitter, Spikes};
use skyhop_units::{Duration, Instant};

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

/// Round trips of all steps, in ms.
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
        // Mean and deviation of a triangular distribution from 564 over 597 to 625 ms.
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
        assert!((correlation - (-1.0_f64).exp()).abs() < 0.04, "{correlation_ms}: {correlation}");
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
