//! Sessions over constant rates, with results that arithmetic predicts.

use std::sync::Arc;

use skyhop_units::Duration;
use skyhop_video::Film;
use skyhop_video::RateTrace;
use skyhop_video::over_rate::{Environment, play};

use crate::traces::setting;

fn steady(bps: f64) -> Arc<RateTrace> {
    Arc::new(RateTrace::new("steady", &[0.0], &[bps], 1000.0).unwrap())
}

/// A film of one track of 2 Mbit/s, 30 chunks of 4 s: 1 MB each.
fn one_track() -> Film {
    let text = "chunk = \"4 s\"\nchunks = 30\n[[track]]\nbitrate = \"2 Mbit/s\"";
    Film::of_toml(text, "one.toml").unwrap()
}

fn near(ns: u64, seconds: f64) -> bool {
    (ns as f64 / 1e9 - seconds).abs() < 1e-6
}

#[test]
fn above_the_bitrate_nothing_stalls_and_the_buffer_fills_to_its_cap() {
    let mut setting = setting(one_track(), "rate", "pensieve-linear");
    setting.environment =
        Environment { payload_share: 1.0, delay: Duration::ZERO, ..Environment::default() };
    setting.player.wait_step = Duration::ZERO;
    let played = play(&setting, &steady(4e6), 0.0, 1).unwrap();
    // Each chunk takes 2 s and adds 4 s: the buffer is 4 s, 6 s, … until it would be over the cap of 60 s.
    for (number, row) in played.rows.iter().enumerate() {
        let uncapped_s = 4.0 + 2.0 * number as f64;
        assert!(near(row.buffer_ns, uncapped_s.min(62.0)), "{row:?}");
        assert!(near(row.waited_ns, if uncapped_s > 62.0 { 2.0 } else { 0.0 }), "{row:?}");
    }
    assert_eq!((played.summary.stall_ns, played.summary.switches), (0, 0));
    assert!(near(played.summary.startup_ns, 2.0));
    assert_eq!((played.summary.mean_bitrate_bps, played.qoe), (2e6, 2.0));
}

#[test]
fn below_the_bitrate_every_chunk_stalls_for_what_is_lacking() {
    let mut setting = setting(one_track(), "rate", "pensieve-linear");
    setting.environment = Environment {
        payload_share: 0.8,
        delay: Duration::from_millis(100),
        ..Environment::default()
    };
    // The film gets 1.6 Mbit/s of 2 Mbit/s: 8 Mbit take 5 s, plus 100 ms of request delay.
    let played = play(&setting, &steady(2e6), 0.0, 1).unwrap();
    for (number, row) in played.rows.iter().enumerate() {
        assert!(near(row.arrived_ns, 5.1 * (number + 1) as f64), "{row:?}");
        assert!(near(row.stall_ns, if number == 0 { 0.0 } else { 1.1 }), "{row:?}");
        assert!(near(row.buffer_ns, 4.0), "{row:?}");
    }
    assert_eq!(played.summary.stalls, 29);
    let expected = 2.0 - 2.0 * 1.1 * 29.0 / 30.0;
    assert!((played.qoe - expected).abs() < 1e-9, "{} instead of {expected}", played.qoe);
}

#[test]
fn a_controller_settles_on_the_highest_track_that_a_constant_rate_carries() {
    let rates = [(1.0e6, 1), (2.4e6, 3), (3.5e6, 4), (9.0e6, 5)];
    for (bps, track) in rates {
        let setting = setting(Film::shipped("pensieve").unwrap(), "rate", "pensieve-linear");
        let rows = play(&setting, &steady(bps), 0.0, 1).unwrap().rows;
        assert!(rows[5..].iter().all(|row| row.track == track), "{bps}: {rows:?}");
    }
}

#[test]
fn an_outage_stalls_for_as_long_as_the_buffer_is_empty() {
    let mut setting = setting(one_track(), "rate", "pensieve-linear");
    setting.environment =
        Environment { payload_share: 1.0, delay: Duration::ZERO, ..Environment::default() };
    // Three chunks come in 6 s, of which 4 s have been played; then nothing comes for 20 s.
    let trace = RateTrace::new("outage", &[0.0, 6.0, 26.0], &[4e6, 0.0, 4e6], 1000.0).unwrap();
    let rows = play(&setting, &Arc::new(trace), 0.0, 1).unwrap().rows;
    assert!(near(rows[2].buffer_ns, 8.0));
    assert!(near(rows[3].arrived_ns, 28.0) && near(rows[3].stall_ns, 14.0), "{:?}", rows[3]);
}

#[test]
fn a_chunk_that_will_not_come_in_time_is_given_up_for_a_lower_track() {
    let mut setting = setting(Film::shipped("pensieve").unwrap(), "rate", "pensieve-linear");
    // The rate is 6 Mbit/s for 30 s, then next to nothing for 30 s.
    let trace = RateTrace::new("drop", &[0.0, 4.0, 60.0], &[6e6, 0.2e6, 6e6], 1000.0).unwrap();
    let trace = Arc::new(trace);
    let patient = play(&setting, &trace, 0.0, 1).unwrap();
    setting.player.abandon = true;
    let quitter = play(&setting, &trace, 0.0, 1).unwrap();
    assert_eq!(patient.summary.abandoned_bytes, 0);
    assert!(quitter.summary.abandoned_bytes > 0);
    assert!(quitter.summary.stall_ns < patient.summary.stall_ns, "{quitter:?} {patient:?}");
    let given_up = quitter.rows.iter().find(|row| row.abandoned_bytes > 0).unwrap();
    assert!(given_up.track < patient.rows[given_up.chunk as usize].track);
}

#[test]
fn without_its_first_chunk_a_score_counts_its_change_all_the_same() {
    let mut setting = setting(Film::shipped("pensieve").unwrap(), "rate", "pensieve-linear");
    setting.without_first = true;
    let played = play(&setting, &steady(50e6), 0.0, 1).unwrap();
    // One change from 0.75 to 4.3 Mbit/s, then only the top track.
    let expected = (47.0 * 4.3 - (4.3 - 0.75)) / 47.0;
    assert!((played.qoe - expected).abs() < 1e-9, "{}", played.qoe);
}
