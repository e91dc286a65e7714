//! Upper bound for all players: the highest QoE that a player with full knowledge of the trace could reach.
//!
//! Dynamic programming over chunk, last track, and the Pareto-optimal states: arrival time of the chunk,
//! total stall so far, and QoE so far. The result is an upper bound because every approximation favours the
//! player: its buffer has no cap, and states closer together than the resolution are merged into one that has
//! the best arrival time, stall and QoE of them all. As the resolution becomes finer, the bound approaches
//! the true optimum for a buffer without cap.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::controllers::{ControllerChoice, MpcOConfig};
use crate::forecast::{RateForecast, TransferPath};
use crate::over_rate::{Environment, ForecastSource, Setting, play};
use crate::qoe::Qoe;
use crate::session::PlayerSettings;
use crate::{Film, RateTrace};

/// Tolerance for rounding: sums computed in different orders differ in their last digits.
const SLACK: f64 = 1e-6;
/// Prices of a byte to try, as shares of the highest price that still yields a valid bound.
const PRICES: [f64; 8] = [0.0, 0.03, 0.06, 0.12, 0.25, 0.4, 0.65, 1.0];

/// Parameters of the upper bound.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'b> {
    /// Film that the session plays.
    pub film: &'b Film,
    /// Quality of experience to maximize.
    pub qoe: &'b Qoe,
    /// Settings of the player; only the first chunk's track is used.
    pub player: PlayerSettings,
    /// Path properties apart from the rate.
    pub environment: Environment,
    /// Whether the score omits the first chunk.
    pub without_first: bool,
    /// Distance in seconds below which states are merged.
    pub resolution_s: f64,
}

/// Upper bound of the QoE of the remaining chunks at one price of a byte. The user of the bound adds the
/// price times the number of bytes that can still arrive.
#[derive(Debug)]
struct RemainderBound {
    price: f64,
    /// Bound by the number of remaining chunks and the track before them.
    most: Vec<Vec<f64>>,
}

/// State of a session at the arrival of a chunk: arrival time, total stall and QoE so far.
#[derive(Debug, Clone, Copy)]
struct State {
    at_s: f64,
    stalled_s: f64,
    value: f64,
}

