//! Sessions and controllers against plain restatements of the published rules, chunk by chunk.

use skyhop_needs::cases;
use skyhop_video::Film;
use skyhop_video::controllers::ControllerChoice;
use skyhop_video::over_rate::play;

use crate::traces::{Dice, Steps, setting, varied_film};

/// State of the player before each choice, as the restated rules see it.
struct Seen<'s> {
    chunk: usize,
    last: usize,
    buffer_s: f64,
    /// Throughput in bit/s and duration in seconds of every chunk so far.
    past: &'s [(f64, f64)],
    /// Wait before this choice, because the buffer was full.
    slept_s: f64,
}

/// Rule that returns the track to request, and the wait before the request in seconds.
type Rule<'r> = Box<dyn FnMut(&Seen<'_>) -> (usize, f64) + 'r>;

struct Chunk {
    track: usize,
    asked_s: f64,
    arrived_s: f64,
    stall_s: f64,
    buffer_s: f64,
}

/// Pensieve's simulator (fixed_env.py), which advances by pieces of the trace; times are not rounded to any
/// clock.
struct Link<'l> {
    steps: &'l Steps,
    now_s: f64,
}

impl Link<'_> {
    fn rate_and_end(&self) -> (f64, f64) {
        let rounds = (self.now_s / self.steps.end_s).floor();
        let offset_s = self.now_s - rounds * self.steps.end_s;
        let step = self.steps.starts_s.iter().rposition(|start| *start <= offset_s).unwrap();
        let ends_s = self.steps.starts_s.get(step + 1).copied().unwrap_or(self.steps.end_s);
        (self.steps.rates_bps[step], rounds * self.steps.end_s + ends_s)
    }

    fn transfer(&mut self, bytes: f64) {
        let mut bits = bytes * 8.0;
        loop {
            let (rate, ends_s) = self.rate_and_end();
            let payload = rate * 0.95;
            let passes = payload * (ends_s - self.now_s);
            if passes >= bits {
                self.now_s += bits / payload;
                break;
            }
            bits -= passes;
            self.now_s = ends_s + 1e-12;
        }
    }
}

/// Play a session by the rule. `still`: whether the trace's time pauses in each request's 80 ms, as in
/// fixed_env.py.
fn restated(
    film: &Film,
    steps: &Steps,
    offset_s: f64,
    still: bool,
    mut rule: Rule<'_>,
) -> Vec<Chunk> {
    // Total pause of the trace's time so far.
    let mut stood_s = 0.0;
    let mut link = Link { steps, now_s: offset_s };
    let (mut chunks, mut past) = (Vec::<Chunk>::new(), Vec::new());
    let (mut buffer_s, mut slept_s, mut last, mut delay_s) = (0.0, 0.0, 1, 0.0);
    for chunk in 0..film.chunks() {
        let (track, wait_s) = if chunk == 0 {
            (1, 0.0)
        } else {
            rule(&Seen { chunk, last, buffer_s, past: &past, slept_s })
        };
        link.now_s += wait_s;
        buffer_s = f64::max(buffer_s - wait_s, 0.0);
        // The 80 ms of each request come after its transfer.
        let asked_s = link.now_s + stood_s;
        let bytes = film.size_bytes(chunk, track) as f64;
        link.transfer(bytes);
        if still {
            stood_s += 0.08;
        } else {
            link.now_s += 0.08;
        }
        let took_s = link.now_s + stood_s - asked_s;
        delay_s += took_s;
        let stall_s = if chunk == 0 { 0.0 } else { f64::max(took_s - buffer_s, 0.0) };
        buffer_s = f64::max(buffer_s - took_s, 0.0) + film.chunk.as_secs_f64();
        let arrived_s = link.now_s + stood_s - offset_s;
        chunks.push(Chunk { track, asked_s: asked_s - offset_s, arrived_s, stall_s, buffer_s });
        past.push((bytes * 8.0 / took_s, took_s));
        slept_s = if buffer_s > 60.0 { ((buffer_s - 60.0) / 0.5).ceil() * 0.5 } else { 0.0 };
        link.now_s += slept_s;
        buffer_s -= slept_s;
        last = track;
    }
    assert!(delay_s > 0.0);
    chunks
}

