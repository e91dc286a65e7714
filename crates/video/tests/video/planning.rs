//! Tests of the planner against plain enumeration.

use skyhop_needs::cases;
use skyhop_video::Film;
use skyhop_video::forecast::{Constant, Predictions};
use skyhop_video::planner::{ExpectedRate, PlanStart, Planner, TIE, TieBreak};
use skyhop_video::qoe::{QOES, Qoe};

use crate::traces::{Dice, varied_film};

/// Return the first track of the best sequence, and its value, by enumeration in the order of their tracks.
fn enumerated(
    start: PlanStart<'_>,
    pace: ExpectedRate<'_>,
    horizon: usize,
    winner: TieBreak,
) -> (usize, f64) {
    let PlanStart { film, qoe, .. } = start;
    let steps = horizon.min(film.chunks() - start.chunk);
    let tracks = film.tracks.len();
    let mut best: Option<(usize, f64)> = None;
    for number in 0..tracks.pow(steps as u32) {
        let track_of = |step: usize| number / tracks.pow((steps - 1 - step) as u32) % tracks;
        let (mut buffer_s, mut now_s, mut last, mut value) =
            (start.buffer_s, start.now_s, start.last_track, 0.0);
        for step in 0..steps {
            let track = track_of(step);
            let bytes = film.size_bytes(start.chunk + step, track) as f64;
            let takes_s = match pace {
                ExpectedRate::Constant { bps } => bytes * 8.0 / bps,
                ExpectedRate::Forecast { forecast, divisor, cap_s } => {
                    if buffer_s > cap_s {
                        now_s += buffer_s - cap_s;
                        buffer_s = cap_s;
                    }
                    forecast.arrives_s(now_s, bytes * divisor) - now_s
                }
            };
            now_s += takes_s;
            let stall_s = f64::max(takes_s - buffer_s, 0.0);
            buffer_s = f64::max(buffer_s - takes_s, 0.0) + film.chunk.as_secs_f64();
            let before = last.unwrap_or(track);
            value += qoe.quality(track)
                - qoe.stall_per_s() * stall_s
                - qoe.change() * (qoe.quality(track) - qoe.quality(before)).abs();
            last = Some(track);
        }
        let wins = best.is_none_or(|(_, other)| match winner {
            TieBreak::First => value > other + TIE,
            TieBreak::Last => value >= other - TIE,
        });
        if wins {
            best = Some((track_of(0), value));
        }
    }
    best.unwrap()
}

fn qoe_of(dice: &mut Dice, film: &Film) -> Qoe {
    Qoe::new(QOES[dice.below(QOES.len())].name, film).unwrap()
}

/// Compare plans of a random situation, with the forecast that `claim` draws.
fn check(seed: u64, horizon: usize, claim: impl Fn(&mut Dice) -> Option<Predictions>) {
    let mut dice = Dice::of(seed);
    let film =
        if dice.share() < 0.3 { Film::shipped("pensieve").unwrap() } else { varied_film(seed) };
    let qoe = qoe_of(&mut dice, &film);
    // Round numbers now and then give many sequences the same value.
    let is_plain = dice.share() < 0.4;
    let plain = |number: f64| if is_plain { (number * 2.0).round() / 2.0 } else { number };
    let start = PlanStart {
        film: &film,
        qoe: &qoe,
        chunk: dice.below(film.chunks()),
        last_track: (dice.share() < 0.95).then(|| dice.below(film.tracks.len())),
        buffer_s: plain(dice.between(0.0, 40.0)),
        now_s: dice.between(0.0, 100.0),
    };
    let bps = plain(dice.between(0.05, 8.0)).max(0.05) * 1e6;
    let claimed = claim(&mut dice);
    let divisor = 1.0 + dice.share();
    let pace = match &claimed {
        None => ExpectedRate::Constant { bps },
        Some(forecast) => ExpectedRate::Forecast { forecast, divisor, cap_s: 30.0 },
    };
    for winner in [TieBreak::First, TieBreak::Last] {
        let plan = Planner::new(horizon, winner).plan(start, pace);
        let (track, value) = enumerated(start, pace, horizon, winner);
        assert_eq!(plan.track, track, "seed {seed}, {winner:?}: {plan:?}, enumerated {value}");
        assert!(
            (plan.value - value).abs() <= 1e-9 * value.abs().max(1.0),
            "seed {seed}: {plan:?} {value}"
        );
    }
}

#[test]
fn a_plan_at_one_rate_is_what_enumeration_finds() {
    (0..u64::from(cases(150))).for_each(|seed| check(seed, 5, |_| None));
}

#[test]
fn a_plan_along_predictions_is_what_enumeration_finds() {
    for seed in 0..u64::from(cases(60)) {
        check(seed, 4, |dice| {
            let rate = |dice: &mut Dice| {
                if dice.share() < 0.1 { 0.0 } else { dice.between(0.1, 8.0) * 1e6 }
            };
            let mut bps: Vec<f64> = (0..30).map(|_| rate(dice)).collect();
            bps.push(1e6);
            Some(Predictions::new(dice.between(0.0, 100.0), 1.0, bps).unwrap())
        });
    }
}

#[test]
fn a_constant_claim_plans_as_the_rate_itself() {
    let film = varied_film(3);
    let qoe = Qoe::new("pensieve-linear", &film).unwrap();
    let mut planner = Planner::new(5, TieBreak::Last);
    for chunk in 0..film.chunks() {
        let (buffer_s, bps) = (chunk as f64 * 0.9, 1e6 + 5e4 * chunk as f64);
        let start = PlanStart {
            film: &film,
            qoe: &qoe,
            chunk,
            last_track: Some(chunk % 6),
            buffer_s,
            now_s: 7.0,
        };
        let forecast = Constant { bps };
        let claimed = ExpectedRate::Forecast { forecast: &forecast, divisor: 1.0, cap_s: 1e9 };
        assert_eq!(
            planner.plan(start, ExpectedRate::Constant { bps }).track,
            planner.plan(start, claimed).track
        );
    }
}

#[test]
fn what_never_comes_has_a_plan_too() {
    let film = varied_film(3);
    let qoe = Qoe::new("pensieve-linear", &film).unwrap();
    let start = PlanStart {
        film: &film,
        qoe: &qoe,
        chunk: 3,
        last_track: Some(2),
        buffer_s: 4.0,
        now_s: 7.0,
    };
    let plan = Planner::new(5, TieBreak::Last).plan(start, ExpectedRate::Constant { bps: 0.0 });
    assert!(plan.track < 6 && plan.value.is_finite(), "{plan:?}");
}
