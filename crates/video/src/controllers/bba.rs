//! BBA-0 (Huang et al., SIGCOMM 2014, algorithm 1): maps the buffer level to a bitrate, and changes tracks
//! only when the mapped bitrate has passed that of the next track. If buffer levels are mapped to track
//! numbers instead, it is Pensieve's baseline (bb.py).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Choice, Controller, Parameters, View, within};
use crate::Film;
use crate::qoe::Qoe;

/// Parameters of `bba`; the defaults of reservoir and cushion are Pensieve's, for its buffer of 60 s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BbaConfig {
    /// Buffer level in seconds up to which the lowest track is chosen, 0 to 3600.
    pub reservoir_s: f64,
    /// Seconds of buffer above the reservoir at which the highest track is reached, 0.001 to 3600.
    pub cushion_s: f64,
    /// Quantity that rises linearly with the buffer level within the cushion: "bitrate" or "track".
    pub map: BbaMap,
}

/// Quantity that rises linearly with the buffer level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BbaMap {
    /// Bitrate, from that of the lowest track to that of the highest.
    Bitrate,
    /// Track number, rounded down, without hysteresis (Pensieve's bb.py).
    Track,
}

impl Default for BbaConfig {
    fn default() -> Self {
        Self { reservoir_s: 5.0, cushion_s: 10.0, map: BbaMap::Bitrate }
    }
}

impl Parameters for BbaConfig {
    fn controller(&self, _film: &Film, _qoe: &Qoe, _seed: u64) -> Box<dyn Controller> {
        Box::new(Bba(self.clone()))
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        within("reservoir_s", self.reservoir_s, 0.0..=3600.0, "0 to 3600")
            .or_else(|| within("cushion_s", self.cushion_s, 0.001..=3600.0, "0.001 to 3600"))
    }
}

#[derive(Debug)]
struct Bba(BbaConfig);

impl Controller for Bba {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let above_s = view.buffer_s - self.0.reservoir_s;
        let share = above_s / self.0.cushion_s;
        let track = match self.0.map {
            BbaMap::Bitrate => by_bitrate(view, above_s, share),
            BbaMap::Track if share >= 1.0 => view.film.top(),
            BbaMap::Track => (share.max(0.0) * view.film.top() as f64) as usize,
        };
        Choice::at_once(track, None)
    }
}

/// Track by algorithm 1 of the paper.
fn by_bitrate(view: &View<'_>, above_s: f64, share: f64) -> usize {
    let film = view.film;
    let (top, before) = (film.top(), view.last_track.unwrap_or(0));
    if above_s <= 0.0 {
        return 0;
    }
    if share >= 1.0 {
        return top;
    }
    let bps = |track: usize| film.bitrate_bps(track) as f64;
    let mapped = bps(0) + share * (bps(top) - bps(0));
    let (above, below) = ((before + 1).min(top), before.saturating_sub(1));
    if mapped >= bps(above) {
        (0..=top).rev().find(|track| bps(*track) < mapped).unwrap_or(0)
    } else if mapped <= bps(below) {
        (0..=top).find(|track| bps(*track) > mapped).unwrap_or(top)
    } else {
        before
    }
}