/// Play the same session in both implementations on a number of random traces, and compare the chunks.
fn compare(controller: &str, traces: u32, rule: impl Fn(&Film) -> Rule<'_>) {
    compare_over(controller, traces, false, rule);
}

fn compare_over(controller: &str, traces: u32, still: bool, rule: impl Fn(&Film) -> Rule<'_>) {
    let mut switches = 0;
    for seed in 0..u64::from(cases(traces)) {
        let mut dice = Dice::of(seed);
        let steps = Steps::random(&mut dice, 4.3e6);
        let (trace, offset_s) = (steps.trace(), dice.between(0.0, steps.end_s));
        let film = varied_film(seed);
        let mut setting = setting(film.clone(), "rate", "pensieve-linear");
        setting.controller = serde_json::from_str(controller).unwrap();
        setting.environment.stands_still = still;
        setting.without_first = still;
        let played = play(&setting, &trace, offset_s, 1).unwrap();
        let expected = restated(&film, &steps, offset_s, still, rule(&film));
        if still {
            assert!((played.qoe - pensieves_sum(&film, &expected)).abs() < 1e-4, "seed {seed}");
        }
        assert_eq!(played.rows.len(), expected.len());
        for (row, chunk) in played.rows.iter().zip(&expected) {
            let near = |ns: u64, seconds: f64| (ns as f64 / 1e9 - seconds).abs() < 1e-5;
            assert!(
                row.track as usize == chunk.track
                    && near(row.asked_ns, chunk.asked_s)
                    && near(row.arrived_ns, chunk.arrived_s)
                    && near(row.stall_ns, chunk.stall_s)
                    && near(row.buffer_ns, chunk.buffer_s),
                "{controller}, seed {seed}: {row:?}, expected track {}, asked {} s, arrived {} s, stall {} s, buffer {} s",
                chunk.track,
                chunk.asked_s,
                chunk.arrived_s,
                chunk.stall_s,
                chunk.buffer_s
            );
        }
        switches += played.summary.switches;
    }
    assert!(switches > u64::from(traces), "{controller} hardly ever switched");
}

/// Mean reward as in Pensieve's plots: of all chunks but the first.
fn pensieves_sum(film: &Film, chunks: &[Chunk]) -> f64 {
    let reward = |pair: &[Chunk]| {
        let [before, rate] = [&pair[0], &pair[1]].map(|chunk| megabits(film, chunk.track));
        rate - 4.3 * pair[1].stall_s - (rate - before).abs()
    };
    chunks.windows(2).map(reward).sum::<f64>() / (chunks.len() - 1) as f64
}

fn megabits(film: &Film, track: usize) -> f64 {
    film.bitrate_bps(track) as f64 / 1e6
}

/// Rule of mpc.py in Pensieve's test directory, with the errors of robustMPC if `is_robust`.
fn mpc(film: &Film, is_robust: bool) -> Rule<'_> {
    let (mut estimates, mut errors) = (Vec::<f64>::new(), Vec::<f64>::new());
    Box::new(move |seen| {
        let rates: Vec<f64> = seen.past.iter().map(|(bps, _)| *bps).collect();
        let newest = rates[rates.len() - 1];
        errors.push(estimates.last().map_or(0.0, |estimate| (estimate - newest).abs() / newest));
        let last_five = &rates[rates.len().saturating_sub(5)..];
        let harmonic = last_five.len() as f64 / last_five.iter().map(|bps| 1.0 / bps).sum::<f64>();
        let error = errors[errors.len().saturating_sub(5)..].iter().copied().fold(0.0, f64::max);
        estimates.push(harmonic);
        let future = if is_robust { harmonic / (1.0 + error) } else { harmonic };
        let steps = 5.min(film.chunks() - seen.chunk);
        let (mut best, mut chosen) = (f64::NEG_INFINITY, 0);
        for number in 0..6_usize.pow(steps as u32) {
            let (mut buffer_s, mut stall_s, mut sum, mut changes) = (seen.buffer_s, 0.0, 0.0, 0.0);
            let (mut before, mut first) = (seen.last, 0);
            for step in 0..steps {
                let track = number / 6_usize.pow((steps - 1 - step) as u32) % 6;
                first = if step == 0 { track } else { first };
                let takes_s = film.size_bytes(seen.chunk + step, track) as f64 * 8.0 / future;
                if buffer_s < takes_s {
                    stall_s += takes_s - buffer_s;
                    buffer_s = 0.0;
                } else {
                    buffer_s -= takes_s;
                }
                buffer_s += 4.0;
                sum += megabits(film, track);
                changes += (megabits(film, track) - megabits(film, before)).abs();
                before = track;
            }
            let value = sum - 4.3 * stall_s - changes;
            if value >= best - 1e-9 {
                (best, chosen) = (value, first);
            }
        }
        (chosen, 0.0)
    })
}