impl Bound<'_> {
    /// Upper bound of the mean QoE per chunk of a session that starts at `offset_s` of the trace.
    pub fn over(&self, trace: &Arc<RateTrace>, offset_s: f64) -> f64 {
        let mut path = TransferPath {
            trace: trace.clone(),
            offset_s: offset_s.rem_euclid(trace.length_s()),
            payload_share: self.environment.payload_share,
            delay_s: self.environment.delay.as_secs_f64(),
        };
        let film = self.film;
        let counted = film.chunks() - usize::from(self.without_first);
        if counted == 0 {
            return 0.0;
        }
        let at_least = self.achieved(trace, offset_s) * counted as f64 - SLACK;
        let remainder_bounds = self.remainder_bounds(&path);
        let first = (self.player.start_track as usize).min(film.top());
        let begins_s = path.arrives_s(0.0, film.size_bytes(0, first) as f64);
        let value = if self.without_first { 0.0 } else { self.qoe.quality(first) };
        let mut states = vec![Vec::new(); film.tracks.len()];
        states[first].push(State { at_s: begins_s, stalled_s: 0.0, value });
        for chunk in 1..film.chunks() {
            let left = film.chunks() - 1 - chunk;
            if self.environment.stands_still {
                path.offset_s -= path.delay_s;
            }
            states = (0..film.tracks.len())
                .map(|track| {
                    let arrived = states.iter().enumerate().flat_map(|(before, states)| {
                        let from = move |state: &State| (before, *state);
                        states.iter().map(from)
                    });
                    let next = arrived.map(|(before, state)| {
                        self.next(&path, begins_s, chunk, [before, track], state)
                    });
                    self.best(next.filter(|state| {
                        let plays_until_s =
                            self.plays_until_s(begins_s, chunk + 1, state.stalled_s);
                        let can_come = |until_s: f64| {
                            let [from_s, until_s] =
                                [state.at_s, until_s].map(|at_s| at_s + path.offset_s);
                            trace.bytes_between(from_s, until_s) * path.payload_share
                        };
                        // The playback of the remaining chunks, except the last one, can overlap
                        // with the transfers.
                        let until_s =
                            plays_until_s + film.chunk.as_secs_f64() * (left.max(1) - 1) as f64;
                        let bytes = if left == 0 { 0.0 } else { can_come(until_s) };
                        let rest = remainder_bounds
                            .iter()
                            .map(|rest| rest.most[left][track] + rest.price * bytes);
                        state.value + rest.fold(f64::INFINITY, f64::min) >= at_least
                    }))
                })
                .collect();
        }
        let most = states.iter().flatten().map(|state| state.value).fold(at_least, f64::max);
        most / counted as f64
    }

    /// Mean QoE per chunk that an actual player reaches: a lower bound, by which states are pruned.
    fn achieved(&self, trace: &Arc<RateTrace>, offset_s: f64) -> f64 {
        let setting = Setting {
            film: Arc::new(self.film.clone()),
            controller: ControllerChoice::MpcO(MpcOConfig { horizon: 3, ..MpcOConfig::default() }),
            qoe: Arc::new(self.qoe.clone()),
            player: PlayerSettings { abandon: false, ..self.player },
            environment: self.environment,
            forecast: ForecastSource::Truth,
            without_first: self.without_first,
        };
        play(&setting, trace, offset_s, 0).map_or(f64::NEG_INFINITY, |played| played.qoe)
    }

    /// Upper bounds of the remaining chunks' QoE, one for each of several prices of a byte (Lagrangian
    /// relaxation). A second of transfer costs at most as much as a second of stall. The highest price of a
    /// byte is therefore the cost of a stall for the time in which the byte arrives at the trace's highest
    /// rate. Each price yields a valid bound.
    fn remainder_bounds(&self, path: &TransferPath) -> Vec<RemainderBound> {
        let most_bytes_per_s = path.trace.most_bytes_per_s() * path.payload_share;
        let highest = self.qoe.stall_per_s() / most_bytes_per_s;
        PRICES
            .map(|share| RemainderBound {
                price: highest * share,
                most: self.most_at(highest * share),
            })
            .into()
    }

    /// Upper bound of the QoE of the remaining chunks, by their number and the track before them,
    /// without stalls, if each byte costs `price`.
    fn most_at(&self, price: f64) -> Vec<Vec<f64>> {
        let qualities = self.qoe.qualities();
        let mut most = vec![vec![0.0; qualities.len()]];
        for left in 1..self.film.chunks() {
            let rest = &most[most.len() - 1];
            let chunk = self.film.chunks() - left;
            let after = |last: usize| {
                let value = |track: usize| {
                    let change = (qualities[track] - qualities[last]).abs();
                    let costs = price * self.film.size_bytes(chunk, track) as f64;
                    self.qoe.reward(qualities[track], 0.0, change) - costs + rest[track]
                };
                (0..qualities.len()).map(value).fold(f64::NEG_INFINITY, f64::max)
            };
            most.push((0..qualities.len()).map(after).collect());
        }
        most
    }

    /// Time at which `chunks` chunks have been played.
    fn plays_until_s(&self, begins_s: f64, chunks: usize, stalled_s: f64) -> f64 {
        begins_s + chunks as f64 * self.film.chunk.as_secs_f64() + stalled_s
    }

    /// State after the arrival of the next chunk in a track.
    fn next(
        &self,
        path: &TransferPath,
        begins_s: f64,
        chunk: usize,
        [before, track]: [usize; 2],
        state: State,
    ) -> State {
        let plays_until_s = self.plays_until_s(begins_s, chunk, state.stalled_s);
        let at_s = path.arrives_s(state.at_s, self.film.size_bytes(chunk, track) as f64);
        let stall_s = (at_s - plays_until_s).max(0.0);
        let change = (self.qoe.quality(track) - self.qoe.quality(before)).abs();
        let reward = self.qoe.reward(self.qoe.quality(track), stall_s, change);
        State { at_s, stalled_s: state.stalled_s + stall_s, value: state.value + reward }
    }

    /// Merge states that are closer together than the resolution, and keep the Pareto-optimal ones.
    fn best(&self, states: impl Iterator<Item = State>) -> Vec<State> {
        let mut merged: BTreeMap<(i64, i64), State> = BTreeMap::new();
        let cell = |seconds: f64| (seconds / self.resolution_s) as i64;
        for state in states {
            let key = (cell(state.at_s), cell(state.stalled_s));
            let one = merged.entry(key).or_insert(state);
            one.at_s = one.at_s.min(state.at_s);
            one.stalled_s = one.stalled_s.max(state.stalled_s);
            one.value = one.value.max(state.value);
        }
        let mut by_time: Vec<State> = merged.into_values().collect();
        by_time.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        let mut front = ParetoFront::default();
        by_time.retain(|state| front.admits(*state));
        by_time
    }
}

/// Pareto front of the states so far, in ascending order of arrival: the best QoE by total stall. At equal
/// arrival time and QoE, more past stall is an advantage, because more of the buffer is left to play.
#[derive(Debug, Default)]
struct ParetoFront {
    /// Pairs of stall and QoE, by descending stall and ascending QoE.
    best: Vec<(f64, f64)>,
}

impl ParetoFront {
    /// Add a state, unless an earlier one is at least as good in every respect; return whether the
    /// state was added.
    fn admits(&mut self, State { stalled_s, value, .. }: State) -> bool {
        let place = self.best.partition_point(|(other_s, _)| *other_s >= stalled_s);
        if place > 0 && self.best[place - 1].1 >= value {
            return false;
        }
        let worse = self.best[place..].partition_point(|(_, other)| *other <= value);
        self.best.splice(place..place + worse, [(stalled_s, value)]);
        true
    }
}
