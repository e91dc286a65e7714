//! A ceiling for every player: the most that the film could have been worth over a trace to somebody who knows all of it.
//!
//! Dynamic programming over chunk, last track, and the best states that can be reached: when the chunk has come, how long the
//! picture has stood still, and what it has all been worth so far. It is an upper bound. What favours the player is always assumed:
//! its buffer has no cap, and states that are closer together than the resolution become one that has the best of each of them. With
//! a finer resolution the bound comes down to the true optimum of a buffer without a cap.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ahead::{Ahead, OverPath};
use crate::controllers::{ControllerChoice, MpcOConfig};
use crate::over_rate::{Environment, Setting, Told, play};
use crate::qoe::Qoe;
use crate::session::Playing;
use crate::{Film, RateTrace};

/// Sums that were made in another order differ in their last digits.
const SLACK: f64 = 1e-6;
/// Prices of a byte, as shares of the highest that bounds anything.
const PRICES: [f64; 8] = [0.0, 0.03, 0.06, 0.12, 0.25, 0.4, 0.65, 1.0];

/// What is bounded.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'b> {
    /// What is played.
    pub film: &'b Film,
    /// What counts.
    pub qoe: &'b Qoe,
    /// The first chunk's track is the players'.
    pub playing: Playing,
    /// Over what.
    pub environment: Environment,
    /// Whether the first chunk is left out of the score.
    pub without_first: bool,
    /// States closer together than this become one, in seconds.
    pub resolution_s: f64,
}

/// The most that chunks that are left are worth, beside what the bytes that can come at this price are.
#[derive(Debug)]
struct Rest {
    price: f64,
    /// By how many are left, and the track before them.
    most: Vec<Vec<f64>>,
}

/// What has become of the film until a chunk came.
#[derive(Debug, Clone, Copy)]
struct State {
    at_s: f64,
    stalled_s: f64,
    value: f64,
}

impl Bound<'_> {
    /// The most per chunk of a session that begins at `offset_s` of the trace.
    pub fn over(&self, trace: &Arc<RateTrace>, offset_s: f64) -> f64 {
        let mut path = OverPath {
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
        let at_least = self.reached(trace, offset_s) * counted as f64 - SLACK;
        let rests = self.rests(&path);
        let first = (self.playing.start_track as usize).min(film.top());
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
                    let come = states.iter().enumerate().flat_map(|(before, states)| {
                        let from = move |state: &State| (before, *state);
                        states.iter().map(from)
                    });
                    let next = come.map(|(before, state)| {
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
                        // All but the last of the chunks that are left can be played while it comes.
                        let until_s =
                            plays_until_s + film.chunk.as_secs_f64() * (left.max(1) - 1) as f64;
                        let bytes = if left == 0 { 0.0 } else { can_come(until_s) };
                        let rest =
                            rests.iter().map(|rest| rest.most[left][track] + rest.price * bytes);
                        state.value + rest.fold(f64::INFINITY, f64::min) >= at_least
                    }))
                })
                .collect();
        }
        let most = states.iter().flatten().map(|state| state.value).fold(at_least, f64::max);
        most / counted as f64
    }

    /// What some player reaches.
    fn reached(&self, trace: &Arc<RateTrace>, offset_s: f64) -> f64 {
        let setting = Setting {
            film: Arc::new(self.film.clone()),
            controller: ControllerChoice::MpcO(MpcOConfig { horizon: 3, ..MpcOConfig::default() }),
            qoe: Arc::new(self.qoe.clone()),
            playing: Playing { abandon: false, ..self.playing },
            environment: self.environment,
            told: Told::Truth,
            without_first: self.without_first,
        };
        play(&setting, trace, offset_s, 0).map_or(f64::NEG_INFINITY, |played| played.qoe)
    }

    /// What the chunks that are left can be worth at most, at several prices of a byte. Time to come is worth a stall at most, so
    /// that no byte is worth more than a stall in which the fewest come: the highest price is that, and each bounds what is left.
    fn rests(&self, path: &OverPath) -> Vec<Rest> {
        let most_bytes_per_s = path.trace.most_bytes_per_s() * path.payload_share;
        let highest = self.qoe.stall_per_s() / most_bytes_per_s;
        PRICES
            .map(|share| Rest { price: highest * share, most: self.most_at(highest * share) })
            .into()
    }

    /// The most that so many chunks are worth after a track, without any stall, where each byte has a price.
    fn most_at(&self, price: f64) -> Vec<Vec<f64>> {
        let qualities = self.qoe.qualities();
        let mut most = vec![vec![0.0; qualities.len()]];
        for left in 1..self.film.chunks() {
            let rest = &most[most.len() - 1];
            let chunk = self.film.chunks() - left;
            let after = |last: usize| {
                let worth = |track: usize| {
                    let change = (qualities[track] - qualities[last]).abs();
                    let costs = price * self.film.size_bytes(chunk, track) as f64;
                    self.qoe.reward(qualities[track], 0.0, change) - costs + rest[track]
                };
                (0..qualities.len()).map(worth).fold(f64::NEG_INFINITY, f64::max)
            };
            most.push((0..qualities.len()).map(after).collect());
        }
        most
    }

    /// When so many chunks have been played.
    fn plays_until_s(&self, begins_s: f64, chunks: usize, stalled_s: f64) -> f64 {
        begins_s + chunks as f64 * self.film.chunk.as_secs_f64() + stalled_s
    }

    /// What becomes of a state with the next chunk in a track.
    fn next(
        &self,
        path: &OverPath,
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

    /// Those of which none is better than another in everything.
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
        let mut front = Front::default();
        by_time.retain(|state| front.admits(*state));
        by_time
    }
}

/// Of states that came no later: the best value by how long the picture had stood still. Who has stood still longer has more left to
/// play.
#[derive(Debug, Default)]
struct Front {
    /// By descending stall, ascending value.
    best: Vec<(f64, f64)>,
}

impl Front {
    /// Whether nothing before is as good in everything; it then counts for those that follow.
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