#[test]
fn robust_mpc_is_pensieves() {
    compare("\"robust-mpc\"", 200, |film| mpc(film, true));
}

#[test]
fn with_its_habits_a_session_is_pensieves_simulators() {
    compare_over("\"robust-mpc\"", 60, true, |film| mpc(film, true));
}

#[test]
fn fast_mpc_is_pensieves() {
    compare("\"fast-mpc\"", 30, |film| mpc(film, false));
}

#[test]
fn bba_is_algorithm_1() {
    compare("\"bba\"", 300, |film| {
        Box::new(move |seen| {
            let rate = |track: usize| megabits(film, track);
            let top = film.tracks.len() - 1;
            let plus = if seen.last == top { top } else { seen.last + 1 };
            let minus = if seen.last == 0 { 0 } else { seen.last - 1 };
            let (reservoir, cushion) = (5.0, 10.0);
            if seen.buffer_s <= reservoir {
                return (0, 0.0);
            }
            if seen.buffer_s >= reservoir + cushion {
                return (top, 0.0);
            }
            let f = rate(0) + (rate(top) - rate(0)) * (seen.buffer_s - reservoir) / cushion;
            let mut next = seen.last;
            if f >= rate(plus) {
                for track in 0..=top {
                    if rate(track) < f {
                        next = track;
                    }
                }
            } else if f <= rate(minus) {
                for track in (0..=top).rev() {
                    if rate(track) > f {
                        next = track;
                    }
                }
            }
            (next, 0.0)
        })
    });
}

#[test]
fn bba_by_tracks_is_pensieves() {
    compare(r#"{"kind": "bba", "map": "track"}"#, 100, |_| {
        Box::new(|seen| {
            let track = if seen.buffer_s < 5.0 {
                0.0
            } else if seen.buffer_s >= 15.0 {
                5.0
            } else {
                5.0 * (seen.buffer_s - 5.0) / 10.0
            };
            (track as usize, 0.0)
        })
    });
}

#[test]
fn basic_bola_is_algorithm_1() {
    compare(r#"{"kind": "bola", "form": "basic"}"#, 200, |film| {
        Box::new(move |seen| {
            let utility = |track: usize| (megabits(film, track) / megabits(film, 0)).ln();
            let v = (25.0 - 4.0) / (utility(5) + 5.0);
            let score =
                |track: usize| (v * (utility(track) + 5.0) - seen.buffer_s) / megabits(film, track);
            let best = (0..6).max_by(|one, other| score(*one).total_cmp(&score(*other)));
            (best.unwrap(), 0.0)
        })
    });
}

/// Weighted means of dash.js 5.2.1, computed from all transfers: a ms of a transfer weighs 0.0015.
fn ewma(past: &[(f64, f64)]) -> f64 {
    let of = |half_life_s: f64| {
        let (mut value, mut total_s) = (0.0, 0.0);
        for (bps, took_s) in past {
            let weight = 0.0015 * 1000.0 * took_s;
            let alpha = f64::powf(0.5, weight / half_life_s);
            value = alpha * value + (1.0 - alpha) * bps;
            total_s += weight;
        }
        value / (1.0 - f64::powf(0.5, total_s / half_life_s))
    };
    f64::min(of(3.0), of(8.0))
}

