//! Durations of the outages of handovers.

use skyhop_path::{Draw, OutageModel};
use skyhop_units::{Duration, Instant};

#[test]
fn starlinks_outages_fill_their_range_and_depend_on_the_event_alone() {
    let outage = |second: u64, end| {
        let draw = Draw::new(7, Instant::START + Duration::from_secs(second), end);
        OutageModel::Starlink.handover(Duration::ZERO, Duration::ZERO, draw).as_nanos()
    };
    let drawn: Vec<u64> = (0..2_000).map(|second| outage(second, second % 2)).collect();
    let (low, high) = (drawn.iter().min().unwrap(), drawn.iter().max().unwrap());
    assert!(*low >= 30_000_000 && *low < 31_000_000, "{low}");
    assert!(*high <= 100_000_000 && *high > 99_000_000, "{high}");
    let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
    assert!((mean - 65e6).abs() < 2e6, "{mean}");
    assert_eq!(outage(5, 0), outage(5, 0));
    assert_ne!(outage(5, 0), outage(5, 1));
    assert_ne!(outage(5, 0), outage(6, 0));
}
