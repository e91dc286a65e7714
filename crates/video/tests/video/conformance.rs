//! Conformance tests of every controller and every QoE of the tables.

use std::sync::Arc;

use skyhop_needs::cases;
use skyhop_video::controllers::{CONTROLLERS, ControllerChoice};
use skyhop_video::film::film_names;
use skyhop_video::forecast::Errors;
use skyhop_video::over_rate::{ForecastSource, play};
use skyhop_video::qoe::{QOES, Qoe};
use skyhop_video::{Film, RateTrace};

use crate::traces::{Dice, Steps, setting, varied_film};

/// Every controller of the table, and some with important parameters changed.
fn choices() -> Vec<ControllerChoice> {
    let others = [
        r#"{"kind": "bba", "map": "track", "reservoir_s": 0.0}"#,
        r#"{"kind": "bola", "form": "basic", "gp": 0.5, "buffer_s": 1.0}"#,
        r#"{"kind": "bola", "stable_buffer_s": 60.0}"#,
        r#"{"kind": "festive", "alpha": 0.0, "target_buffer_s": 0.0}"#,
        r#"{"kind": "robust-mpc", "horizon": 1, "ties": "first"}"#,
        r#"{"kind": "mpc-l", "looking": "mean"}"#,
        r#"{"kind": "mpc-o", "looking": "mean", "horizon": 2}"#,
    ];
    let plain = CONTROLLERS.iter().map(|entry| (entry.default)());
    plain.chain(others.map(|text| serde_json::from_str(text).unwrap())).collect()
}

#[test]
fn every_controller_plays_every_film_over_anything_and_does_the_same_again() {
    let mut films: Vec<Film> =
        ["pensieve", "six-tracks"].map(|name| Film::shipped(name).unwrap()).into();
    films.push(varied_film(5));
    let one = "chunk = \"1 s\"\n[[track]]\nbitrate = \"1 Mbit/s\"\nsizes = [1, 900000, 1]";
    films.push(Film::of_toml(one, "one.toml").unwrap());
    for choice in choices() {
        for seed in 0..u64::from(cases(6)) {
            let film = films[seed as usize % films.len()].clone();
            let top_bps = film.bitrate_bps(film.top()) as f64;
            let steps = Steps::random(&mut Dice::of(seed), top_bps);
            let mut setting = setting(film, "rate", "pensieve-linear");
            setting.controller = choice.clone();
            setting.player.abandon = seed % 2 == 1;
            setting.forecast = if seed % 3 == 1 {
                ForecastSource::Erring(Errors { relative_sd: 0.5, mean_error: 0.1 })
            } else {
                ForecastSource::Truth
            };
            let played = play(&setting, &steps.trace(), 3.0, seed).unwrap();
            assert_eq!(played.rows.len(), setting.film.chunks(), "{choice:?}");
            for (pair, number) in played.rows.windows(2).zip(1_u32..) {
                let [before, row] = [pair[0], pair[1]];
                assert!(row.chunk == number && (row.track as usize) < setting.film.tracks.len());
                assert!(row.asked_ns >= before.arrived_ns && row.arrived_ns > row.asked_ns);
                assert!(row.buffer_ns >= setting.film.chunk.as_nanos(), "{choice:?}: {row:?}");
            }
            assert_eq!(play(&setting, &steps.trace(), 3.0, seed).unwrap(), played, "{choice:?}");
        }
    }
}

#[test]
fn every_controller_outlives_an_outage_longer_than_the_film() {
    let trace = RateTrace::new("outage", &[0.0, 20.0, 620.0], &[3e6, 0.0, 0.1e6], 640.0).unwrap();
    let trace = Arc::new(trace);
    for choice in choices() {
        let mut setting = setting(Film::shipped("pensieve").unwrap(), "rate", "pensieve-hd");
        setting.controller = choice.clone();
        let played = play(&setting, &trace, 0.0, 1).unwrap();
        assert_eq!(played.summary.chunks, 48, "{choice:?}");
        assert!(played.summary.stall_ns > 500_000_000_000, "{choice:?}: {:?}", played.summary);
    }
}

#[test]
fn a_controller_is_read_and_written_by_its_name_or_with_what_differs() {
    for choice in choices() {
        let text = serde_json::to_string(&choice).unwrap();
        assert_eq!(serde_json::from_str::<ControllerChoice>(&text).unwrap(), choice, "{text}");
    }
    let refused =
        |text: &str| serde_json::from_str::<ControllerChoice>(text).unwrap_err().to_string();
    let unknown = "unknown controller \"bolla\" (did you mean bola?); expected rate, bba, bola,";
    assert!(refused("\"bolla\"").starts_with(unknown));
    let fault = refused(r#"{"kind": "robust-mpc", "horizon": 50}"#);
    assert!(fault.starts_with("robust-mpc.horizon is 50; expected 1 to 10"), "{fault}");
    assert!(refused(r#"{"kind": "bba", "cushion": 3}"#).contains("unknown field `cushion`"));
}

#[test]
fn every_qoe_rises_with_the_track_and_falls_with_stalls_and_changes() {
    for name in film_names() {
        let film = Film::shipped(&name).unwrap();
        for entry in QOES {
            let Ok(qoe) = Qoe::new(entry.name, &film) else {
                assert_eq!((entry.name, name.as_str()), ("pensieve-hd", "satpipe"));
                continue;
            };
            assert!(qoe.qualities().windows(2).all(|pair| pair[0] < pair[1]), "{}", entry.name);
            assert!(qoe.stall_per_s() > 0.0 && qoe.change() > 0.0, "{}", entry.name);
        }
    }
}

#[test]
fn qoes_have_their_papers_numbers() {
    let near = |values: &[f64], expected: &[f64]| {
        let close = |(one, other): (&f64, &f64)| (one - other).abs() < 6e-4;
        assert!(
            values.len() == expected.len() && values.iter().zip(expected).all(close),
            "{values:?}"
        );
    };
    let pensieve = Film::shipped("pensieve").unwrap();
    let of = |name| Qoe::new(name, &pensieve).unwrap();
    near(of("pensieve-linear").qualities(), &[0.3, 0.75, 1.2, 1.85, 2.85, 4.3]);
    near(&[of("pensieve-linear").stall_per_s(), of("pensieve-log").stall_per_s()], &[4.3, 2.66]);
    near(of("pensieve-hd").qualities(), &[1.0, 2.0, 3.0, 12.0, 15.0, 20.0]);
    let satpipe = Film::shipped("satpipe").unwrap();
    let of = |name| Qoe::new(name, &satpipe).unwrap();
    near(of("satpipe-log-sp").qualities(), &[0.0, 1.5104, 1.9329, 2.5321, 3.1511, 3.5658, 4.1715]);
    near(
        of("satpipe-hd-rp").qualities(),
        &[0.0, 1.4363, 2.8047, 6.6899, 15.4593, 26.4832, 56.7787],
    );
    let stalls =
        ["satpipe-linear-balance", "satpipe-linear-rp", "satpipe-log-balance", "satpipe-log-rp"];
    near(&stalls.map(|name| of(name).stall_per_s()), &[13.611, 27.222, 2.6109, 3.3040]);
    near(&[of("satpipe-log-sp").change(), of("satpipe-hd-rp").change()], &[2.0, 1.0]);
}