fn within(film: &Film, bps: f64) -> usize {
    let fits = |track: &usize| film.bitrate_bps(*track) as f64 <= bps;
    (0..film.tracks.len()).filter(fits).max().unwrap_or(0)
}

#[test]
fn rate_is_the_throughput_rule() {
    compare("\"rate\"", 200, |film| {
        Box::new(move |seen| (within(film, 0.9 * ewma(seen.past)), 0.0))
    });
}

/// Rule of BolaRule.js: its state, and getMaxIndex.
fn bola(film: &Film) -> Rule<'_> {
    let bitrate = |track: usize| film.bitrate_bps(track) as f64;
    let utilities: Vec<f64> =
        (0..6).map(|track| (bitrate(track) / bitrate(0)).ln() + 1.0).collect();
    let buffer_time = f64::max(18.0, 10.0 + 2.0 * 6.0);
    let gp = (utilities[5] - 1.0) / (buffer_time / 10.0 - 1.0);
    let vp = 10.0 / gp;
    let (mut is_steady, mut placeholder) = (false, 0.0);
    Box::new(move |seen| {
        placeholder += seen.slept_s;
        let for_throughput = within(film, 0.9 * ewma(seen.past));
        placeholder *= 0.99;
        if !is_steady {
            let mut min = 0.0;
            for below in 0..for_throughput {
                let (q, i) = (bitrate(for_throughput), bitrate(below));
                let level =
                    vp * (gp + (q * utilities[below] - i * utilities[for_throughput]) / (q - i));
                min = f64::max(min, level);
            }
            placeholder = f64::max(0.0, min - seen.buffer_s);
            is_steady = seen.buffer_s >= 4.0;
            return (for_throughput, 0.0);
        }
        let level = seen.buffer_s + placeholder;
        let (mut quality, mut best) = (0, f64::NAN);
        for (track, utility) in utilities.iter().enumerate() {
            let score = (vp * (utility + gp) - level) / bitrate(track);
            if best.is_nan() || score >= best {
                (best, quality) = (score, track);
            }
        }
        if quality > seen.last && quality > for_throughput {
            quality = usize::max(for_throughput, seen.last);
        }
        let mut delay = f64::max(0.0, level - vp * (utilities[quality] + gp));
        if delay <= placeholder {
            placeholder -= delay;
            delay = 0.0;
        } else {
            delay -= placeholder;
            placeholder = 0.0;
            delay = if quality < 5 { delay } else { 0.0 };
        }
        (quality, delay)
    })
}

#[test]
fn bola_is_dash_jss() {
    compare("\"bola\"", 200, bola);
}

/// Rule of AbrController.js with InsufficientBufferRule.js: BOLA decides from 12 s of buffer on until it
/// falls below 6 s, and the buffer limits the track.
fn dynamic(film: &Film) -> Rule<'_> {
    let (mut by_buffer, mut bola) = (false, bola(film));
    Box::new(move |seen| {
        by_buffer = seen.buffer_s >= if by_buffer { 6.0 } else { 12.0 };
        let throughput = ewma(seen.past);
        let (track, wait_s) =
            if by_buffer { bola(seen) } else { (within(film, 0.9 * throughput), 0.0) };
        let most = within(film, 0.7 * throughput * seen.buffer_s / 4.0);
        // The limit does not apply to the first two chunks.
        if seen.past.len() >= 2 && most < track { (most, 0.0) } else { (track, wait_s) }
    })
}

#[test]
fn dynamic_is_dash_jss() {
    compare("\"dynamic\"", 200, dynamic);
}

#[test]
fn mpc_d_is_robust_mpc() {
    for seed in 0..20 {
        let steps = Steps::random(&mut Dice::of(seed), 4.3e6);
        let mut setting = setting(varied_film(seed), "robust-mpc", "pensieve-log");
        let robust = play(&setting, &steps.trace(), 0.0, 1).unwrap();
        setting.controller = ControllerChoice::named("mpc-d").unwrap();
        assert_eq!(play(&setting, &steps.trace(), 0.0, 1).unwrap(), robust);
    }
}
