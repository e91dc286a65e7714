//! Controllers that look ahead, and the upper bound for all of them.

use std::sync::Arc;

use skyhop_needs::cases;
use skyhop_video::controllers::{CONTROLLERS, ControllerChoice};
use skyhop_video::forecast::{Errors, PredictionHistory, Predictions, RateForecast, TransferPath};
use skyhop_video::optimum::Bound;
use skyhop_video::over_rate::{ForecastSource, Setting, play};
use skyhop_video::{Film, RateTrace};

use crate::traces::{Dice, Steps, setting, varied_film};

fn bound<'b>(setting: &'b Setting, resolution_s: f64) -> Bound<'b> {
    Bound {
        film: &setting.film,
        qoe: &setting.qoe,
        player: setting.player,
        environment: setting.environment,
        without_first: setting.without_first,
        resolution_s,
    }
}

fn qoe_of(
    setting: &Setting,
    controller: &str,
    forecast: ForecastSource,
    trace: &Arc<RateTrace>,
) -> f64 {
    let controller = ControllerChoice::named(controller).unwrap();
    let setting = Setting { controller, forecast, ..setting.clone() };
    play(&setting, trace, 0.0, 7).unwrap().qoe
}

#[test]
fn who_knows_more_does_better_in_the_mean_and_nobody_beats_the_optimum() {
    let runs = u64::from(cases(16));
    let mut sums = [0.0; 4];
    for seed in 0..runs {
        let trace = Steps::random(&mut Dice::of(seed), 4.3e6).trace();
        let setting = setting(varied_film(seed), "mpc-o", "pensieve-linear");
        let erring = ForecastSource::Erring(Errors { mean_error: 0.0, relative_sd: 0.4 });
        let [own, model, truth] =
            [("mpc-d", ForecastSource::Truth), ("mpc-l", erring), ("mpc-o", ForecastSource::Truth)]
                .map(|(controller, forecast)| qoe_of(&setting, controller, forecast, &trace));
        let most = bound(&setting, 0.2).over(&trace, 0.0);
        for (qoe, who) in [(own, "mpc-d"), (model, "mpc-l"), (truth, "mpc-o")] {
            assert!(qoe <= most + 1e-9, "seed {seed}: {who} has {qoe}, at most {most}");
        }
        sums.iter_mut().zip([own, model, truth, most]).for_each(|(sum, qoe)| *sum += qoe);
    }
    let [own, model, truth, most] = sums.map(|sum| sum / runs as f64);
    assert!(own < truth && model < truth && truth < most, "{own} {model} {truth} {most}");
}

#[test]
fn no_controller_beats_the_optimum_of_any_qoe() {
    for (seed, entry) in (0..).zip(CONTROLLERS) {
        let trace = Steps::random(&mut Dice::of(100 + seed), 4.3e6).trace();
        for name in ["pensieve-hd", "satpipe-log-sp", "satpipe-linear-rp"] {
            let setting = setting(varied_film(seed), entry.name, name);
            let (played, most) = (
                play(&setting, &trace, 0.0, 1).unwrap().qoe,
                bound(&setting, 0.2).over(&trace, 0.0),
            );
            assert!(played <= most + 1e-9, "{}, {name}: {played}, at most {most}", entry.name);
        }
    }
}

