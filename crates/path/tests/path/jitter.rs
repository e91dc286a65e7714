//! Round trips that vary at random.

use skyhop_model::{End, PathEventKind};
use skyhop_path::{BetweenFrames, Endpoint, Frame, Jitter, PathEvent, PathTrace, Spikes};
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

fn rtt(frame: &Frame) -> Duration {
    frame.delay.unwrap() + frame.delay_back.unwrap()
}

/// Round trips of all steps, in ms.
fn series(jitter: &Jitter, steps: u64, seed: u64) -> Vec<f64> {
    let ends = ["a", "b"].map(Endpoint::named);
    let path = PathTrace::fixed(ends, USUAL, jitter.every * steps);
    let frames = jitter.over(&path, seed).frames;
    let mut current = 0;
    (0..steps)
        .map(|step| {
            let at = Instant::START + jitter.every * step;
            while frames.get(current + 1).is_some_and(|next| next.at <= at) {
                current += 1;
            }
            rtt(&frames[current]).as_secs_f64() * 1e3
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
    let rtts = |seconds, seed| jitter(200).deviations(Duration::from_secs(seconds), seed);
    assert_eq!(rtts(60, 7), rtts(60, 7));
    assert_ne!(rtts(60, 7), rtts(60, 8));
    assert!(rtts(120, 7).starts_with(&rtts(60, 7)));
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Path of 10 s over a satellite that moves away by 20 ms, and then over another one.
fn moving() -> PathTrace {
    let frame = |at_ms, satellite, hops: [u64; 2], events| Frame {
        at: Instant::START + ms(at_ms),
        nodes: vec![-1, satellite, -2],
        hop_delays: hops.map(ms).to_vec(),
        delay: Some(ms(hops[0] + hops[1])),
        delay_back: Some(ms(hops[0] + hops[1])),
        events,
        ..Frame::default()
    };
    let at = Instant::START + ms(8_000);
    let handover = PathEvent { at, kind: PathEventKind::End, hop: Some(0), outage: ms(40) };
    let frames = vec![
        frame(0, 5, [40, 50], vec![]),
        frame(4_000, 5, [50, 60], vec![]),
        frame(8_000, 6, [45, 55], vec![handover]),
    ];
    let ends = ["a", "b"].map(Endpoint::named);
    let PathTrace { mut header, .. } = PathTrace::fixed(ends, ms(0), ms(10_000));
    header.between_frames = BetweenFrames::Linear;
    PathTrace { header, frames }
}

#[test]
fn a_moving_path_varies_about_the_round_trips_that_it_has_between_its_frames() {
    let (path, jitter) = (moving(), jitter(0));
    let varied = jitter.over(&path, 1);
    assert_eq!(varied.validate(), Ok(()));
    assert_eq!(varied.header.between_frames, BetweenFrames::Step);
    let deviations = jitter.deviations(ms(10_000), 1);
    let mut states = skyhop_path::States::new(&path);
    for (at, deviation_ns) in deviations {
        let frame = varied.frames.iter().find(|frame| frame.at == at).unwrap();
        let own = states.at(at);
        let added_ns = rtt(frame).as_nanos() as i64 - rtt(&own).as_nanos() as i64;
        assert_eq!(added_ns, deviation_ns, "{at}");
        let there_ns =
            frame.delay.unwrap().as_nanos() as i64 - own.delay.unwrap().as_nanos() as i64;
        assert!((2 * there_ns - deviation_ns).abs() <= 1, "half of it is there");
    }
    let middle = skyhop_path::States::new(&path).at(Instant::START + ms(2_000));
    assert_eq!(middle.hop_delays, [ms(45), ms(55)]);
    let events: Vec<&PathEvent> = varied.events().collect();
    assert_eq!(events, path.events().collect::<Vec<_>>());
}

#[test]
fn the_hop_of_the_terminal_has_the_jitter() {
    let mut path = moving();
    for (dish, others) in [(None, 1), (Some(End::From), 1), (Some(End::To), 0)] {
        path.header.dish = dish;
        let varied = jitter(0).over(&path, 3);
        let mut states = skyhop_path::States::new(&path);
        for frame in &varied.frames {
            let own = states.at(frame.at);
            assert_eq!(frame.hop_delays[others], own.hop_delays[others]);
        }
    }
}