/// Best score by enumeration of all sequences of tracks of a short film.
fn best_of_all(setting: &Setting, path: &TransferPath) -> f64 {
    let (film, qoe) = (&setting.film, &setting.qoe);
    let (tracks, chunks) = (film.tracks.len(), film.chunks());
    let value_of = |number: usize| {
        let track_of = |chunk: usize| match chunk {
            0 => 1,
            _ => number / tracks.pow((chunks - 1 - chunk) as u32) % tracks,
        };
        let (mut now_s, mut until_s, mut value) = (0.0, f64::NAN, 0.0);
        for chunk in 0..chunks {
            let track = track_of(chunk);
            now_s = path.arrives_s(now_s, film.size_bytes(chunk, track) as f64);
            let stall_s = if chunk == 0 { 0.0 } else { f64::max(now_s - until_s, 0.0) };
            until_s =
                if chunk == 0 { now_s } else { until_s.max(now_s) } + film.chunk.as_secs_f64();
            let before = if chunk == 0 { track } else { track_of(chunk - 1) };
            value += qoe.reward(
                qoe.quality(track),
                stall_s,
                (qoe.quality(track) - qoe.quality(before)).abs(),
            );
        }
        value / chunks as f64
    };
    (0..tracks.pow(chunks as u32 - 1)).map(value_of).fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn the_bound_is_just_above_the_best_of_all_sequences() {
    for seed in 0..12 {
        let text = format!(
            "chunk = \"4 s\"\nchunks = 7\nladder = {{ top = \"4 Mbit/s\", ratio = 2.0, tracks = 4 }}\nvariation = {{ relative_sd = 0.3, seed = {seed} }}"
        );
        let film = Film::of_toml(&text, "short.toml").unwrap();
        let setting = setting(film, "mpc-o", "pensieve-linear");
        let trace = Steps::random(&mut Dice::of(seed), 2.5e6).trace();
        let path = TransferPath {
            trace: trace.clone(),
            offset_s: 0.0,
            payload_share: 0.95,
            delay_s: 0.08,
        };
        let best = best_of_all(&setting, &path);
        let [rough, fine] =
            [0.5, 0.001].map(|resolution_s| bound(&setting, resolution_s).over(&trace, 0.0));
        assert!(best <= fine + 1e-9 && fine <= rough + 1e-9, "seed {seed}: {best} {fine} {rough}");
        assert!((fine - best).abs() < 1e-3 * best.abs().max(1.0), "seed {seed}: {best} {fine}");
    }
}

#[test]
fn the_same_seed_errs_the_same_and_no_error_is_the_truth() {
    let trace = Steps::random(&mut Dice::of(4), 4e6).trace();
    let truth = TransferPath { trace, offset_s: 11.0, payload_share: 0.95, delay_s: 0.08 };
    let erring = |relative_sd, seed| {
        truth
            .with_errors(Errors { mean_error: 0.0, relative_sd }, seed)
            .unwrap()
            .arrives_s(5.0, 3e6)
    };
    assert_eq!(erring(0.3, 1).to_bits(), erring(0.3, 1).to_bits());
    assert!((erring(0.3, 1) - erring(0.3, 2)).abs() > 1e-3);
    assert_eq!(erring(0.0, 1).to_bits(), truth.arrives_s(5.0, 3e6).to_bits());
}

#[test]
fn an_oracles_errors_are_those_that_it_states() {
    let trace = Arc::new(RateTrace::new("flat", &[0.0], &[8e6], 20_000.0).unwrap());
    let truth = TransferPath { trace, offset_s: 0.0, payload_share: 1.0, delay_s: 0.0 };
    let forecast = truth.with_errors(Errors { mean_error: 0.25, relative_sd: 0.1 }, 5).unwrap();
    let errors: Vec<f64> = forecast.bps(0.0, 20_000).iter().map(|bps| bps / 8e6 - 1.0).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let variance = errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>();
    let sd = (variance / errors.len() as f64).sqrt();
    // The tolerances are five standard errors of 20,000 draws.
    assert!((mean - 0.25).abs() < 0.0036 && (sd - 0.1).abs() < 0.0025, "{mean} {sd}");
}

#[test]
fn predictions_hold_for_their_steps_and_the_last_for_good() {
    let ahead = Predictions::new(10.0, 2.0, vec![8e6, 0.0, 4e6]).unwrap();
    assert!((ahead.arrives_s(10.0, 1e6) - 11.0).abs() < 1e-12);
    // 1 MB arrives in the second that is left of the first step; the other MB after the second, at half the
    // rate.
    assert!((ahead.arrives_s(11.0, 2e6) - 16.0).abs() < 1e-12);
    assert_eq!(ahead.bps(11.5, 4), [8e6, 0.0, 0.0, 4e6]);
    assert!(Predictions::new(0.0, 1.0, Vec::new()).is_err());
    assert!(Predictions::new(0.0, 1.0, vec![f64::NAN]).is_err());
    assert!(Predictions::new(0.0, 0.0, vec![1.0]).is_err());
}

#[test]
fn predictions_out_of_their_order_are_refused() {
    let at = |at_s: f64| Predictions::new(at_s, 1.0, vec![1e6]).unwrap();
    assert!(PredictionHistory::new(vec![at(2.0), at(2.0)]).unwrap_err().contains("do not ascend"));
    let made = PredictionHistory::new(vec![at(2.0), at(5.0)]).unwrap().for_session_at(1.0);
    assert_eq!(made.latest_at(0.5), None);
    assert_eq!(made.latest_at(3.9).unwrap().from_s(), 1.0);
    assert_eq!(made.latest_at(4.0).unwrap().from_s(), 4.0);
}

#[test]
fn predictions_count_only_once_they_are_made() {
    let trace = Arc::new(RateTrace::new("steps", &[0.0, 40.0], &[6e6, 0.6e6], 1000.0).unwrap());
    let setting = setting(Film::shipped("pensieve").unwrap(), "mpc-l", "pensieve-linear");
    let of = |made: Vec<Predictions>| {
        let setting = Setting {
            forecast: ForecastSource::Predicted(PredictionHistory::new(made).unwrap()),
            ..setting.clone()
        };
        play(&setting, &trace, 0.0, 1).unwrap().rows
    };
    let drop = |at_s: f64| Predictions::new(at_s, 1.0, vec![0.6e6]).unwrap();
    let (never, early, late) = (of(Vec::new()), of(vec![drop(5.0)]), of(vec![drop(30.0)]));
    let until = |rows: &[skyhop_video::ChunkRow], s: f64| {
        rows.iter()
            .filter(|row| row.asked_ns < (s * 1e9) as u64)
            .map(|row| row.track)
            .collect::<Vec<_>>()
    };
    assert_eq!(until(&never, 30.0), until(&late, 30.0));
    assert_ne!(until(&never, 30.0), until(&early, 30.0));
}
